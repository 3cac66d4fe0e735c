from spec_toolkit.engine.arguments import Arguments
from spec_toolkit.errors import correct, refuse
from spec_toolkit.planning.situate import corrected


def test_of_two_corrections_of_one_argument_the_first_is_heard() -> None:
    first = correct("a.rule", "page_size", "is 3", changes=(("page_size", 64), ("tp_size", 8)))
    second = correct("another.rule", "page_size", "is 3", changes=(("page_size", 1), ("dtype", "bfloat16")))
    asked = Arguments(page_size=3, dtype="half")
    assert corrected(asked, [first, second]) == Arguments(page_size=64, tp_size=8, dtype="bfloat16")
    assert corrected(asked, [second, first]) == Arguments(page_size=1, tp_size=8, dtype="bfloat16")


def test_a_refusal_changes_nothing() -> None:
    asked = Arguments(page_size=3)
    assert corrected(asked, [refuse("a.rule", "page_size", "is 3")]) == asked
