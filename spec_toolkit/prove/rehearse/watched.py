"""What the ranks of a speculating engine said beside its answers, against what was rehearsed. Pure.

A draft that faults costs drafts and no answer, and a command that is not in force costs nothing but what it was given for: the tokens
are right either way, so that only the ranks tell.
"""

from collections.abc import Iterable, Iterator

from spec_toolkit.engine.ranks import RankState
from spec_toolkit.prove.rehearse.asking import Answers
from spec_toolkit.prove.rehearse.record import Trouble


def troubles(engine: str, heard: Iterable[tuple[str, Answers]], *, counts_faults: bool) -> tuple[Trouble, ...]:
    """Of the first answers (what they are, they themselves) that have any: counters only grow, and the later ones follow from it.

    `counts_faults`: the engine has the patch that isolates faults of the draft, and says how many there were.
    """
    for what, answers in heard:
        found = tuple(_of(engine, what, answers, counts_faults=counts_faults))
        if found:
            return found
    return ()


def _of(engine: str, what: str, answers: Answers, *, counts_faults: bool) -> Iterator[Trouble]:
    def trouble(found: str, rank: RankState | None = None) -> Trouble:
        name = f"{rank.dp}.{rank.rank}" if rank else ""
        where = f"{engine}, rank {name}" if rank else engine
        faults = tuple(sorted((rank.draft_faults or {}).items())) if rank else ()
        return Trouble(engine=engine, after=what, rank=name, faults=faults, sentence=f"{where}, {what}: {found}")

    silent = not answers.ranks or any(rank.draft_faults is None for rank in answers.ranks)
    if counts_faults and silent:
        yield trouble("its ranks do not say whether the draft faulted; that proves nothing")
    for rank in answers.ranks:
        if rank.draft_faults or rank.last_fault:
            yield trouble(f"{_faults(rank)}. See runbooks/draft-faults.md", rank)
        elif not _is_in_force(rank, answers):
            yield trouble(
                f"was told {answers.told.steps} draft steps (epoch {answers.told.epoch}), reports {rank.steps} "
                f"(epoch {rank.epoch}){f': {rank.reason}' if rank.reason else ''}. See runbooks/act-not-taken.md",
                rank,
            )
    longest = max((len(one.made.accepted_histogram or ()) for one in answers.said if one.made), default=0)
    steps = answers.told.steps
    if steps is not None and longest > steps + 1:
        yield trouble(
            f"was told {steps} draft steps, and a round accepted {longest - 1} drafts. See runbooks/act-not-taken.md"
        )


def _faults(rank: RankState) -> str:
    listed = ", ".join(f"{site} {count}" for site, count in sorted((rank.draft_faults or {}).items()))
    return f"its draft faulted ({listed or 'not counted'}); last: {rank.last_fault or 'not said'}"


def _is_in_force(rank: RankState, answers: Answers) -> bool:
    told = answers.told
    return told.steps is None or (rank.epoch, rank.steps) == (told.epoch, told.steps)
