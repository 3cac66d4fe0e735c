import pytest

from spec_toolkit.planning.rules import images
from tests.planning.field_cases import build

DIGEST = "@sha256:" + "0" * 64


def found(**parts):
    return [f"{f.rule}={f.verdict.value}" for rule in images.RULES for f in rule(build(parts))]


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("lmsysorg/sglang:latest", ["pins.image-floating=refuse"]),
        ("lmsysorg/sglang", ["pins.image-floating=refuse"]),
        ("registry:5000/lmsysorg/sglang", ["pins.image-floating=refuse"]),  # the port is no tag
        ("lmsysorg/sglang:dev", ["pins.image-floating=refuse"]),
        ("lmsysorg/sglang:nightly-20260901", ["pins.image-floating=refuse"]),
        ("lmsysorg/sglang:latest-cu129", ["pins.image-floating=refuse"]),
        ("lmsysorg/sglang:v0.5.23", ["pins.image-digest=note"]),
        ("registry:5000/sglang:v0.5.23-cu129", ["pins.image-digest=note"]),
        ("lmsysorg/sglang:developer", ["pins.image-digest=note"]),
        ("lmsysorg/sglang" + DIGEST, []),
        ("lmsysorg/sglang:latest" + DIGEST, []),
        (None, []),
    ],
)
def test_a_tag_that_moves_is_no_pin(image, expected):  # C120
    assert found(pins={"image": image}) == expected


@pytest.mark.parametrize(
    ("image", "pinned", "refused"),
    [
        ("lmsysorg/sglang:v0.5.18", "0.5.23", True),
        ("lmsysorg/sglang:v0.5.18-cu130" + DIGEST, "0.5.23", True),  # a digest pins the wrong one as well
        ("lmsysorg/sglang:v0.5.23" + DIGEST, "0.5.23", False),
        ("lmsysorg/sglang:v0.5.23-cu129", "0.5.23", False),
        ("lmsysorg/sglang:v0.5.23.post1", "0.5.23", True),
        ("registry:5000/ours:v0.5.18", "0.5.23", False),  # whose version it is, nobody knows
        ("lmsysorg/sglang" + DIGEST, "0.5.23", False),
    ],
)
def test_an_images_tag_names_the_pinned_engine(image, pinned, refused):
    rules = found(pins={"image": image, "sglang": pinned})
    assert ("pins.image-version=refuse" in rules) is refused


@pytest.mark.parametrize(
    ("target", "draft", "count"),
    [
        ("gemma4", "gemma4_assistant", 1),
        ("deepseek_v4", "gemma4_assistant", 2),
        ("gemma4", "gemma4", 0),
        ("gemma4", None, 0),
    ],
)
def test_the_images_transformers_reads_both_models(target, draft, count):  # C120
    parts = {"target": {"model_type": target}, "draft": {"model_type": draft}}
    assert (
        found(pins={"transformers_model_types": ["gemma3", "gemma4"]}, **parts)
        == ["pins.image-model-type=refuse"] * count
    )
    assert found(**parts) == []


@pytest.mark.parametrize(
    ("gpu", "built", "refused"),
    [
        ("h200", [[9, 0]], False),
        ("h200", [[10, 0]], True),
        ("b200", [[9, 0], [10, 0]], False),
        ("b300", [[9, 0], [10, 0]], False),  # 10.3 runs what is built for 10.0
        ("b200", [[9, 0], [10, 3]], True),  # and not the other way round
        ("rtx_pro_6000", [[9, 0], [10, 0]], True),
        ("mi300x", [[9, 0]], False),  # not NVIDIA's: it has no compute capability
        ("no-such-gpu", [[9, 0]], False),
        ("h200", None, False),
    ],
)
def test_kernels_are_built_for_the_gpu(gpu, built, refused):  # C122
    assert found(gpu=gpu, pins={"compute_capabilities": built}) == (
        ["pins.image-architecture=refuse"] if refused else []
    )
