"""What the tables say of the pinned engine, against its source; the engine is read, not imported."""

import ast
import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spec_toolkit.engine import ports
from spec_toolkit.facts.known import load_tables
from spec_toolkit.planning.rules.graphs import below, climb

FOUND = importlib.util.find_spec("sglang")
assert FOUND is not None  # `make setup` installs it
assert FOUND.origin is not None
ENGINE = Path(FOUND.origin).parent / "srt"
FACTS = load_tables().engine


def graph_list_of_the_engine(algorithm: str | None, cap: int) -> list[int]:
    source = ENGINE / "arg_groups/cuda_graph_hook.py"
    wanted = "generate_decode_cuda_graph_batch_sizes"
    (function,) = (
        n for n in ast.parse(source.read_text("utf-8")).body if isinstance(n, ast.FunctionDef) and n.name == wanted
    )
    settings = SimpleNamespace(disable_cuda_graph_padding=False, speculative_algorithm=algorithm)
    names: dict[str, Any] = {"Any": Any, "resolving_view": lambda _: settings}
    exec(compile(ast.Module([function], []), str(source), "exec"), names)  # noqa: S102 - one function of the engine
    return list(names[wanted](None, cap))


@pytest.mark.parametrize(
    "cap",
    [
        1,
        2,
        7,
        8,
        9,
        10,
        16,
        32,
        33,
        39,
        40,
        48,
        50,
        64,
        65,
        72,
        96,
        128,
        255,
        256,
        257,
        271,
        272,
        300,
        511,
        512,
        600,
        4096,
    ],
)
def test_the_ladders_are_the_engines_own(cap: int) -> None:
    assert list(climb(FACTS.decode_graphs_speculating.v, cap)) == graph_list_of_the_engine("EAGLE", cap)
    assert list(climb(FACTS.decode_graphs_autoregressive.v, cap)) == graph_list_of_the_engine(None, cap)


def test_the_engine_admits_that_many_requests_by_itself() -> None:
    tree = ast.parse((ENGINE / "arg_groups/speculative_hook.py").read_text("utf-8"))
    values = [
        k.value.value
        for k in ast.walk(tree)
        if isinstance(k, ast.keyword) and k.arg == "max_running_requests" and isinstance(k.value, ast.Constant)
    ]
    assert values
    assert set(values) == {FACTS.default_max_running_requests.v}


def flags_of_the_engine() -> dict[str, list[str]]:
    """Aliases by flag; the engine makes one flag of each annotated field."""
    flags: dict[str, list[str]] = {}
    for path in (ENGINE / "arg_groups/fields").glob("*.py"):
        for field in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
                continue
            keywords = [k for k in ast.walk(field.annotation) if isinstance(k, ast.keyword) and k.arg == "aliases"]
            aliases = [alias for k in keywords for alias in ast.literal_eval(k.value)]
            flags["--" + field.target.id.replace("_", "-")] = aliases
    return flags


def test_every_refused_flag_is_one_of_the_engines_and_refused_by_each_of_its_names() -> None:
    flags = flags_of_the_engine()
    refused = [known.flag for known in FACTS.refused_flags]
    in_parser_only = {"--config"}
    aliases = {alias for names in flags.values() for alias in names}
    assert {flag for flag in refused if not flag.endswith("*")} - in_parser_only <= flags.keys() | aliases
    assert any(flag.startswith("--speculative-") for flag in flags)
    for flag in refused:
        for alias in flags.get(flag, []):
            assert any(known.startswith(alias) for known in refused), f"{alias} is another name of {flag}"


