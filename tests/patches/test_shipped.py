"""The patches of this repository against the engine that is installed, by their sources alone."""

import ast

import pytest

from spec_toolkit.engine.patch_file import AppliesTo, Family
from spec_toolkit.engine.patches import choose_patches, installed_engine, patches_folder, read_patches, resolve, verify
from spec_toolkit.shipped import shipped

pytestmark = pytest.mark.skipif(installed_engine() is None, reason="the engine is not installed")

FOLDER = patches_folder(shipped("patches"), installed_engine() or "")
PATCHES = read_patches(FOLDER)


def test_the_installed_engine_has_patches():
    assert [patch.id for patch in PATCHES] == [
        "cpu-attention-backend",
        "cpu-draft-head",
        "cpu-frozen-kv-schedule",
        "cpu-gemma-ranks",
        "cpu-gemma-router",
        "cpu-overlap-schedule",
        "cpu-paged-slots",
        "cpu-plain-rope",
        "cpu-sampling",
        "cpu-sparse-attention",
        "inject-draft-faults",
        "isolate-draft-faults",
        "redact-keys",
        "resume-streams",
        "runtime-knob",
        "whole-sampling",
    ]


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.id)
def test_every_target_reads_as_it_was_written_against(patch):
    assert [check.problem or check.target for check in verify(patch) if not check.matches] == []


RELIED_ON = {  # what the engine could change without touching a target, and the hooks would do harm
    "cpu-gemma-router": {"Gemma4Router.forward", "Gemma4RMSNorm.forward_native"},
    "cpu-plain-rope": {"factory.get_rope"},
    "cpu-sparse-attention": {
        "Indexer.__init__",
        "IntelAMXAttnBackend._build_extend_metadata",
        "IntelAMXMultiStepDraftBackend.init_forward_metadata",
    },
    "isolate-draft-faults": {
        "EAGLEWorkerV2.forward_batch_generation",
        "EAGLEWorkerV2._build_trivial_verify_input",
        "EAGLEWorkerV2._stub_skipped_draft_extend",
        "build_eagle_verify_input",
        "AdaptiveController._activate",
        "EAGLEDraftCudaGraphRunner.capture_one_shape",
    },
    "resume-streams": {
        "Req.set_finish_with_abort",
        "SchedulerBatchResultProcessor._maybe_update_reasoning_tokens",
        "DetokenizerManager._decode_batch_token_id_output",
        "TokenizerManager._handle_batch_output",
        "BatchedFrequencyPenalizer",
        "BatchedPresencePenalizer",
        "BatchedRepetitionPenalizer",
        "BatchedMinNewTokensPenalizer",
    },
    "runtime-knob": {
        "AdaptiveController.activate_step_by_batch",
        "AdaptiveController.on_verify_complete",
        "eagle_utils.eagle_sample",
    },
    "whole-sampling": {
        "Sampler._sample_from_probs",
        "top_k_top_p_min_p_sampling_from_probs_torch",
        "SamplingBatchInfo._apply_pre_grammar_logits_transforms",
        "Req.reset_for_retract",
        "BatchedFrequencyPenalizer",
        "BatchedPresencePenalizer",
        "BatchedRepetitionPenalizer",
        "BatchedMinNewTokensPenalizer",
    },
}


@pytest.mark.parametrize("name", RELIED_ON)
def test_what_hooks_lean_on_is_checked_though_it_is_not_hooked(name):
    (patch,) = (patch for patch in PATCHES if patch.id == name)
    relied = [relied.target for relied in patch.file.relies_on]
    assert [short for short in RELIED_ON[name] if not any(each.endswith(f".{short}") for each in relied)] == []


@pytest.mark.parametrize("family", Family)
def test_every_deployment_redacts_its_keys_and_none_is_patched_for_a_rehearsal(family):
    chosen = choose_patches(PATCHES, family=family, rehearsal=False)
    assert "redact-keys" in [patch.id for patch in chosen]
    assert not [patch.id for patch in chosen if patch.file.applies_to is not AppliesTo.EVERY_DEPLOYMENT]


@pytest.mark.parametrize("family", Family)
def test_what_a_rehearsal_needs_fits_together(family):
    assert resolve(choose_patches(PATCHES, family=family, rehearsal=True))


def test_no_deployment_gets_a_patch_for_the_cpu():
    for patch in PATCHES:
        # whole-sampling is for any machine: every rehearsal has it, and deployments that name it.
        assert (patch.file.applies_to is AppliesTo.REHEARSAL) == patch.id.startswith(("cpu-", "whole-"))


def test_a_deployment_may_ask_for_whole_sampling():
    chosen = choose_patches(PATCHES, family=Family.DEEPSEEK, rehearsal=False, requested=["whole-sampling"])
    assert "whole-sampling" in [patch.id for patch in chosen]
    assert resolve(chosen)


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.id)
def test_hooks_carry_nothing_of_ours_but_the_plugin(patch):
    tree = ast.parse(patch.hooks_file.read_text(encoding="utf-8"))
    modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    ours = [name for name in modules if name.startswith("spec_toolkit")]
    assert all(name.startswith(("spec_toolkit.plugin", "spec_toolkit.terms")) for name in ours)
