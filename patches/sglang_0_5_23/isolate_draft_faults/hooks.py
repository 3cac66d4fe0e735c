"""Where the draft can fail, where its failing is voted on, and what the engine goes on with instead of drafts."""

import logging
import os
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from sglang.srt.runtime_context import get_parallel, get_spec
from sglang.srt.speculative.eagle_info import EagleDraftInput
from sglang.srt.speculative.eagle_worker_common import build_eagle_verify_input

from spec_toolkit.plugin.draft_kv import DraftKv
from spec_toolkit.plugin.faults import FAULTS, AfterFault, after_fault, survive
from spec_toolkit.plugin.health import Health, Voters
from spec_toolkit.plugin.knob import KNOB
from spec_toolkit.terms import DraftPart

_LOG = logging.getLogger("spec_toolkit")


class _Engine:
    """The worker of this process, and what was installed around it."""

    worker: Any  # EAGLEWorkerV2
    health: Health
    kv: DraftKv
    after: AfterFault


def install(original: Callable[..., None], worker: Any, *args: Any, **kwargs: Any) -> None:
    """`EAGLEWorkerV2.__init__`: before any graph is captured, since graphs look at values too."""
    original(worker, *args, **kwargs)
    parallel = get_parallel()
    if worker.topk != 1 or parallel.pp_size != 1:
        _LOG.warning("Draft faults are not isolated for trees of drafts and pipeline stages: one ends this engine")
        return
    after = after_fault(
        parallel.tp_group.world_size, os.environ, prefills_apart=worker.enable_dp_spec_prefill_coordination
    )
    voters = _voters(parallel) if after is AfterFault.VOTE else None
    _Engine.worker, _Engine.after = worker, after
    _Engine.health, _Engine.kv = Health(worker.device, voters), DraftKv(worker.device)
    FAULTS.install(_Engine.health, _Engine.kv, after)


def settle(original: Callable[..., None], worker: Any, batch_size: int) -> None:
    """`EAGLEWorkerV2.activate_step_by_batch`: before each round, on ranks without requests too."""
    if FAULTS.installed:
        FAULTS.settle()
    original(worker, batch_size)


