"""Start-up stations and last words, from lines the engine wrote."""

import pytest

from spec_toolkit.engine.log import Phase, Station, last_words, read_station

STAMP = "[2026-11-29 18:54:19] "


@pytest.mark.parametrize(
    ("line", "station"),
    [
        (f"{STAMP}server_args={{'model_path': 'x'}}", Station(Phase.ARGUMENTS, "")),
        (
            f"{STAMP}Load weight end. elapsed=0.06 s, type=DeepseekV3ForCausalLMNextN, avail mem=21.66 GB, mem usage=0.01 GB.",
            Station(Phase.WEIGHTS, "DeepseekV3ForCausalLMNextN, 0.01 GB, 0.06 s"),
        ),
        (
            f"{STAMP}KV Cache is allocated. dtype: torch.float32, #tokens: 16384, KV size: 0.02 GB",
            Station(Phase.KV_POOL, "16,384 tokens, float32, 0.02 GB"),
        ),
        (f"{STAMP}Capture decode CUDA graph begin. avail mem=8.1 GB", Station(Phase.GRAPHS, "decode CUDA graph")),
        (f"{STAMP}INFO:     Application startup complete.", Station(Phase.WARM_UP, "")),
        (f"{STAMP}The server is fired up and ready to roll!", Station(Phase.READY, "")),
        (f"{STAMP}Load weight begin. avail mem=21.68 GB", None),
        ("a user's prompt may say server_args= as well", None),
        ("", None),
    ],
)
def test_stations(line: str, station: Station | None) -> None:
    assert read_station(line) == station


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        pytest.param([], "(it wrote nothing)", id="nothing"),
        pytest.param(["starting"], "starting", id="no-error"),
        pytest.param(
            [
                "Traceback (most recent call last):",
                '  File "x.py", line 1',
                "RuntimeError: out of rope",
                f"{STAMP}kill_process_tree called",
            ],
            "RuntimeError: out of rope",
            id="the-error-not-the-shutdown-after-it",
        ),
        pytest.param(
            ["ValueError: first", "AssertionError: second", f"{STAMP}SIGQUIT received. signum=None", ""],
            "AssertionError: second",
            id="the-last-error",
        ),
        pytest.param(
            ["spec-toolkit: t: changed [plugin.source-changed]", f"{STAMP}Decode batch, #running-req: 1"],
            "spec-toolkit: t: changed [plugin.source-changed]",
            id="our-own",
        ),
        pytest.param(
            [
                "AttributeError: a bad request, answered",
                *["Decode batch"] * 40,
                "scheduler_0 crashed with exit code -9",
            ],
            "scheduler_0 crashed with exit code -9",
            id="not-an-error-that-was-survived-long-ago",
        ),
        pytest.param(
            [
                f"{STAMP}Scheduler hit an exception: Traceback (most recent call last):",
                "ValueError: the ranks part [knob.local-broadcast]",
                "Traceback (most recent call last):",
                *['  File "x.py", line 1, in f', "    raise EOFError"] * 40,
                "EOFError",
            ],
            "ValueError: the ranks part [knob.local-broadcast]",
            id="the-process-that-failed-and-not-the-one-that-waited-for-it",
        ),
        pytest.param(
            ["x: UserWarning: old", "torch.OutOfMemoryError: CUDA out of memory. Tried"],
            "torch.OutOfMemoryError: CUDA out of memory. Tried",
            id="memory",
        ),
    ],
)
def test_last_words(lines: list[str], words: str) -> None:
    assert last_words(lines) == words


def test_last_words_are_bounded() -> None:
    assert len(last_words(["ValueError: " + "x" * 10_000])) == 240
