import ast
import importlib.util
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_toolkit.planning.captured import (
    alignment,
    chunk_tokens,
    has_decode_graphs,
    kept_sizes,
    ladder_with,
    offered_sizes,
    prefill_sizes,
)
from spec_toolkit.planning.rules.graphs import climb, round_up
from tests.planning.launches import launch

EAGLE = {"speculative_algorithm": "EAGLE"}
SIZES = st.lists(st.integers(1, 600), min_size=1, max_size=20)


@given(SIZES, st.integers(1, 600), st.sampled_from([1, 2, 4, 8]), st.integers(1, 8))
def test_the_engine_keeps_the_same_sizes(sizes: list[int], cap: int, multiple: int, width: int) -> None:
    try:
        theirs = kept_by_the_engine(sizes, cap, multiple, width)
    except AssertionError:  # it keeps none and ends
        theirs = []
    assert list(kept_sizes(sizes, cap=cap, multiple=multiple, width=width)) == theirs


def kept_by_the_engine(sizes: list[int], cap: int, multiple: int, width: int) -> list[int]:
    """Its own function over a runner that holds so many requests."""
    graph = SimpleNamespace(cuda_graph_config=SimpleNamespace(decode=SimpleNamespace(bs=sizes)))
    execution = SimpleNamespace(graph=graph, overlap=SimpleNamespace(enable_two_batch_overlap=False))
    names: dict[str, Any] = {
        "get_exec": lambda: execution,
        "DllmConfig": SimpleNamespace(from_server_args=lambda _: None),
        "get_cuda_graph_batch_size_alignment": lambda **_: multiple,
        "ceil_align": round_up,
        "get_flags": lambda: SimpleNamespace(capture=SimpleNamespace(enable_torch_compile=False)),
    }
    take("model_executor/runner/base_cuda_graph_runner.py", ["get_batch_sizes_to_capture"], names)
    runner = SimpleNamespace(req_to_token_pool=SimpleNamespace(size=cap), server_args=None)
    kept, _ = names["get_batch_sizes_to_capture"](runner, width)
    return list(kept)


