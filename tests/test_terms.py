"""The words every room shares, and the one rule among them."""

import pytest

from spec_toolkit.plugin.knob import mode_of
from spec_toolkit.terms import KnobMode, Mode, mode_at


@pytest.mark.parametrize(
    ("steps", "most", "mode"),
    [
        pytest.param(3, 3, Mode.FULL, id="all"),
        pytest.param(1, 3, Mode.REDUCED, id="some"),
        pytest.param(0, 3, Mode.ZERO_DRAFT, id="none"),
        pytest.param(0, 0, Mode.ZERO_DRAFT, id="none-of-none-is-not-full"),
    ],
)
def test_the_engine_and_everybody_outside_it_call_a_step_count_by_one_name(steps: int, most: int, mode: Mode) -> None:
    assert mode_at(steps, most) is mode
    assert mode_of(steps, (0, most)) is KnobMode[mode.name]
