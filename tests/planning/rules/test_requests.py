import pytest

from spec_toolkit.planning.rules.requests import penalties
from tests.planning.field_cases import build


@pytest.mark.parametrize(
    ("algorithm", "warned"),
    [("DFLASH", True), ("dspark", True), ("EAGLE", False), ("NGRAM", False), ("EAGLE3", False), (None, False)],
)
@pytest.mark.parametrize(("no_overlap", "ignored"), [(None, "frequency"), (True, "repetition")])
def test_block_drafters_ignore_penalties(algorithm, warned, no_overlap, ignored):  # C051
    asked = {"speculative_algorithm": algorithm, "disable_overlap_schedule": no_overlap}
    sentences = [finding.sentence() for finding in penalties(build({"server_args": asked}))]
    assert len(sentences) == warned
    assert all(ignored in sentence for sentence in sentences)
    assert not any("frequency" in sentence for sentence in sentences if no_overlap)


@pytest.mark.engine
def test_the_engine_still_looks_for_penalties_where_there_are_none():
    """The day this fails, the rule has to be read again."""
    from importlib.util import find_spec
    from pathlib import Path

    srt = Path(find_spec("sglang").origin).parent / "srt"
    looked_for = 'getattr(sampling_info, "acc_linear_penalties", None)'
    assert looked_for in (srt / "speculative/dflash_utils.py").read_text("utf-8")
    assert "acc_linear_penalties" not in (srt / "sampling/sampling_batch_info.py").read_text("utf-8")
    assert "acc_additive_penalties" in (srt / "speculative/eagle_utils.py").read_text("utf-8")
    assert "eagle_sample" in (srt / "speculative/ngram_worker.py").read_text("utf-8")