@given(
    dp=st.sampled_from([1, 2, 4, 8]),
    cp=st.sampled_from([1, 2]),
    exchange=st.sampled_from(["none", "deepep", "mooncake"]),
    halves=st.booleans(),
)
def test_the_engine_wants_the_same_multiple(dp: int, cp: int, exchange: str, halves: bool) -> None:
    parallel = SimpleNamespace(
        attn_dp_enabled=dp > 1,
        num_dp_ranks=dp,
        tp_size=8,
        attn_tp_size=max(1, 8 // dp // cp),
        attn_cp_size=cp,
        moe_dense_tp_size=None,
        disable_attn_tp_gather=False,
    )
    overlap, moe = SimpleNamespace(enable_two_batch_overlap=halves), SimpleNamespace(elastic_ep_backend=None)
    names: dict[str, Any] = {
        "get_parallel": lambda: parallel,
        "get_exec": lambda: SimpleNamespace(overlap=overlap, moe=moe),
        "is_hip": lambda: False,
        "MoeA2ABackend": str,
        "get_moe_a2a_backend": lambda: SimpleNamespace(is_none=lambda: exchange == "none"),
    }
    take("utils/common.py", ["require_mlp_tp_gather", "require_attn_tp_gather", "require_gathered_buffer"], names)
    take("utils/common.py", ["get_cuda_graph_batch_size_alignment"], names)
    asked = {"attn_dp_size": dp, "attn_cp_size": cp, "moe_a2a_backend": exchange, "enable_two_batch_overlap": halves}
    assert alignment(launch(tp_size=8, **asked)) == names["get_cuda_graph_batch_size_alignment"]()


def take(file: str, wanted: list[str], names: dict[str, Any]) -> None:
    """Functions of the engine, read and not imported, with `names` for what they call."""
    found = importlib.util.find_spec("sglang")
    if found is None or found.origin is None:
        pytest.skip("the engine is not installed")
    path = Path(found.origin).parent / "srt" / file
    functions = [n for n in parsed(path).body if isinstance(n, ast.FunctionDef) and n.name in wanted]
    assert len(functions) == len(wanted)
    exec(compile(ast.Module(functions, []), str(path), "exec"), names)  # noqa: S102 - functions of the engine


@cache
def parsed(path: Path) -> ast.Module:
    return _Bare().visit(ast.parse(path.read_text("utf-8")))


class _Bare(ast.NodeTransformer):
    """Without types and imports."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        for argument in (*node.args.args, *node.args.kwonlyargs):
            argument.annotation = None
        node.body = [s for s in node.body if not isinstance(s, ast.ImportFrom)]
        return node


@given(st.integers(1, 2048), st.sampled_from([1, 2, 4, 8, 16]), st.integers(1, 8), st.booleans())
def test_a_list_that_ends_with_the_cap_rounded_up_reaches_it_at_every_width(
    cap: int, multiple: int, width: int, speculates: bool
) -> None:
    engine = launch().engine
    ladder = engine.decode_graphs_speculating if speculates else engine.decode_graphs_autoregressive
    end = round_up(cap, multiple)
    assert kept_sizes(climb(ladder.v, end), cap=cap, multiple=multiple, width=width)[-1] == end >= cap


def test_a_list_that_ends_with_the_cap_itself_may_not_reach_it() -> None:
    assert kept_sizes((1, 8, 32, 33), cap=33, multiple=4, width=2)[-1] == 32
    assert kept_sizes((1, 8, 32, 33), cap=33, multiple=4, width=4)[-1] == 33


@pytest.mark.parametrize(
    ("arguments", "multiple"),
    [
        pytest.param({"tp_size": 8}, 1, id="tp-gathers-nothing"),
        pytest.param({"tp_size": 8, "dp_size": 8, "enable_dp_attention": True}, 1, id="a-rank-of-its-own-each"),
        pytest.param({"tp_size": 8, "dp_size": 2, "enable_dp_attention": True}, 4, id="groups-of-four"),
        pytest.param({"tp_size": 8, "attn_dp_size": 2}, 4, id="the-new-spelling"),
        pytest.param({"tp_size": 8, "dp_size": 2}, 1, id="near-miss-copies-gather-nothing"),
        pytest.param({"tp_size": 8, "moe_a2a_backend": "deepep"}, 8, id="an-all-to-all-scatters"),
        pytest.param({"tp_size": 8, "moe_a2a_backend": "none"}, 1, id="near-miss-none"),
        pytest.param(
            {"tp_size": 8, "dp_size": 8, "enable_dp_attention": True, "enable_two_batch_overlap": True}, 2, id="halves"
        ),
        pytest.param({"tp_size": 8, "attn_cp_size": 8}, 8, id="ranks-that-share-a-context"),
        pytest.param({"tp_size": 8, "attn_cp_size": 2, "moe_a2a_backend": "deepep"}, 4, id="both-of-them"),
    ],
)
def test_ranks_that_share_a_request_want_batches_that_divide(arguments: dict[str, Any], multiple: int) -> None:
    assert alignment(launch(**arguments)) == multiple


@pytest.mark.parametrize(
    ("arguments", "has"),
    [
        pytest.param({}, True, id="by-itself"),
        pytest.param({"disable_cuda_graph": True}, False, id="switched-off"),
        pytest.param(
            {"disable_cuda_graph": True, "cuda_graph_backend_decode": "full"}, True, id="the-phase-has-the-last-word"
        ),
        pytest.param({"cuda_graph_backend_decode": "disabled"}, False, id="for-decode"),
        pytest.param({"disaggregation_mode": "prefill"}, False, id="who-only-prefills"),
        pytest.param({"disaggregation_mode": "decode"}, True, id="near-miss-who-only-decodes"),
        pytest.param({"device": "cpu"}, False, id="cpu"),
    ],
)
def test_who_decodes_on_a_gpu_has_graphs(arguments: dict[str, Any], has: bool) -> None:
    assert has_decode_graphs(launch(**arguments)) is has


@pytest.mark.parametrize(
    ("arguments", "last"),
    [
        pytest.param({"tp_size": 8, **EAGLE}, 512, id="as-far-as-memory-says"),
        pytest.param({"tp_size": 2, **EAGLE}, 256, id="less-with-few-ranks"),
        pytest.param({"tp_size": 8, "max_running_requests": 100, **EAGLE}, 100, id="no-further-than-the-cap"),
        pytest.param({"cuda_graph_max_bs_decode": 100, **EAGLE}, 100, id="C007-the-largest-itself"),
        pytest.param({"cuda_graph_bs_decode": (8, 1, 16), "max_running_requests": 28}, 16, id="as-written"),
    ],
)
def test_graphs_go_as_far_as_the_launch_or_the_engine_says(arguments: dict[str, Any], last: int) -> None:
    offered = offered_sizes(launch(**arguments))
    assert offered is not None
    assert offered[-1] == last


def test_c007_the_list_up_to_100_has_32_sizes() -> None:
    offered = offered_sizes(launch(cuda_graph_max_bs_decode=100, **EAGLE))
    assert offered == (*range(1, 9), *range(10, 33, 2), *range(40, 65, 4), 72, 80, 88, 96, 100)
    assert len(offered) == 32


def test_on_a_gpu_nobody_named_the_end_of_the_list_is_not_known() -> None:
    assert offered_sizes(launch(gpu=None, **EAGLE)) is None


# C003
def test_a_list_is_made_longer_and_not_replaced() -> None:
    engine = launch().engine
    written = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)
    assert ladder_with(written, engine.decode_graphs_autoregressive.v, 28) == (*written, 24, 28)
    assert ladder_with(written, engine.decode_graphs_speculating.v, 28) == (*written, 18, 20, 22, 24, 26, 28)
    assert ladder_with((4, 64), engine.decode_graphs_speculating.v, 8) == (4, 5, 6, 7, 8)


@pytest.mark.parametrize(
    ("architecture", "arguments", "last"),
    [
        pytest.param("DeepseekV3ForCausalLM", {"tp_size": 8}, 8192, id="the-chunk"),
        pytest.param("DeepseekV3ForCausalLM", {"chunked_prefill_size": 16_384}, 8192, id="mla-goes-no-further"),
        pytest.param("DeepseekV3ForCausalLM", {"chunked_prefill_size": 2048}, 2048, id="a-small-chunk"),
        pytest.param("DeepseekV3ForCausalLM", {"max_total_tokens": 1000}, 960, id="no-further-than-the-pool"),
        pytest.param(
            "DeepseekV3ForCausalLM", {"tp_size": 8, "dp_size": 8, "enable_dp_attention": True}, 1024, id="of-a-rank"
        ),
        pytest.param("DeepseekV3ForCausalLM", {"cuda_graph_backend_prefill": "disabled"}, None, id="switched-off"),
        pytest.param("DeepseekV3ForCausalLM", {"disaggregation_mode": "decode"}, None, id="who-only-decodes"),
        pytest.param("DeepseekV3ForCausalLM", {"pp_size": 2}, None, id="a-pipeline"),
        pytest.param("DeepseekV3ForCausalLM", {"enable_two_batch_overlap": True}, None, id="two-batches-at-once"),
        pytest.param("DeepseekV3ForCausalLM", {"moe_a2a_backend": "mooncake"}, None, id="an-exchange-not-tried"),
        pytest.param("DeepseekV3ForCausalLM", {"moe_a2a_backend": "deepep"}, 2048, id="near-miss-one-that-is"),
        pytest.param("DeepseekV4ForCausalLM", {"tp_size": 8}, None, id="v4-has-no-room"),
        pytest.param("DeepseekV4ForCausalLM", {"cuda_graph_backend_prefill": "breakable"}, 8192, id="unless-asked"),
        pytest.param("Gemma4ForConditionalGeneration", {}, None, id="images-and-sound"),
        pytest.param("Gemma4ForCausalLM", {}, 8192, id="near-miss-text-alone"),
    ],
)
def test_prefill_graphs_go_as_far_as_a_chunk(architecture: str, arguments: dict[str, Any], last: int | None) -> None:
    sizes = prefill_sizes(launch(architecture=architecture, **arguments))
    assert sizes is not None
    assert (sizes[-1] if sizes else None) == last


def test_prefill_graphs_of_a_model_or_gpu_nobody_knows_are_not_known() -> None:
    assert prefill_sizes(launch(gpu=None)) is None
    assert prefill_sizes(launch(architecture="Other")) is None


def test_a_chunk_is_shared_by_the_attention_ranks() -> None:
    assert chunk_tokens(launch(tp_size=8, dp_size=4, enable_dp_attention=True)) == 2048
    assert chunk_tokens(launch(chunked_prefill_size=-1)) is None
