import pytest

from spec_toolkit.facts.known import load_tables
from spec_toolkit.facts.read_model import known_model
from spec_toolkit.facts.records import Level
from spec_toolkit.planning.speed.published import said_of
from spec_toolkit.terms import Method

TABLES = load_tables()
V4 = "deepseek-ai/DeepSeek-V4-Flash"


def says(repository: str, method: Method = Method.MTP, *, attention_dp: bool = False) -> list[str]:
    target = known_model(repository, TABLES)
    return [said.says for said in said_of(TABLES, target, method, attention_dp=attention_dp)]


def test_what_others_say_comes_with_its_level_and_source() -> None:
    target = known_model("deepseek-ai/DeepSeek-V3-0324", TABLES)
    since, asserted, reported = said_of(TABLES, target, Method.MTP, attention_dp=False)
    assert since.says.startswith("the first SGLang that runs it is not established; ")
    assert asserted.says == (
        "upstream's tests assert at least an emitted length of 2.8, 130 tokens/s at batch 1 on 8×H200 TP8 EAGLE 3/1/4, "  # noqa: RUF001 - the table's
        "memory fraction 0.7"
    )
    assert (asserted.level, asserted.source) == (Level.SGLANG_SOURCE, "sglang-ci")
    assert reported.says.startswith("1.8 times as fast at batch 1")
    assert reported.level is Level.OFFICIAL_DOCS


@pytest.mark.parametrize(
    ("repository", "method", "attention_dp", "expected"),
    [
        pytest.param("zai-org/GLM-5.2-FP8", Method.MTP, False, "since SGLang 0.5.13.post1", id="of-the-model"),
        pytest.param(V4, Method.MTP, False, "since SGLang 0.5.13.post1", id="however-its-weights-are-stored"),
        pytest.param("nvidia/DeepSeek-V4-Flash-NVFP4", Method.MTP, False, "since SGLang 0.5.19", id="of-these-weights"),
        pytest.param(V4, Method.DSPARK, False, "since SGLang 0.5.16", id="of-the-method"),
        pytest.param(V4, Method.DSPARK, True, "0.5.23 accepts it", id="of-the-layout"),
    ],
)
def test_the_first_engine_is_that_of_just_this(
    repository: str, method: Method, attention_dp: bool, expected: str
) -> None:
    assert expected in says(repository, method, attention_dp=attention_dp)[0]


def test_of_what_nobody_speaks_nothing_is_said() -> None:
    assert says("somebody/else") == []
    assert not any("to run since" in each for each in says(V4, Method.EAGLE3))
    assert not any("assert" in each for each in says("zai-org/GLM-5.2"))  # of another repository


def test_every_floor_report_and_first_engine_of_the_tables_reaches_somebody() -> None:
    heard = set()
    for model in TABLES.models.values():
        for repository in model.checkpoints:
            for method in Method:
                for attention_dp in (False, True):
                    heard |= set(says(repository, method, attention_dp=attention_dp))
    assert all(any(report.said.v in each for each in heard) for report in TABLES.acceptance.reports)
    assert all(any(floor.setup in each for each in heard) for floor in TABLES.acceptance.floors)
    assert all(any((row.since.v or row.since.note) in each for each in heard) for row in TABLES.versions)
