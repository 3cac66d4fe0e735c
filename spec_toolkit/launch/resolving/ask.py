"""One launch put to the engine: parsed, resolved and checked by its own code. Runs in the child only, in a fork for each launch."""

import argparse
import functools
import importlib
import importlib.util
import json
import logging
import os
import re
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any, NoReturn

import sglang.srt.arg_groups.pipeline  # so that no fork has to
import sglang.version
from sglang.srt.arg_groups.overrides import (
    attention_backends_of,
    max_speculative_num_draft_tokens,
    model_config_of,
    resolving_view,
)
from sglang.srt.server_args import prepare_server_args

from spec_toolkit.engine.secrets import SECRET, SECRET_DESTINATIONS
from spec_toolkit.launch.resolving import absent, described_gpu

# What the engine says no with. Anything else is a fault of it, or of what stands in for the GPU.
_REFUSALS = (ValueError, AssertionError, NotImplementedError, RuntimeError)
# What hooks of other processes import beside the one that is wanted here.
_NOT_RESOLVING = ("sglang.srt.managers", "sglang.srt.models", "sglang.srt.entrypoints")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def ask(launch: dict[str, Any]) -> dict[str, Any]:
    """Never raises. In the current folder, which is the launch's own."""
    started = time.monotonic()
    said: list[str] = []
    _listen(said)
    os.environ.update(launch["environment"])
    for name, content in launch["files"].items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content), encoding="utf-8")
    if launch["gpu"]:
        described_gpu.describe_to_torch(launch["gpu"])
        described_gpu.describe_to_engine(launch["gpu"])
    stage = ["read"]
    try:
        for hook in launch["hooks"]:
            _hook(hook)
        found = _resolve(launch["argv"], stage)
    except BaseException as error:  # noqa: BLE001 - reported, whatever it is
        found = _no(error)
    return found | {
        "engine": sglang.version.__version__,
        "stage": stage[0],
        "said": [_COLOUR.sub("", line) for line in dict.fromkeys(said)],
        "believed": described_gpu.believed(),
        "seconds": round(time.monotonic() - started, 3),
    }


def _resolve(argv: list[str], stage: list[str]) -> dict[str, Any]:
    setattr(argparse.ArgumentParser, "error", _say_no)  # noqa: B010 - the parser would end the process
    arguments = prepare_server_args(argv)
    logging.getLogger().setLevel(logging.CRITICAL)  # it speaks to _listen, and to nobody else
    stage[0] = "resolve"
    arguments.resolve_once()
    stage[0] = "check"
    arguments.check_server_args()
    stage[0] = "done"
    view, model = resolving_view(arguments), model_config_of(arguments)
    prefill, decode = attention_backends_of(view)
    return {
        "outcome": "resolved",
        "arguments": _told(arguments),
        "prefill_attention": prefill,
        "decode_attention": decode,
        "widest_round": max_speculative_num_draft_tokens(arguments),
        "model": {
            "architecture": (model.hf_config.architectures or [None])[0],
            "dtype": str(model.dtype).removeprefix("torch."),
            "context_tokens": model.context_len,
            "quantization": model.quantization,
        },
    }


def _hook(hook: dict[str, str]) -> None:
    """One of our patches' hooks, where it changes what is resolved: as the plugin would place it in the launched engine."""
    spec = importlib.util.spec_from_file_location("hooks_of_a_patch", hook["file"])
    if spec is None or spec.loader is None:
        raise ImportError(hook["file"])
    hooks = importlib.util.module_from_spec(spec)
    with absent.standing_in(_NOT_RESOLVING):
        spec.loader.exec_module(hooks)
    module, _, name = hook["target"].rpartition(".")
    holder = importlib.import_module(module)
    original, ours = getattr(holder, name), getattr(hooks, hook["function"])
    # Named as the step it stands in for: the engine looks its steps up by their names.
    around = functools.update_wrapper(functools.partial(ours, original), original)
    placed = around if hook["type"] == "around" else ours
    for other in [found for found in list(sys.modules.values()) if vars(found).get(name) is original]:
        setattr(other, name, placed)


class _ParserError(ValueError):
    """The engine's parser would have ended the process."""


def _say_no(_: argparse.ArgumentParser, message: str) -> NoReturn:
    raise _ParserError(message)


def _no(error: BaseException) -> dict[str, Any]:
    frames = traceback.extract_tb(error.__traceback__)
    where = frames[-1]
    said_by_it = isinstance(error, _ParserError) or Path(where.filename).parent != Path(__file__).parent
    return {
        "outcome": "refused" if isinstance(error, _REFUSALS) and said_by_it else "unanswered",
        "kind": "ArgumentError" if isinstance(error, _ParserError) else type(error).__name__,
        "sentence": _COLOUR.sub("", str(error)) or where.line or "",
        "at": f"{Path(where.filename).name}:{where.lineno} in {where.name}",
    }


def _listen(said: list[str]) -> None:
    """Warnings of the engine's loggers, and those that Python's own machinery shows."""

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    logging.getLogger("sglang").addHandler(Listener(logging.WARNING))
    logging.getLogger("sglang").setLevel(logging.WARNING)
    warnings.showwarning = lambda *_, **__: None


def _told(arguments: Any) -> dict[str, Any]:
    """Every field, but for a seed that was drawn and what is secret."""
    said: dict[str, Any] = _plain(arguments.resolved_dict())
    if arguments.random_seed is None:
        del said["random_seed"]
    return said | {name: SECRET for name in SECRET_DESTINATIONS if said.get(name) is not None}


def _plain(value: Any) -> Any:
    """As JSON can hold it."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)