def test_the_ports_an_engine_counts_off_from_its_http_port() -> None:
    tree = ast.parse((ENGINE / "server_args.py").read_text("utf-8"))
    (distance,) = (
        n.value.value
        for n in tree.body
        if isinstance(n, ast.Assign)
        and ast.unparse(n.targets[0]) == "ZMQ_TCP_PORT_DELTA"
        and isinstance(n.value, ast.Constant)
    )
    (derived,) = (
        n.value.body.value
        for n in ast.walk(tree)
        if isinstance(n, ast.Assign)
        and ast.unparse(n.targets[0]) == "NUM_DERIVED_PORTS"
        and isinstance(n.value, ast.IfExp)
        and isinstance(n.value.body, ast.Constant)
    )
    assert (distance, derived) == (ports.DISTANCE, ports.DERIVED)


def function_of_the_engine(file: str, name: str) -> ast.FunctionDef:
    nodes = ast.walk(ast.parse((ENGINE / file).read_text("utf-8")))
    (function,) = (node for node in nodes if isinstance(node, ast.FunctionDef) and node.name == name)
    return function


@pytest.mark.parametrize("most", [4, 31, 48, 256, 1000, 1024, 2048, 4096, 8192, 16_384], ids=str)
def test_the_prefill_ladder_is_the_engines_own(most: int) -> None:
    wanted = "generate_prefill_cuda_graph_batch_sizes"
    names: dict[str, Any] = {}
    function = function_of_the_engine("arg_groups/cuda_graph_hook.py", wanted)
    exec(compile(ast.Module([function], []), wanted, "exec"), names)  # noqa: S102 - one function of the engine
    assert list(below(FACTS.prefill_graphs.v, most)) == names[wanted](most)


def test_the_engine_admits_so_many_requests_of_these_architectures() -> None:
    function = function_of_the_engine("arg_groups/deepseek_v4_hook.py", "apply_deepseek_v4_defaults")
    (set_to,) = [k.value for k in ast.walk(function) if isinstance(k, ast.keyword) and k.arg == "max_running_requests"]
    assert isinstance(set_to, ast.Constant)
    assert FACTS.max_running_requests_of.v == {"DeepseekV4ForCausalLM": set_to.value}


def test_the_engine_takes_these_sizes_by_a_gpus_memory() -> None:
    """A chain of conditions on the memory; in each the chunk, and the largest graph with and without much parallelism."""
    function = function_of_the_engine("arg_groups/memory_hook.py", "handle_gpu_memory_settings")
    (chain,) = [n for n in ast.walk(function) if isinstance(n, ast.If) and ast.unparse(n.test) == "gpu_mem is not None"]
    found: list[tuple[int | None, int, int, int]] = []
    branch, below_mib = chain.body, None
    while branch:
        (first,) = branch if isinstance(branch[0], ast.If) and "gpu_mem <" in ast.unparse(branch[0].test) else (None,)
        below_mib = eval(ast.unparse(first.test.comparators[0])) if first else None  # noqa: S307 - "20 * 1024"
        body = first.body if first else branch
        chunks = [
            k.value.value
            for s in body
            for k in ast.walk(s)
            if isinstance(k, ast.keyword) and k.arg == "chunked_prefill_size"
        ]
        graphs = [a.value.value for s in body for a in ast.walk(s) if isinstance(a, ast.Assign)]
        found.append((below_mib, chunks[0], graphs[0], graphs[-1]))
        branch = first.orelse if first else []
    rows = FACTS.by_memory.v
    assert [(r.below_mib, r.chunk_tokens, r.largest_graph_few, r.largest_graph_many) for r in rows] == found


@pytest.mark.parametrize("backend", FACTS.dispatch.v)
def test_an_all_to_all_takes_so_many_tokens_of_one_rank(backend: str) -> None:
    limit = FACTS.dispatch.v[backend]
    declared = (ENGINE / "environ.py").read_text("utf-8")
    dispatcher = (ENGINE / f"layers/moe/token_dispatcher/{backend}.py").read_text("utf-8")
    used = f'"{limit.variable}", {limit.default}' in dispatcher  # read where it is used
    assert used or (f"{limit.variable} = EnvInt({limit.default})" in declared and limit.variable in dispatcher)
    assert ("assert self.num_max_dispatch_tokens_per_rank <= 1024" in dispatcher) is (limit.most == 1024)
