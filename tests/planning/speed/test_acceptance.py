import pytest

from spec_toolkit.facts.evidence import Prompts, Workload
from spec_toolkit.facts.known import load_tables
from spec_toolkit.facts.records import Level
from spec_toolkit.planning.speed.acceptance import Grounds, measured_survival, published_survival
from spec_toolkit.terms import Method
from tests.planning.speed.measured import drafting, evidence, plain

TABLES = load_tables()


def test_the_deepest_measured_row_says_how_far_drafts_survive() -> None:
    rows = (drafting(1, 1, 9, 1.8, survival=(0.8,)), drafting(1, 2, 9, 2.3, survival=(0.8, 0.5), rounds=1234))
    found = measured_survival(evidence(plain(1, 5), *rows))
    assert found is not None
    assert (found.positions, found.grounds) == ((0.8, 0.5), Grounds.MEASURED)
    assert "1,234 rounds" in found.says


def test_lengths_of_every_step_count_are_enough() -> None:
    found = measured_survival(evidence(plain(1, 5), drafting(1, 2, 9, 2.3), drafting(1, 1, 9, 1.8)))
    assert found is not None
    assert found.positions == pytest.approx((0.8, 0.5))


def test_near_miss_a_gap_in_the_steps_is_not_guessed() -> None:
    assert measured_survival(evidence(plain(1, 5), drafting(1, 3, 9, 2.6), drafting(1, 1, 9, 1.8))) is None


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"simulated": True}, id="faked"),
        pytest.param({"workload": Workload(name="noise", prompts=Prompts.RANDOM_TOKENS)}, id="random-tokens"),
    ],
)
def test_what_no_user_would_see_says_nothing(changed: dict[str, object]) -> None:
    assert measured_survival(evidence(drafting(1, 1, 9, 1.8, survival=(0.8,)), **changed)) is None


def test_a_published_curve_is_a_prior_and_says_so() -> None:
    found = published_survival(TABLES, "zai-org/GLM-5.2-FP8", Method.MTP)
    assert found is not None
    assert (found.grounds, found.level) == (Grounds.PRIOR, Level.THIRD_PARTY)
    assert found.positions[:3] == pytest.approx((0.84, 0.66, 0.49))
    assert "a prior, not this machine" in found.says
    assert "thinking on" in found.says


def test_of_two_published_curves_the_most_cautious_is_taken() -> None:
    found = published_survival(TABLES, "deepseek-ai/DeepSeek-V4-Pro", Method.MTP)
    assert found is not None
    assert found.positions[0] == pytest.approx(0.79)
    assert "thinking on" in found.says


def test_another_checkpoint_of_the_model_is_a_prior_that_names_it() -> None:
    found = published_survival(TABLES, "nvidia/GLM-5.2-NVFP4", Method.MTP)
    assert found is not None
    assert "zai-org/GLM-5.2-FP8" in found.says


@pytest.mark.parametrize(
    ("repository", "method"),
    [("zai-org/GLM-5.1-FP8", Method.MTP), ("zai-org/GLM-5.2-FP8", Method.DSPARK), ("nobody/knows", Method.MTP)],
    ids=["other-model", "other-draft", "unknown"],
)
def test_another_pairs_curve_is_no_prior(repository: str, method: Method) -> None:
    assert published_survival(TABLES, repository, method) is None
