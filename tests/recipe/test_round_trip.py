from pathlib import Path
from typing import Any

import msgspec
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from spec_toolkit.recipe.load import parse_recipe
from spec_toolkit.recipe.schema import Draft, Engine, ExtraArg, Graphs, Hardware, Layout, Limits, Policy, Recipe, Target
from spec_toolkit.terms import Acceptance, Comeback, Method, Mode, RanksAfterFault

hexadecimal = st.text("0123456789abcdef", min_size=64, max_size=64)
sha256 = hexadecimal.map("sha256:{}".format)
commit = st.one_of(hexadecimal.map(lambda digits: digits[:40]), sha256)
line = st.text(st.characters(exclude_categories=["C"]), min_size=1, max_size=300)
word = st.from_regex(r"[a-z0-9][a-z0-9_.-]{0,20}", fullmatch=True)
model = st.one_of(
    st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,20}/[A-Za-z0-9_.-]{1,20}", fullmatch=True),
    st.from_regex(r"rehearsal:[a-z0-9_]{1,20}", fullmatch=True),
    st.from_regex(r"(/|\./|\.\./|~/)[A-Za-z0-9_ ./-]{1,20}", fullmatch=True),
)
count = st.integers(1, 1024)
requests = st.integers(1, 65_536)
tokens = st.integers(1, 2**40)
steps = st.integers(1, 64)
gib = st.floats(1e-6, 65_536)
seconds = st.floats(1e-6, 1_000_000)
threshold = st.floats(1e-6, 1)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


recipes = st.builds(
    Recipe,
    summary=line,
    target=st.builds(Target, model=model, revision=maybe(commit), tokenizer=maybe(sha256), quantization=maybe(word)),
    draft=st.builds(
        Draft,
        method=st.sampled_from(Method),
        model=st.just("same") | model,
        revision=maybe(commit),
        num_steps=maybe(steps),
        topk=steps,
        num_draft_tokens=maybe(st.integers(2, 1024)),
        block_tokens=maybe(count),
        acceptance=st.sampled_from(Acceptance),
        accept_threshold_single=maybe(threshold),
        accept_threshold_accumulated=maybe(threshold),
    ),
    hardware=st.builds(
        Hardware,
        gpu=word,
        count=count,
        nodes=count,
        layout=st.builds(Layout, tp=count, dp=count, ep=count, dp_attention=st.booleans()),
    ),
    engine=st.builds(
        Engine,
        sglang=st.from_regex(r"[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}(rc[0-9])?", fullmatch=True),
        image=maybe(hexadecimal.map("lmsysorg/sglang@sha256:{}".format)),
        patches=st.lists(word, max_size=3).map(tuple),
        overlap=st.booleans(),
        dtype=maybe(word),
        attention_backend=maybe(word),
        extra_args=st.lists(
            st.builds(
                ExtraArg,
                flag=st.from_regex(r"--[a-z0-9][a-z0-9-]{0,20}", fullmatch=True),
                why=line,
                value=maybe(line | st.integers(-(10**17), 10**17) | st.floats(-1e6, 1e6)),
            ),
            max_size=3,
        ).map(tuple),
    ),
    limits=st.builds(
        Limits,
        max_running_requests=requests,
        context_tokens=tokens,
        kv_pool_tokens=maybe(tokens),
        memory_fraction=maybe(st.floats(0.01, 0.99)),
        draft_weights_gib=maybe(gib),
        draft_kv_gib=maybe(gib),
        temporary_kv_gib=maybe(gib),
    ),
    graphs=st.builds(Graphs, decode_batch_sizes=maybe(st.lists(requests, max_size=5).map(tuple))),
    policy=st.builds(
        Policy,
        allow=st.lists(st.sampled_from(Mode), max_size=4).map(tuple),
        reduced_steps=maybe(st.lists(steps, max_size=3).map(tuple)),
        dwell_seconds=seconds,
        window_seconds=seconds,
        queue_high=requests,
        cool_down_seconds=seconds,
        crash_cool_down_seconds=seconds,
        comeback=st.sampled_from(Comeback),
        ranks_after_draft_fault=st.sampled_from(RanksAfterFault),
        ready_seconds=seconds,
        drain_seconds=seconds,
        watchdog_seconds=seconds,
        resume_deadline_seconds=seconds,
        max_waiting_requests=requests,
    ),
    evidence=maybe(st.from_regex(r"evidence/[a-z0-9_]{1,20}\.json", fullmatch=True)),
    simulated=st.booleans(),
)


@settings(deadline=None, max_examples=50)  # no deadline: a shared machine now and then stands still for seconds
@given(recipes)
def test_a_recipe_written_as_yaml_is_loaded_as_it_was(recipe: Recipe) -> None:
    text = yaml.safe_dump(msgspec.to_builtins(recipe), sort_keys=False, allow_unicode=True, width=10_000)
    assert parse_recipe(text.encode(), Path("x.yaml")).recipe == recipe
