"""Situations for tests of rules about a launch: what is asked, of which model, where."""

from collections.abc import Iterable
from typing import Any

from spec_toolkit.errors import Finding
from spec_toolkit.planning.situation import Situation
from tests.planning.field_cases import build

V3, V32, V4 = "DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "DeepseekV4ForCausalLM"
GLM, GEMMA = "GlmMoeDsaForCausalLM", "Gemma4ForConditionalGeneration"
ASSISTANT = {"architectures": ["Gemma4AssistantForCausalLM"]}


def launch(architecture: str | None = V3, *, model: str | None = None, **asked: Any) -> Situation:
    """Arguments, and the parts of a field case: gpu, count, nodes, env, pins, draft, workload; `model` is one of the tables'."""
    parts = {
        name: asked.pop(name) for name in ("gpu", "count", "nodes", "env", "pins", "draft", "workload") if name in asked
    }
    target: dict[str, Any] = {"architectures": [architecture]} if architecture else {}
    return build({"server_args": asked, "target": {"model": model} if model else target, **parts})


def said(findings: Iterable[Finding]) -> list[tuple[str, str, str]]:
    return [(f.rule, f.verdict.value, f.where) for f in findings]
