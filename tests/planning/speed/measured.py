"""Evidence for tests: rows that nobody measured, of the shipped H200 recipe with a revision."""

from typing import Any

from spec_toolkit.facts.evidence import (
    DraftMeasured,
    Evidence,
    Identity,
    LayoutMeasured,
    Prompts,
    Row,
    TargetMeasured,
    Workload,
)
from spec_toolkit.terms import Acceptance, Method

REVISION = "0123456789abcdef0123456789abcdef01234567"


def identity(**changed: Any) -> Identity:
    fields: dict[str, Any] = {
        "target": TargetMeasured(model="deepseek-ai/DeepSeek-V3-0324", revision=REVISION, quantization="fp8"),
        "draft": DraftMeasured(method=Method.MTP, model="same"),
        "gpu": "h200",
        "count": 8,
        "layout": LayoutMeasured(tp=8),
        "acceptance": Acceptance.TARGET_ONLY,
        "sglang": "0.5.23",
        "workload": Workload(name="a test's prompts", prompts=Prompts.DATASET),
    }
    return Identity(**{**fields, **changed})


def plain(batch: int, tokens_per_second: float) -> Row:
    return Row(batch=batch, num_steps=None, tokens_per_second=tokens_per_second)


def drafting(batch: int, num_steps: int, tokens_per_second: float, length: float, **changed: Any) -> Row:
    return Row(batch=batch, num_steps=num_steps, tokens_per_second=tokens_per_second, emitted_length=length, **changed)


def evidence(*rows: Row, simulated: bool = False, **changed: Any) -> Evidence:
    return Evidence(identity=identity(**changed), rows=rows, simulated=simulated)
