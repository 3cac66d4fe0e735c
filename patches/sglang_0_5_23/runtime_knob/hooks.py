"""Where a command enters the engine, where its effect is read, and where the engine asks for the steps of a round or takes none."""

import logging
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed
from sglang.srt.arg_groups.overrides import resolved_view, resolving_view
from sglang.srt.environ import envs
from sglang.srt.managers.io_struct import SetInternalStateReqOutput
from sglang.srt.runtime_context import get_parallel, get_spec

from spec_toolkit.plugin.acceptance import changes_acceptance
from spec_toolkit.plugin.ceiling import Ceiling
from spec_toolkit.plugin.faults import FAULTS
from spec_toolkit.plugin.knob import KEYS, KNOB
from spec_toolkit.terms import RANKS_KEY, KnobAnswer

_LOG = logging.getLogger("spec_toolkit")
_THRESHOLDS = ("speculative_accept_threshold_single", "speculative_accept_threshold_acc")


def set_internal_state(original: Callable[..., Any], controller: Any, request: Any) -> Any:
    """`SchedulerInternalStateController.set_internal_state`: every rank runs it at the same point, before a batch is built."""
    requested = request.server_args
    if KEYS & requested.keys():
        answer = KNOB.take(requested)
        if answer is not KnobAnswer.TAKEN:
            _LOG.warning("Command %s refused: %s", requested, answer.name.lower())
        return SetInternalStateReqOutput(updated=answer is KnobAnswer.TAKEN)
    in_force = {name: getattr(get_spec(), name) for name in _THRESHOLDS}
    if changes_acceptance(requested, in_force):
        _LOG.warning("Accept thresholds stay %s: a running engine's rule of acceptance is not changed", in_force)
        return SetInternalStateReqOutput(updated=False)
    return original(controller, request)


def get_internal_state(original: Callable[..., Any], controller: Any, request: Any) -> Any:
    """`SchedulerInternalStateController.get_internal_state`, with a row of every rank.

    Only the first rank of a group answers, but all of them run this at the same point, so they can tell it. One that hangs makes the
    others wait, as any collective would: whoever reads sets a deadline.
    """
    output = original(controller, request)
    if KNOB.setting is not None:  # on every rank or on none: it depends on the arguments alone
        output.internal_state[RANKS_KEY] = _rows()
    return output


def hand_over_ceiling(original: Callable[..., None], controller: Any, worker: Any, policy: Any) -> None:
    """`AdaptiveController.__init__`, with our policy in the place of the engine's, over the same candidates."""
    parallel = get_parallel()
    if parallel.attn_dp_enabled and parallel.enable_dp_attention_local_control_broadcast:
        raise RuntimeError(
            "enable_dp_attention_local_control_broadcast: each attention-DP group takes commands in a round of its own; groups that "
            "draft another number of tokens in one round do not meet in their collectives. Start without the Rust server, elastic EP "
            "and DWDP, or without --speculative-adaptive. [knob.local-broadcast]"
        )
    KNOB.arm(policy.candidate_steps, worker.speculative_num_steps)
    original(controller, worker, Ceiling(KNOB))


def propose_nothing(original: Callable[..., Any], worker: Any, batch: Any) -> Any:
    """`EAGLEWorkerV2._build_trivial_verify_input`, with what the verify asks for under rejection: a proposal of the drafts.

    The engine has none for a round without drafts, and ends over it. No kernel reads this one: behind the root every token comes from
    the target, the law of any rule of acceptance. Strides of 0: it takes no memory.
    """
    made = original(worker, batch)
    if get_spec().speculative_use_rejection_sampling and not batch.forward_mode.is_idle():
        nothing = torch.zeros(1, device=worker.device)
        made.draft_probs = nothing.expand(len(batch.seq_lens), 1, worker.target_worker.model_config.vocab_size)
    return made


def unsupported_reason(original: Callable[[Any], str | None], arguments: Any) -> str | None:
    """`adaptive_unsupported_reason`, less attention DP: the engine's ranks would choose apart, ours take one width from the knob.

    The engine stops at its first reason. What it would have said after attention DP is asked here, in its words' place.
    """
    reason = original(arguments)
    if reason is None or not reason.startswith("attention DP is not supported"):
        return reason
    given = resolving_view(arguments)
    behind = {
        "enable_multi_layer_eagle": resolved_view(arguments).enable_multi_layer_eagle,
        "enable_two_batch_overlap": given.enable_two_batch_overlap,
        "enable_pdmux": given.enable_pdmux,
        # Its rounds draft without asking for their steps first, and were never run at zero.
        "SGLANG_ENABLE_DP_SPEC_PREFILL_COORDINATION": envs.SGLANG_ENABLE_DP_SPEC_PREFILL_COORDINATION.get(),
    }
    found = [name for name, is_on in behind.items() if is_on]
    return f"{found[0]} is not supported with adaptive speculation" if found else None


def _rows() -> list[dict[str, object]]:
    """One row of each rank of the tensor-parallel group, in order; under attention DP it holds all of the engine's ranks."""
    parallel = get_parallel()
    group = parallel.tp_group
    dp = parallel.attn_dp_rank if parallel.attn_dp_enabled else parallel.dp_rank or 0
    mine = {**KNOB.row(dp=dp, rank=group.rank_in_group), **FAULTS.row()}
    if group.world_size == 1:
        return [mine]
    rows: list[dict[str, object]] = [{} for _ in range(group.world_size)]
    torch.distributed.all_gather_object(rows, mine, group=group.cpu_group)
    return rows