def vote(original: Callable[..., Any], worker: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
    """`EAGLEWorkerV2.verify`: the drafts that are verified are those that all ranks call sound."""
    if FAULTS.installed:
        _vote(batch.spec_info)
    return original(worker, batch, *args, **kwargs)


def draft(original: Callable[..., Any], worker: Any, batch: Any, **kwargs: Any) -> Any:
    """`EagleDraftWorker.draft`."""
    if not FAULTS.installed:
        return original(worker, batch, **kwargs)
    if FAULTS.holds:  # an engine that did not prepare zero steps
        return _worthless(worker, batch)
    run = partial(original, worker, batch, **kwargs)
    return survive(FAULTS, DraftPart.DRAFT, run, partial(_without_drafts, worker, batch))


def draft_forward(original: Callable[..., Any], worker: Any, forward_batch: Any) -> Any:
    """`EagleDraftWorker.draft_forward`: graphs are captured here, with no draft around it. What only warms up is nobody's draft."""
    if not (FAULTS.installed and torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()):
        return original(worker, forward_batch)
    with FAULTS.captured(DraftPart.DRAFT):
        return original(worker, forward_batch)


def draft_extend(original: Callable[..., None], worker: Any, batch: Any, result: Any, **kwargs: Any) -> None:
    """`EagleDraftWorker._draft_extend_for_decode`."""
    if not FAULTS.installed:
        original(worker, batch, result, **kwargs)
        return
    slots = batch.out_cache_loc
    run = partial(original, worker, batch, result, **kwargs)

    def check(_: None) -> None:
        FAULTS.check(result.next_draft_input.hidden_states)

    def otherwise() -> None:
        _stub(worker, batch, result.next_draft_input)
        _Engine.kv.lost(slots)

    _extended(DraftPart.DRAFT_EXTEND, run, otherwise, check, slots)


def prefill(
    original: Callable[..., Any],
    worker: Any,
    batch: Any,
    hidden_states: Any,
    next_token_ids: Any,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """`EagleDraftWorker._draft_extend_for_prefill`."""
    if not FAULTS.installed:
        return original(worker, batch, hidden_states, next_token_ids, *args, **kwargs)
    slots = batch.out_cache_loc

    def run() -> Any:
        _look_back(worker, batch)
        return original(worker, batch, hidden_states, next_token_ids, *args, **kwargs)

    def check(made: Any) -> None:
        FAULTS.check(made.hidden_states)

    def otherwise() -> Any:
        made = EagleDraftInput(bonus_tokens=next_token_ids, num_tokens_per_req=1, num_tokens_for_logprob_per_req=1)
        _stub(worker, batch, made)
        _Engine.kv.lost(slots)
        return made

    return _extended(DraftPart.PREFILL, run, otherwise, check, slots)


def check_values(original: Callable[..., None], values: Any, message: str = "") -> None:
    """`maybe_detect_nan`, which the draft calls on what it computed and which does nothing by default.

    While a part of the draft runs, or is captured in a graph, the values are put right and counted, never asserted.
    """
    if not (FAULTS.installed and FAULTS.check(values)):
        original(values, message)


def _look_back(worker: Any, batch: Any) -> None:
    """Count the requests that go on from a prefix without draft KV, out of the prefix cache or of an earlier chunk of their own."""
    allocator = worker.token_to_kv_pool_allocator
    _Engine.kv.resize(allocator.size + allocator.page_size)  # slots are counted from one page on
    if batch.forward_mode.is_idle():
        return
    table = worker.req_to_token_pool.req_to_token
    lengths = zip(batch.reqs, batch.prefix_lens, strict=True)
    _Engine.kv.count_prefixes(table[request.kv.req_pool_idx, :length] for request, length in lengths if length)


def _extended(
    part: DraftPart, run: Callable[[], Any], otherwise: Callable[[], Any], check: Callable[[Any], None], slots: Any
) -> Any:
    before = FAULTS.count(part)
    made = survive(FAULTS, part, run, otherwise, and_then=check)
    if FAULTS.count(part) == before:
        _Engine.kv.written(slots, _Engine.health.now)
    return made


def _voters(parallel: Any) -> Voters:
    """All ranks of the engine, those of the other attention-data-parallel ranks too: the width is one for all of them.

    The world's group, not the tensor-parallel one: no forward uses it, so a vote never meets a collective of the draft that another
    rank is still in. A first vote here makes its communicator before memory is measured.
    """
    group = parallel.world_group.device_group
    torch.distributed.all_reduce(torch.zeros(1, dtype=torch.int64, device=parallel.world_group.device), group=group)
    return Voters(
        group=group,
        batches=parallel.attn_dp_size if parallel.attn_dp_enabled else 1,
        batch=parallel.attn_dp_rank if parallel.attn_dp_enabled else 0,
    )


def _vote(verify_input: Any) -> None:
    """`draft_token`: int64 [batch * width], by request the bonus token and then its drafts."""
    width = verify_input.draft_token_num
    tokens = verify_input.draft_token.reshape(verify_input.draft_token.numel() // width, width)
    good = _Engine.health.vote(tokens[:, 1:], FAULTS.epoch)
    if width == 1:
        return
    verify_input.draft_token = torch.cat([tokens[:, :1], tokens[:, 1:] * good], dim=1).reshape(-1)
    if (
        probs := verify_input.draft_probs
    ) is not None:  # [batch, num_steps, vocabulary]: worthless drafts are sure of token 0
        probs.nan_to_num_(0.0).mul_(good)
        probs[..., 0].add_(1 - good)


def _without_drafts(worker: Any, batch: Any) -> Any:
    """A verify input for this round. Where one rank decides alone, of width 1, which is the cheapest there is."""
    engine = _Engine.worker
    if _Engine.after is AfterFault.FALL and engine.adaptive_controller is not None and 0 in KNOB.candidates:
        engine.adaptive_controller._activate(0)  # noqa: SLF001 - its public way asks for the steps of another round
        return engine._build_trivial_verify_input(batch)  # noqa: SLF001 - what the engine itself does at zero steps
    return _worthless(worker, batch)


def _worthless(worker: Any, batch: Any) -> Any:
    """A chain of the width in force whose drafts are token 0: shapes, graphs and collectives of a good round."""
    requests, steps = batch.seq_lens.shape[0], worker.speculative_num_steps
    drafts = torch.zeros((requests, steps), dtype=torch.int64, device=worker.device)
    return build_eagle_verify_input(
        batch,
        batch.spec_info,
        worker._topk1_parents_prealloc[:1].repeat(requests, 1),  # noqa: SLF001 - every row is the same chain
        worker._topk1_score_indices_prealloc[:1].repeat(requests, 1),  # noqa: SLF001 - as above
        drafts,
        _sure_of_token_0(worker, (requests, steps)),
        target_worker=worker.target_worker,
        topk=worker.topk,
        num_steps=steps,
        num_draft_tokens=worker.speculative_num_draft_tokens,
        tree_mask_mode=worker.tree_mask_mode,
        device=worker.device,
    )


def _stub(worker: Any, batch: Any, draft_input: Any) -> None:
    """What the next round drafts from, of the right shapes and without meaning."""
    _Engine.worker._stub_skipped_draft_extend(batch, SimpleNamespace(next_draft_input=draft_input))  # noqa: SLF001 - the engine's own
    requests = batch.seq_lens.shape[0]
    draft_input.draft_probs = _sure_of_token_0(worker, (requests,))
    if (
        worker.seed_dsa_topk_from_draft_extend
    ):  # else the last seeds of other requests stay, of positions this one may not have
        width = worker.dsa_seed_topk_width
        draft_input.dsa_topk_indices = torch.full((requests, width), -1, dtype=torch.int32, device=worker.device)


def _sure_of_token_0(worker: Any, shape: tuple[int, ...]) -> Any:
    """Float [*shape, vocabulary], or None where drafts are verified without their probabilities."""
    if not get_spec().speculative_use_rejection_sampling:
        return None
    probs = torch.zeros(
        (*shape, worker.target_worker.model_config.vocab_size), dtype=torch.float32, device=worker.device
    )
    probs[..., 0] = 1.0
    return probs
