import pytest

from spec_toolkit.planning.rules import dspark
from tests.planning.field_cases import build


def found(algorithm="DSPARK", sglang="0.5.23", gpu=None, written=None, in_checkpoint=5):
    server_args = {"speculative_algorithm": algorithm, "speculative_dspark_block_size": written}
    parts = {"server_args": server_args, "pins": {"sglang": sglang}, "target": {"dspark_block_size": in_checkpoint}}
    return [f"{f.rule}={f.verdict.value}" for rule in dspark.RULES for f in rule(build(parts | {"gpu": gpu}))]


@pytest.mark.parametrize(
    ("sglang", "verdict"),
    [
        *((version, "correct") for version in ("0.5.15", "0.5.15.post1", "0.5.16", "0.5.17")),
        *((version, "warn") for version in ("0.5.14", "0.5.18", "0.5.23")),
    ],
)
@pytest.mark.parametrize(("written", "in_checkpoint"), [(None, 5), (5, 5), (5, None)])
def test_depth_five_is_never_taken_in_silence(sglang, verdict, written, in_checkpoint):  # C131
    assert found(sglang=sglang, written=written, in_checkpoint=in_checkpoint) == [f"dspark.depth={verdict}"]


@pytest.mark.parametrize(
    ("algorithm", "written", "in_checkpoint"), [("DSPARK", 3, 5), ("DSPARK", None, None), ("EAGLE", None, 5)]
)
def test_other_depths_and_algorithms_pass(algorithm, written, in_checkpoint):
    assert found(algorithm, "0.5.16", written=written, in_checkpoint=in_checkpoint) == []


@pytest.mark.parametrize(
    ("gpu", "sglang", "expected"),
    [
        ("rtx_pro_6000", "0.5.17", ["dspark.gpu=refuse"]),
        ("rtx_5090", "0.5.16", ["dspark.gpu=refuse"]),
        ("rtx_5090", "0.5.23", ["dspark.gpu=warn"]),
        ("h200", "0.5.17", []),
        ("b200", "0.5.17", []),
        (None, "0.5.17", []),
    ],
)
def test_compute_capability_twelve(gpu, sglang, expected):  # C124
    assert found(gpu=gpu, sglang=sglang, written=3) == expected


@pytest.mark.parametrize(
    ("written", "in_checkpoint", "expected"),
    [
        (9, 5, ["dspark.beyond=warn"]),
        (6, 5, ["dspark.beyond=warn"]),
        (4, 5, []),
        (None, 4, []),
        (9, None, []),
    ],
)
def test_a_block_longer_than_the_checkpoints_is_said(written, in_checkpoint, expected):
    assert found(written=written, in_checkpoint=in_checkpoint) == expected
