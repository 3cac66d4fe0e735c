"""What the engine decided about a launch, picked out of its whole record, and where that is not what was asked. Pure."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import asdict

from spec_toolkit.engine.arguments import Arguments
from spec_toolkit.errors import Finding, note, refuse, warn
from spec_toolkit.launch.resolving.records import Answer, Decided, Outcome, Question, Stage

_CPU_ATTENTION = frozenset({"intel_amx", "torch_native"})
# Asked under one name, answered under several: a method of the engine's that stands for another, by what is asked.
_ALSO = {"NEXTN": frozenset({"EAGLE", "FROZEN_KV_MTP"})}
# Places of a machine and names of files: the engine keeps them, or what they become says nothing about the launch.
_NOT_COMPARED = frozenset(
    {"model_path", "tokenizer_path", "revision", "served_model_name", "host", "port", "api_key", "admin_api_key"}
    | {"speculative_draft_model_path", "speculative_draft_model_revision", "speculative_adaptive_config", "lora_paths"}
    | {"device", "chat_template", "trust_remote_code", "others", "disable_cuda_graph"}
)


def decided(answer: Answer) -> Decided | None:
    """None where the engine did not come to a decision."""
    if answer.outcome is not Outcome.RESOLVED:
        return None
    said: Mapping[str, Any] = answer.arguments
    decode, prefill = _graphs(said, "decode"), _graphs(said, "prefill")
    algorithm = said.get("speculative_algorithm")
    return Decided(
        prefill_attention=answer.prefill_attention,
        decode_attention=answer.decode_attention,
        draft_attention=said.get("speculative_draft_attention_backend"),
        verify_attention=said.get("speculative_attention_mode") if algorithm else None,
        sparse_prefill=said.get("dsa_prefill_backend"),
        sparse_decode=said.get("dsa_decode_backend"),
        kv_cache_dtype=said.get("kv_cache_dtype"),
        page_tokens=said.get("page_size"),
        memory_fraction=said.get("mem_fraction_static"),
        pool_tokens=said.get("max_total_tokens"),
        max_running_requests=said.get("max_running_requests"),
        decode_graph_backend=decode[0],
        decode_graphs=decode[1],
        prefill_graph_backend=prefill[0],
        prefill_graphs=prefill[1],
        chunked_prefill_tokens=said.get("chunked_prefill_size"),
        max_prefill_tokens=said.get("max_prefill_tokens"),
        moe_runner=said.get("moe_runner_backend"),
        moe_all_to_all=said.get("moe_a2a_backend"),
        draft_moe_runner=said.get("speculative_moe_runner_backend") if algorithm else None,
        draft_moe_all_to_all=said.get("speculative_moe_a2a_backend") if algorithm else None,
        dtype=answer.model.dtype if answer.model else None,
        quantization=answer.model.quantization if answer.model else None,
        sampling=said.get("sampling_backend"),
        overlap=not said.get("disable_overlap_schedule"),
        radix_cache=not said.get("disable_radix_cache"),
        conservativeness=said.get("schedule_conservativeness"),
        tp=said["tp_size"],
        attention_dp=said["attn_dp_size"],
        ep=said["ep_size"],
        pp=said["pp_size"],
        nodes=said["nnodes"],
        algorithm=algorithm,
        num_steps=said.get("speculative_num_steps"),
        topk=said.get("speculative_eagle_topk"),
        num_draft_tokens=said.get("speculative_num_draft_tokens"),
        widest_round=answer.widest_round,
        adaptive=bool(said.get("speculative_adaptive")),
        draft_model=said.get("speculative_draft_model_path"),
        rejection_sampling=bool(said.get("speculative_use_rejection_sampling")),
    )


def findings(question: Question, asked: Arguments, answer: Answer) -> Iterator[Finding]:
    """`asked`: what the question asks, under the engine's own names."""
    if answer.outcome is Outcome.UNANSWERED:
        yield refuse(
            "resolve.unanswered",
            "engine",
            f"its resolver stopped at {answer.at or 'its start'}: {answer.kind}: {_one_line(answer.sentence)}",
            "a fault of it, or of what stands in for the GPU, says nothing about the launch",
            "See whether the launch needs a package that this environment lacks; else file it with the recipe.",
        )
    elif answer.outcome is Outcome.REFUSED:
        yield refuse(
            "resolve.refused",
            "engine",
            f'sglang {answer.engine} would not start: "{_one_line(answer.sentence)}" ({_stage(answer)})',
            remedy="Change what it names.",
        )
    elif (found := cpu_values(question, answer)) is not None:
        yield refuse(
            "resolve.cpu-values",
            "engine",
            f"resolved as if there were no GPU: {found}",
            "such an answer says nothing about the described machine",
            "See that nothing sets torch.version.cuda or the engine's platform in this environment.",
        )
    else:
        yield from differences(asked, answer)


