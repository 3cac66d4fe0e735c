"""What is to be written instead, told to whoever pasted a command."""

import pytest

from spec_toolkit.facts.known import load_tables
from spec_toolkit.launch.asked import Given, check_commands
from spec_toolkit.recipe.command import read_commands
from spec_toolkit.report import asked as report

V4 = "sglang serve deepseek-ai/DeepSeek-V4-Flash --tp 4 --speculative-num-steps 2"


def told(text: str) -> list[str]:
    return report.checked(check_commands(read_commands(text), Given(gpu="h200", count=4), load_tables())).splitlines()


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        (f"{V4} --speculative-algorithm NEXTN", "Write --speculative-algorithm EAGLE --speculative-eagle-topk 1."),
        (f"{V4} --speculative-algorithm EAGLE", "Write --speculative-eagle-topk 1."),
    ],
)
def test_corrections_together_are_flags_to_paste(text: str, instead: str) -> None:
    lines = told(text)
    assert lines[-2] == instead
    assert "may be launched, once corrected: " in lines[-1]


def test_what_needs_no_correction_is_only_summed_up() -> None:
    lines = told(f"{V4} --speculative-algorithm EAGLE --speculative-eagle-topk 1")
    assert not [line for line in lines if line.startswith("Write ")]
    assert " may be launched: " in lines[-1]
