"""The page of a rehearsal, whole; and the record that `--json` prints."""

import json

from msgspec.structs import replace

from spec_toolkit.prove.buckets import BucketRow
from spec_toolkit.prove.rehearse.record import Bucket, Greedy, Rehearsal, Sampled, SampledPlace, Started, Trouble
from spec_toolkit.prove.rehearse.settings import Setting
from spec_toolkit.report import said
from spec_toolkit.report.rehearse import page

ROW = BucketRow(bucket="chat", prompts=4, emitted_tokens=192, rounds=69, accepted_drafts=129, emitted_length=2.87)
SAME = Greedy(
    what="one at a time",
    concurrency=1,
    ranks=1,
    steps=3,
    prompts=20,
    compared_tokens=960,
    near_ties=1,
    differences=0,
    tolerance_nats=0.01,
    sentence="lossless: 20 prompts, 960 tokens equal, 1 near-ties (within 0.01 nats), 0 differences",
    seconds=9.0,
    passed=True,
)
FOUND = Rehearsal(
    name="deepseek_v3_h200",
    recipe="recipes/deepseek_v3_h200.yaml",
    sha256="sha256:" + "a" * 64,
    labels=("rehearsal",),
    draft="mtp, 3 steps, topk 1, target_only",
    model="rehearsal:deepseek_v3_tiny",
    stands_for="deepseek-ai/DeepSeek-V3-0324, DeepseekV3ForCausalLM",
    steps=(0, 1, 3),
    settings=(Setting(key="hardware.layout.tp", production="8", rehearsed="2", why="two ranks have to agree"),),
    added_patches=("cpu-plain-rope", "cpu-sampling", "whole-sampling"),
    troubles=(),
    together=8,
    engines=(Started(name="target alone", ranks=1, speculates=False, seconds=2.0, argv=("--model-path", "tiny")),),
    greedy=(SAME, replace(SAME, what="2 ranks (TP), 8 at a time", ranks=2, concurrency=8, seconds=21.3)),
    sampled=Sampled(
        temperature=1.0,
        answers=(384, 384),
        false_alarms=0.001,
        places=(SampledPlace(place="token 2", total_variation=0.039, bound=0.076),),
        passed=True,
        sentence="sampled: within bounds at 1 places",
        seconds=6.0,
    ),
    buckets=(Bucket(alone=ROW, together=replace(ROW, emitted_length=2.9), accepted=(0.74, 0.9, 0.7)),),
    accepted=(0.74, 0.9, 0.7),
    not_exercised=("kernels of H200", "speed"),
    import_seconds=12.0,
    seconds=61.0,
    passed=True,
)

PAGE = """\
deepseek_v3_h200 [rehearsal]: lossless at toy size; rehearsed in 61 s
  model     rehearsal:deepseek_v3_tiny, for deepseek-ai/DeepSeek-V3-0324, DeepseekV3ForCausalLM
  draft     mtp, 3 steps, topk 1, target_only; steps while it serves: 0, 1, 3
  engines   imported in 12 s; started in 2.0 s (target alone)

Greedy, against the target alone one at a time
  one at a time              lossless: 20 prompts, 960 tokens equal, 1 near-ties (within 0.01 nats), 0 differences; 9.0 s
  2 ranks (TP), 8 at a time  lossless: 20 prompts, 960 tokens equal, 1 near-ties (within 0.01 nats), 0 differences; 21.3 s

Sampled at temperature 1, as distributions
  sampled: within bounds at 1 places; 6.0 s
    token 2        total variation 0.039, bound 0.076

What drafts earned, of the tiny model and its prompts  [rehearsal]
  bucket   prompts  tokens  rounds  emitted length  8 at a time   accepted where all before it are, by position
  chat           4     192      69            2.87         2.90   0.74 0.90 0.70
  all                                                             0.74 0.90 0.70
  emitted length: 1 + accepted drafts / rounds. Not tokens / rounds: an answer's first token comes from prefill, and its last round may
  accept more than the answer keeps

Not as the recipe has it
  hardware.layout.tp  8 -> 2: two ranks have to agree

Patches of the engine that a deployment of the recipe does not have
  whole-sampling: gives the verify the law that the engine without drafts samples from. Without it min_p, penalties and top_k with top_p differ from
  autoregressive; a deployment has it where engine.patches names it (spec_toolkit/rehearsal/README.md, Sampling)
  cpu-plain-rope, cpu-sampling

Not exercised
  kernels of H200
  speed"""


def test_the_page() -> None:
    assert page(FOUND) == PAGE


def test_a_difference_stands_in_the_first_line() -> None:
    differs = replace(
        SAME, differences=3, passed=False, sentence="not lossless: 3 of 20 prompts part. See runbooks/x.md"
    )
    red = page(replace(FOUND, greedy=(differs,), passed=False))
    assert red.startswith("deepseek_v3_h200 [rehearsal]: NOT LOSSLESS")
    assert "3 of 20 prompts part. See runbooks/x.md" in red


def test_without_drafts_and_under_a_lossy_rule_nothing_is_sampled_and_the_page_says_why() -> None:
    plain = page(replace(FOUND, sampled=None, buckets=(), steps=()))
    assert "not compared: nothing is drafted" in plain
    assert "What drafts earned" not in plain
    lossy = page(replace(FOUND, sampled=None, labels=("lossy", "rehearsal")))
    assert "not compared: the recipe's rule is a lossy one" in lossy
    assert lossy.startswith("deepseek_v3_h200 [lossy, rehearsal]: greedy answers equal at toy size")


def test_a_draft_that_faulted_stands_in_the_first_line_although_every_answer_is_right() -> None:
    sentence = "speculating, rank 0.0, one at a time: its draft faulted (draft 1); last: draft: OSError: no"
    trouble = Trouble(
        engine="speculating", after="one at a time", rank="0.0", faults=(("draft", 1),), sentence=sentence
    )
    text = page(replace(FOUND, troubles=(trouble,), passed=False))
    assert text.startswith("deepseek_v3_h200 [rehearsal]: PROVES NOTHING (the engine did not do what was asked)")
    assert f"did not do what was asked\n  {sentence}\n" in text
    differs = replace(SAME, differences=3, passed=False)
    assert "]: NOT LOSSLESS" in page(replace(FOUND, greedy=(differs,), troubles=(trouble,), passed=False))


def test_what_whole_sampling_is_for_is_said_only_where_the_rehearsal_added_it() -> None:
    without = page(replace(FOUND, added_patches=("cpu-plain-rope",)))
    assert "does not have\n  cpu-plain-rope\n" in without
    assert "whole-sampling" not in without
    assert "Patches of the engine" not in page(replace(FOUND, added_patches=()))


def test_the_record_holds_all_that_the_page_shows() -> None:
    record = json.loads(said.as_json(FOUND))
    assert set(record) == set(Rehearsal.__struct_fields__)
    assert record["passed"] is True
    assert record["greedy"][0].keys() == set(Greedy.__struct_fields__)
    assert record["engines"][0]["argv"] == ["--model-path", "tiny"]
    assert record["buckets"][0]["alone"]["emitted_length"] == 2.87
