"""Asks the engine's own resolver what it makes of a launch under a described GPU. Starts a process where no answer is kept.

The process imports the engine once, about ten seconds, and then answers any number of questions, each in a fork of its own: ask many
at once.
"""

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import msgspec

from spec_toolkit.engine.names import USE_CPU_ENGINE
from spec_toolkit.errors import EngineError, FactsError
from spec_toolkit.launch.decided import cpu_values
from spec_toolkit.launch.resolving.cache import Cache, cache_folder, engine_identity, key_of
from spec_toolkit.launch.resolving.records import Answer, Question

_CHILD = str(Path(__file__).parent / "resolving" / "__main__.py")
_IMPORT_SECONDS = 180.0  # ten on a quiet core; a busy machine or a cold disk takes many times that
_QUESTION_SECONDS = 30.0  # a fifth of one on a quiet core
_PATIENCE_SECONDS = 2.0
ENGINES_OWN = ("SGLANG_", "SGL_")  # prefixes of its variables: a question says which are set

Waiting = Callable[[], None]  # called once, where an answer takes longer than two seconds


def resolve_many(
    questions: Sequence[Question],
    *,
    cache: Cache | None = None,
    waiting: Waiting = lambda: None,
    import_seconds: float = _IMPORT_SECONDS,
) -> list[Answer]:
    """One answer a question, in order. FactsError where there is no engine, EngineError where it cannot be asked at all.

    `cache`: the user's own by default. A refusal of the engine is an answer.
    """
    engine = engine_identity()
    if engine is None:
        raise FactsError.of(
            "resolve.no-engine",
            "machine",
            "has no sglang in this Python environment",
            why="what the engine would do is asked of the engine itself",
            remedy="`make setup` in a checkout installs it for a CPU, `pip install sglang` with the recipe's version for a GPU.",
        )
    kept = cache or Cache(cache_folder())
    keys = [key_of(question, engine) for question in questions]
    answers = {key: answer for key in dict.fromkeys(keys) if (answer := kept.read(key))}
    open_ones = {key: question for key, question in zip(keys, questions, strict=True) if key not in answers}
    if open_ones:
        for with_gpu in (True, False):  # an engine is imported for one or the other
            part = {key: question for key, question in open_ones.items() if (question.gpu is not None) is with_gpu}
            for key, answer in zip(part, _ask_child(list(part.values()), waiting, import_seconds), strict=True):
                answers[key] = answer
                if cpu_values(part[key], answer) is None:
                    kept.write(key, answer)
    return [answers[key] for key in keys]


def _ask_child(questions: Sequence[Question], waiting: Waiting, import_seconds: float) -> list[Answer]:
    if not questions:
        return []
    text = msgspec.json.encode(
        [msgspec.to_builtins(question) | {"deadline_seconds": _QUESTION_SECONDS} for question in questions]
    )
    patience = import_seconds + _QUESTION_SECONDS * len(questions)
    with tempfile.TemporaryFile() as asked, tempfile.TemporaryFile() as words:
        asked.write(text)
        asked.seek(0)
        child = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-P", _CHILD, str(patience), str(os.getpid())],
            stdin=asked,
            stdout=subprocess.PIPE,
            stderr=words,
            env=_environment(os.environ, with_gpu=questions[0].gpu is not None),
            start_new_session=True,
        )
        try:
            lines = _read_lines(child, waiting, patience)
            code = child.wait(timeout=_QUESTION_SECONDS) if lines is not None else None
        finally:  # Ctrl-C too: nothing is left behind
            if child.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
            assert child.stdout is not None  # noqa: S101 - it was asked for as a pipe
            child.stdout.close()
        if lines is None or code != 0 or len(lines) != len(questions):
            ended = f"gave no answer within {patience:g} s" if lines is None else f"ended with {code}"
            raise EngineError.of(
                "resolve.unanswered",
                "engine",
                f'its resolver {ended}; its last words: "{_last_words(words)}"',
                why="a fault of it, or of what stands in for the GPU, says nothing about the launch",
                remedy="See runbooks/engine-does-not-start.md.",
            )
    return [msgspec.json.decode(line, type=Answer) for line in lines]


def _read_lines(child: subprocess.Popen[bytes], waiting: Waiting, patience: float) -> list[bytes] | None:
    """All lines up to the end; None where it does not come in time."""
    assert child.stdout is not None  # noqa: S101 - it was asked for as a pipe
    started, text, told = time.monotonic(), b"", False
    while (left := started + patience - time.monotonic()) > 0:
        wait = left if told else min(left, _PATIENCE_SECONDS)
        if select.select([child.stdout], [], [], wait)[0]:
            part = os.read(child.stdout.fileno(), 1 << 16)
            if not part:
                return text.splitlines()
            text += part
        elif not told:
            told = True
            waiting()
    return None


def _environment(ours: Mapping[str, str], *, with_gpu: bool) -> dict[str, str]:
    """Ours, without what would change an answer, and without GPUs: none is touched."""
    plain = {name: value for name, value in ours.items() if not name.startswith(ENGINES_OWN)}
    others = [entry for entry in plain.pop("PYTHONPATH", "").split(os.pathsep) if entry and not _holds_stand_ins(entry)]
    return {
        **plain,
        **({"PYTHONPATH": os.pathsep.join(others)} if others else {}),
        **({} if with_gpu else {USE_CPU_ENGINE: "1"}),
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
        "TORCHDYNAMO_DISABLE": "1",  # nothing is compiled here, and importing the compiler costs seconds
        "OMP_NUM_THREADS": "1",
    }


def _holds_stand_ins(entry: str) -> bool:
    """The rehearsal's, which refuse to stand in for a GPU."""
    return (Path(entry) / "rehearsal_guard.py").exists()


def _last_words(words: IO[bytes]) -> str:
    words.seek(0)
    lines = words.read().decode(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else ""
