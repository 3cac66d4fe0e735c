import os

import pytest
from msgspec.structs import replace

from spec_toolkit.errors import RecipeError, Verdict
from spec_toolkit.facts.known import load_tables
from spec_toolkit.launch.asked import Given, check_commands, check_pods, defaults_for, machines_for
from spec_toolkit.launch.begin import begin, write_new
from spec_toolkit.recipe.command import read_commands
from spec_toolkit.recipe.load import parse_recipe
from spec_toolkit.recipe.pods import read_manifest
from tests.recipe.reading import read_command

TABLES = load_tables()
EIGHT = Given(gpu="h200", count=8)
MTP = "--speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1"
V3 = f"sglang serve deepseek-ai/DeepSeek-V3-0324 --tp 8 --max-running-requests 64 --context-length 32768 {MTP}"


def rules(text: str, given: Given = EIGHT) -> dict[str, Verdict]:
    (found,) = check_commands(read_commands(text), given, TABLES)
    return {finding.rule: finding.verdict for finding in found.findings}


def test_a_good_launch_is_not_refused_and_its_findings_speak_of_flags():
    (found,) = check_commands(read_commands(V3), EIGHT, TABLES)
    assert found.may_launch
    assert (found.name, found.machine) == ("deepseek-ai/DeepSeek-V3-0324", "8 H200")
    assert all(finding.where.startswith(("--", "pins.")) for finding in found.findings)


@pytest.mark.parametrize(
    ("text", "rule", "verdict"),
    [
        pytest.param(f"{V3} --speculative-num-draft-tokens 16", "shape.chain-width", Verdict.CORRECT, id="of-the-engine"),
        pytest.param(f"{V3} --tp_size 8", "command.unknown-flag", Verdict.REFUSE, id="of-the-parser"),
        pytest.param(V3.replace("deepseek-ai/DeepSeek-V3-0324", "a/b"), "facts.model-unknown", Verdict.WARN, id="unknown-model"),
        pytest.param(V3.replace("deepseek-ai/", "/models/"), "facts.by-name", Verdict.NOTE, id="folder-of-another-machine"),
    ],
)  # fmt: skip
def test_what_is_found_by_whom(text, rule, verdict):
    assert rules(text)[rule] is verdict
    assert rule not in rules(V3)


def test_worst_comes_first():
    (found,) = check_commands(read_commands(f"{V3} --tp_size 8 --speculative-num-draft-tokens 16"), EIGHT, TABLES)
    order = [list(Verdict).index(finding.verdict) for finding in found.findings]
    assert order == sorted(order)


@pytest.mark.parametrize(
    ("text", "given", "expected"),
    [
        pytest.param("sglang serve a/b --tp 8", Given(gpu="h200", count=4), ("h200", 4, 1), id="the-options-first"),
        pytest.param("CUDA_VISIBLE_DEVICES=0,1 sglang serve a/b", Given(gpu="H200"), ("h200", 2, 1), id="what-the-command-sees"),
        pytest.param("sglang serve a/b --tp 16 --nnodes 2", Given(gpu="h200"), ("h200", 8, 2), id="what-the-layout-takes"),
        pytest.param("sglang serve a/b --tp 4 --dp 2", Given(gpu="h200"), ("h200", 8, 1), id="copies"),
        pytest.param("sglang serve a/b --tp 4 --dp 2 --enable-dp-attention", Given(gpu="h200"), ("h200", 4, 1), id="near-miss-attention-dp"),
    ],
)  # fmt: skip
def test_the_machines_of_a_command(text, given, expected):
    machines = machines_for(read_command(text), given, TABLES)
    assert (machines.gpu, machines.count, machines.nodes) == expected


def test_somebody_must_say_which_gpu():
    with pytest.raises(RecipeError, match=r"check\.no-gpu"):
        check_commands(read_commands(V3), Given(count=8), TABLES)


POD = f"""\
kind: LeaderWorkerSet
metadata: {{name: v3}}
spec:
  replicas: 1
  leaderWorkerTemplate:
    size: 2
    workerTemplate:
      spec:
        nodeSelector: {{nvidia.com/gpu.product: NVIDIA-H200}}
        containers:
        - name: engine
          command: [sglang, serve, deepseek-ai/DeepSeek-V3-0324, --tp, '16', --nnodes, '2', --cuda-graph-max-bs, '64']
          args: [{", ".join(MTP.split())}]
          resources: {{limits: {{nvidia.com/gpu: 8}}}}
"""


def test_a_pod_says_its_gpu_and_its_nodes_and_findings_say_their_line():
    (found,) = check_pods(read_manifest(POD.encode(), "x.yaml"), Given(), TABLES)
    assert (found.name, found.machine) == ("LeaderWorkerSet v3, worker", "2 nodes of 8 H200")
    assert all(finding.where.startswith("x.yaml:") for finding in found.findings)
    by_rule = {finding.rule: finding for finding in found.findings}
    assert by_rule["command.renamed"].where == "x.yaml:12: --cuda-graph-max-bs"
    assert "cluster.shared-memory" in by_rule


