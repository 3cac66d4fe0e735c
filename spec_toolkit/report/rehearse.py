"""A rehearsal as one page. Pure."""

from collections.abc import Iterator, Sequence

from spec_toolkit.prove.rehearse.record import Rehearsal
from spec_toolkit.prove.rehearse.run import Step
from spec_toolkit.terms import LOSSY

_WHOLE_SAMPLING = "whole-sampling"


def step_line(step: Step) -> str:
    return f"{step.seconds:7.1f} s  {step.text}"


def page(found: Rehearsal) -> str:
    head = [
        f"{found.name} [{', '.join(found.labels)}]: {_verdict(found)} at toy size; rehearsed in {found.seconds:.0f} s",
        f"  model     {found.model}, for {found.stands_for}",
        f"  draft     {found.draft}{_steps(found)}",
        f"  engines   imported in {found.import_seconds:.0f} s; started in {_starts(found)}",
    ]
    blocks = [head]
    if found.troubles:
        blocks.append(
            ["The speculating engines did not do what was asked", *(f"  {t.sentence}" for t in found.troubles)]
        )
    blocks += [
        ["Greedy, against the target alone one at a time", *_greedy(found)],
        [f"Sampled{_temperature(found)}, as distributions", *_sampled(found)],
    ]
    if found.buckets:
        blocks.append(
            [f"What drafts earned, of the tiny model and its prompts  [{', '.join(found.labels)}]", *_buckets(found)]
        )
    if found.settings:
        blocks.append(["Not as the recipe has it", *_settings(found)])
    if found.added_patches:
        blocks.append(["Patches of the engine that a deployment of the recipe does not have", *_patches(found)])
    blocks.append(["Not exercised", *(f"  {each}" for each in found.not_exercised)])
    return "\n\n".join("\n".join(block) for block in blocks)


def _verdict(found: Rehearsal) -> str:
    if not found.greedy:
        return "PROVES NOTHING (nothing was compared)"
    if not all(each.passed for each in found.greedy) or (found.sampled and not found.sampled.passed):
        return "NOT LOSSLESS"
    if found.troubles:
        return "PROVES NOTHING (the engine did not do what was asked)"
    return "greedy answers equal" if LOSSY in found.labels else "lossless"


def _steps(found: Rehearsal) -> str:
    return f"; steps while it serves: {', '.join(map(str, found.steps))}" if found.steps else ""


def _starts(found: Rehearsal) -> str:
    return ", ".join(f"{engine.seconds:.1f} s ({engine.name})" for engine in found.engines)


def _greedy(found: Rehearsal) -> Iterator[str]:
    if not found.greedy:
        yield "  not compared: nothing is drafted, and one request runs at a time"
    width = max((len(each.what) for each in found.greedy), default=0)
    for each in found.greedy:
        yield f"  {each.what:<{width}}  {each.sentence}; {each.seconds:.1f} s"


def _temperature(found: Rehearsal) -> str:
    return f" at temperature {found.sampled.temperature:g}" if found.sampled else ""


def _sampled(found: Rehearsal) -> Iterator[str]:
    sampled = found.sampled
    if sampled is None:
        yield "  not compared: " + ("the recipe's rule is a lossy one" if found.buckets else "nothing is drafted")
        return
    yield f"  {sampled.sentence}; {sampled.seconds:.1f} s"
    for place in sampled.places:
        yield f"    {place.place:<14} total variation {place.total_variation:.3f}, bound {place.bound:.3f}"


def _buckets(found: Rehearsal) -> Iterator[str]:
    yield f"  {'bucket':8} {'prompts':>7} {'tokens':>7} {'rounds':>7} {'emitted length':>15} {f'{found.together} at a time':>12}   accepted where all before it are, by position"
    for each in found.buckets:
        yield (
            f"  {each.alone.bucket:8} {each.alone.prompts:7} {each.alone.emitted_tokens:7} {each.alone.rounds:7} "
            f"{_length(each.alone.emitted_length):>15} {_length(each.together.emitted_length):>12}   {_listed(each.accepted)}"
        )
    yield f"  {'all':8} {'':7} {'':7} {'':7} {'':15} {'':12}   {_listed(found.accepted)}"
    yield (
        "  emitted length: 1 + accepted drafts / rounds. Not tokens / rounds: an answer's first token comes from prefill, and its last round may"
    )
    yield "  accept more than the answer keeps"


def _length(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _listed(values: Sequence[float]) -> str:
    return " ".join(f"{value:.2f}" for value in values)


def _settings(found: Rehearsal) -> Iterator[str]:
    width = max(len(each.key) for each in found.settings)
    for each in found.settings:
        yield f"  {each.key:<{width}}  {each.production} -> {each.rehearsed}: {each.why}"


def _patches(found: Rehearsal) -> Iterator[str]:
    others = [each for each in found.added_patches if each != _WHOLE_SAMPLING]
    if len(others) < len(found.added_patches):
        yield (
            f"  {_WHOLE_SAMPLING}: gives the verify the law that the engine without drafts samples from. Without it min_p, penalties and "
            "top_k with top_p differ from"
        )
        yield (
            "  autoregressive; a deployment has it where engine.patches names it (spec_toolkit/rehearsal/README.md, Sampling)"
        )
    if others:
        yield f"  {', '.join(others)}"
