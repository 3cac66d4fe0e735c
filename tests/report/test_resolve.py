"""What the engine decided, as people read it."""

from msgspec.structs import replace

from spec_toolkit.errors import Finding, Verdict
from spec_toolkit.launch.decided import decided
from spec_toolkit.launch.resolving.records import Resolution
from spec_toolkit.report.resolve import resolution
from tests.launch.test_decided import ANSWER, TAKEN

FOUND = Resolution(
    name="mine",
    machine="8 H200",
    engine="0.5.23",
    answered=True,
    resolved=True,
    decided=decided(ANSWER),
    autoregressive=decided(replace(ANSWER, arguments=TAKEN | {"speculative_algorithm": None})),
    said=("Something\nwas adjusted.",),
    findings=(),
    seconds=0.2,
)
DIFFERS = Finding(
    rule="resolve.differs", verdict=Verdict.WARN, where="limits.max_running_requests", found="asked is 64, takes 48"
)


def test_it_says_every_decision_in_a_line() -> None:
    lines = resolution(FOUND).splitlines()
    assert lines[0] == "mine on 8 H200, as sglang 0.5.23 resolves it"
    told = {line[2:18].strip(): line[18:].strip() for line in lines if line.startswith("  ")}
    assert told["weights"] == "bfloat16, quantised as fp8"
    assert told["decode graphs"] == "full, 3 batch sizes: 1 2 4"
    assert told["speculation"] == "EAGLE, 4 tokens a round"
    assert "  Something was adjusted." in lines
    assert lines[-1] == "mine resolves: nothing differs from what is asked"


def test_what_differs_is_counted() -> None:
    text = resolution(replace(FOUND, findings=(DIFFERS,)))
    assert "warn     limits.max_running_requests: asked is 64, takes 48. [resolve.differs]" in text
    assert text.endswith("mine resolves: 1 value other than asked")


def test_a_refusal_shows_no_table() -> None:
    refusal = Finding(rule="resolve.refused", verdict=Verdict.REFUSE, where="engine", found="would not start")
    refused = replace(FOUND, resolved=False, decided=None, autoregressive=None, said=(), findings=(refusal,))
    assert resolution(refused).splitlines()[2:] == [
        "refuse   engine: would not start. [resolve.refused]",
        "",
        "mine does not resolve",
    ]


def test_ranks_that_hold_requests_of_their_own_share_the_cap() -> None:
    shared = decided(replace(ANSWER, arguments=TAKEN | {"attn_dp_size": 8}))
    assert "at most 48 at once, 6 on each attention-DP rank" in resolution(replace(FOUND, decided=shared))