TWO_TEMPLATES = f"""\
kind: LeaderWorkerSet
metadata: {{name: v3}}
spec:
  leaderWorkerTemplate:
    size: 2
    leaderTemplate:
      spec:
        containers:
        - name: engine
          command: [sglang, serve, deepseek-ai/DeepSeek-V3-0324, --tp, '16', --nnodes, $(LWS_GROUP_SIZE)]
          args: [{", ".join(MTP.split())}]
          resources: {{limits: {{nvidia.com/gpu: 8}}}}
    workerTemplate:
      spec:
        containers:
        - name: engine
          command: [sglang, serve, deepseek-ai/DeepSeek-V3-0324, --tp, '16', --nnodes, $(LWS_GROUP_SIZE), --node-rank, '1']
          args: [{", ".join(MTP.split())}]
          resources: {{limits: {{nvidia.com/gpu: 8}}}}
"""


def test_a_launch_that_leaves_its_nodes_to_the_group_spreads_over_the_group():
    leader, worker = check_pods(read_manifest(TWO_TEMPLATES.encode(), "x.yaml"), EIGHT, TABLES)
    for found in (leader, worker):
        assert found.machine == "2 nodes of 8 H200"
        told = {finding.rule for finding in found.findings}
        assert not told & {
            "layout.node-count",
            "layout.count",
            "cluster.gpus",
            "cluster.nodes",
            "cluster.group-differs",
        }


def test_a_worker_that_launches_otherwise_than_its_leader_is_refused():
    head, _, tail = TWO_TEMPLATES.rpartition("--speculative-num-steps, 3")
    text = f"{head}--speculative-num-steps, 5{tail}"
    leader, worker = check_pods(read_manifest(text.encode(), "x.yaml"), EIGHT, TABLES)
    assert "cluster.group-differs" in {finding.rule for finding in worker.findings}
    assert "cluster.group-differs" not in {finding.rule for finding in leader.findings}


@pytest.mark.parametrize("said", ["h200", "H200", "NVIDIA-H200", "NVIDIA H200"])
def test_a_gpu_is_known_by_its_word_and_by_its_product(said):
    assert machines_for(read_command(V3), Given(gpu=said), TABLES).gpu == "h200"


@pytest.mark.parametrize(
    ("said", "meant"), [("h2000", "Did you mean 'h200'"), ("a100", "Name one of"), ("x", "Name one of")]
)
def test_a_gpu_that_nobody_knows_is_not_planned_for(said, meant):
    with pytest.raises(RecipeError, match=r"check\.unknown-gpu") as raised:
        machines_for(read_command(V3), Given(gpu=said), TABLES)
    assert meant in str(raised.value)


def test_what_could_not_be_read_is_not_reckoned_with():
    told = rules("sglang serve deepseek-ai/DeepSeek-V3-0324 --tp eight")
    assert told["command.value"] is Verdict.REFUSE
    assert not [rule for rule in told if rule.startswith(("capacity.", "layout."))]


def test_a_prefill_and_a_decode_launch_are_held_against_each_other():
    both = [f"{V3} --disaggregation-mode prefill", f"{V3} --disaggregation-mode decode --kv-cache-dtype fp8_e4m3"]
    first, second = check_commands([read_command(text) for text in both], EIGHT, TABLES)
    alone = check_commands([read_command(both[1])], EIGHT, TABLES)[0]
    assert {finding.rule for finding in second.findings} - {finding.rule for finding in alone.findings}
    assert not {finding.rule for finding in first.findings} - set(rules(both[0]))


@pytest.mark.parametrize(
    ("model", "cap", "steps"),
    [("deepseek-ai/DeepSeek-V3-0324", 48, (3, 1, 4)), ("deepseek-ai/DeepSeek-V4-Flash", 256, None), ("a/b", 48, None)],
)
def test_defaults_are_the_engines_own(model, cap, steps):
    defaults = defaults_for(read_command(f"sglang serve {model}"), TABLES)
    assert defaults.max_running_requests == cap
    assert steps in {None, defaults.steps_topk_width}
    assert (defaults.context_tokens is None) is (model == "a/b")


def test_a_recipe_is_begun_that_passes_its_check():
    begun = begin(read_command(V3), None, EIGHT, TABLES)
    assert begun.may_launch
    recipe = parse_recipe(begun.text.encode(), "x.yaml").recipe
    assert (recipe.draft.num_steps, recipe.limits.context_tokens, recipe.hardware.count) == (3, 32_768, 8)


def test_what_the_engine_would_refuse_begins_nothing():
    begun = begin(read_command(f"{V3} --tp_size 8"), None, EIGHT, TABLES)
    assert begun.text is None
    assert [finding.rule for finding in begun.findings] == ["command.unknown-flag"]


def test_an_old_name_begins_one():
    assert begin(read_command(f"{V3} --cuda-graph-max-bs 64"), None, EIGHT, TABLES).text is not None


def test_a_file_that_is_there_is_kept(tmp_path):
    path = tmp_path / "x.yaml"
    write_new(path, "a")
    with pytest.raises(RecipeError, match=r"init\.exists"):
        write_new(path, "b")
    assert path.read_text() == "a"


def test_a_file_is_there_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "x.yaml"

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as world:
        world.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            write_new(path, "a")
    assert list(tmp_path.iterdir()) == []
    write_new(path, "a")
    assert [file.name for file in tmp_path.iterdir()] == ["x.yaml"]
    assert path.stat().st_mode & 0o600 == 0o600


def test_findings_of_a_launch_are_told_once():
    (found,) = check_commands(read_commands(V3), EIGHT, TABLES)
    assert len(set(found.findings)) == len(found.findings)
    assert replace(found, findings=()).may_launch