def cpu_values(question: Question, answer: Answer) -> str | None:
    """What shows that an answer for a GPU was resolved for a CPU; the engine does that without a word where a probe fails."""
    return next(_signs_of_a_cpu(question, answer), None)


def _signs_of_a_cpu(question: Question, answer: Answer) -> Iterator[str]:
    gpu, seen, device = question.gpu, answer.believed, str(answer.arguments.get("device"))
    if gpu is None or answer.outcome is not Outcome.RESOLVED:
        return
    if seen is None or not seen.cuda:
        yield "its probe says that there is no CUDA"
    elif seen.sm != 10 * gpu.capability[0] + gpu.capability[1]:
        yield f"it takes the GPU for SM {seen.sm}, described was {gpu.capability[0]}.{gpu.capability[1]}"
    elif seen.memory_mib != gpu.memory_mib:
        yield f"it sees {seen.memory_mib} MiB, described were {gpu.memory_mib}"
    if device != "cuda":
        yield f"device {device}"
    written = {word.partition("=")[2] or word for word in question.argv}
    for backend in (answer.prefill_attention, answer.decode_attention):
        if backend in _CPU_ATTENTION and backend not in written:
            yield f"attention backend {backend}"


def differences(asked: Arguments, answer: Answer) -> Iterator[Finding]:
    """Where the engine takes something else than a launch asks."""
    for name, wanted in asdict(asked).items():
        if wanted is None or name in _NOT_COMPARED:
            continue
        for taken in _taken(name, asked, answer.arguments):
            if name == "chunked_prefill_size" and taken and taken * asked.attention_dp == wanted != taken:
                yield note(
                    "resolve.per-rank",
                    name,
                    f"is {wanted} tokens, {taken} on each of {asked.attention_dp} attention-DP ranks",
                )
            elif not _same(wanted, taken) and taken not in _ALSO.get(str(wanted), ()):
                yield warn(
                    "resolve.differs",
                    name,
                    f"asked is {_shown(wanted)}, sglang {answer.engine} takes {_shown(taken)}",
                    _why(name, answer.said),
                    "Ask for what it takes, or for what makes it take this." if taken is not None else "",
                )


def _taken(name: str, asked: Arguments, said: Mapping[str, Any]) -> Iterator[Any]:
    """The engine's value under the name it was asked by; nothing where it has no such thing."""
    graph = {
        "cuda_graph_bs_decode": ("decode", "bs"),
        "cuda_graph_max_bs_decode": ("decode", "max_bs"),
        "cuda_graph_backend_decode": ("decode", "backend"),
        "cuda_graph_backend_prefill": ("prefill", "backend"),
    }
    if name in graph:
        phase, key = graph[name]
        yield (said.get("cuda_graph_config") or {}).get(phase, {}).get(key)
    elif name == "dp_size" and asked.enable_dp_attention:
        yield said.get("attn_dp_size")
    elif name in said:
        yield said[name]


def _same(wanted: Any, taken: Any) -> bool:
    if isinstance(wanted, tuple):
        return list(wanted) == list(taken or ())
    if isinstance(wanted, str) and isinstance(taken, str):
        return wanted.lower() == taken.lower()
    return bool(wanted == taken)


def _why(name: str, said: tuple[str, ...]) -> str:
    """The engine's own warning about it, where one names it."""
    words = "|".join(re.escape(word) for word in (name, name.replace("_", "-"), name.replace("_", " ")))
    whole = re.compile(
        rf"(?<![\w-])(--)?({words})(?![\w-])", re.IGNORECASE
    )  # `dtype` is not in `KV cache dtype`'s place
    others = _longer_names(name)
    line = next(
        (line for line in said if whole.search(line) and not any(other in line.lower() for other in others)), None
    )
    return f'it says "{_one_line(line).rstrip(".")}"' if line else ""


def _longer_names(name: str) -> list[str]:
    """Other arguments whose name holds this one as a part; a line about one of them is not about this."""
    fields = (field for field in Arguments.__struct_fields__ if field != name and name in field)
    return [spelled for field in fields for spelled in (field, field.replace("_", "-"), field.replace("_", " "))]


def _graphs(said: Mapping[str, Any], phase: str) -> tuple[str | None, tuple[int, ...]]:
    config = (said.get("cuda_graph_config") or {}).get(phase) or {}
    backend = config.get("backend")
    return backend, () if backend in (None, "disabled") else tuple(config.get("bs") or ())


def _stage(answer: Answer) -> str:
    does = {Stage.READ: "reads", Stage.RESOLVE: "resolves", Stage.CHECK: "checks"}
    return f"{answer.kind}, while it {does.get(answer.stage, 'has read')} its arguments"


def _shown(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"{len(value)} sizes up to {max(value)}" if len(value) > 8 else ", ".join(map(str, value)) or "none"
    return "nothing" if value is None else str(value)


def _one_line(text: str) -> str:
    return " ".join(text.split())[:500]
