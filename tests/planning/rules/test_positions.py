import pytest

from spec_toolkit.planning.rules import positions
from tests.planning.field_cases import build

V3 = {"model": "deepseek-ai/DeepSeek-V3-0324"}
SHORT = {"architectures": ["DeepseekV3ForCausalLM"], "max_position_embeddings": 4096}


@pytest.mark.parametrize(
    ("target", "tokens", "env", "expected"),
    [
        pytest.param(V3, 163_841, {}, "refuse", id="one-more"),
        pytest.param(V3, 163_840, {}, None, id="near-miss-all-positions"),
        pytest.param(V3, None, {}, None, id="near-miss-left-to-the-engine"),
        pytest.param(V3, 163_841, {positions.STRETCHES: "true"}, "warn", id="stretched"),
        pytest.param(V3, 163_841, {positions.STRETCHES: "on"}, "refuse", id="not-a-word-that-the-engine-knows"),
        pytest.param(SHORT, 4097, {}, "refuse", id="of-a-folder"),
        pytest.param(
            SHORT | {"rope_scaling": {"type": "linear", "factor": 2}}, 8192, {}, None, id="a-rope-that-counts"
        ),
        pytest.param(
            SHORT | {"rope_scaling": {"type": "yarn", "factor": 2}},
            4097,
            {},
            "refuse",
            id="near-miss-one-that-does-not",
        ),
        pytest.param({}, 4097, {}, None, id="near-miss-nobody-knows"),
    ],
)
def test_a_context_is_within_the_positions(target, tokens, env, expected):
    asked = {} if tokens is None else {"context_length": tokens}
    found = list(positions.context(build({"server_args": asked, "target": target, "env": env})))
    said = [(f.rule, f.where, f.verdict.value) for f in found]
    assert said == ([("positions.context", "context_length", expected)] if expected else [])
