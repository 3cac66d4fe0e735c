"""A recipe's one escape hatch, read as the engine will: what it asks, and what is wrong with how it is written. Pure."""

from collections.abc import Iterator
from dataclasses import replace

from spec_toolkit.engine.arguments import Arguments
from spec_toolkit.errors import Finding, Verdict
from spec_toolkit.recipe.schema import ExtraArg

# Few recipes have one, and the engine's whole flag table is read for it: it is imported where one is there.

_AS_WRITTEN = "It is handed over as written, and the engine would not start: write what it became, or leave it out."


def arguments_of_extra(extra: tuple[ExtraArg, ...]) -> Arguments:
    if not extra:
        return Arguments()
    from spec_toolkit.engine.command_line.parse import parse_words  # noqa: PLC0415 - see above
    from spec_toolkit.engine.command_line.read import arguments_of  # noqa: PLC0415 - see above
    from spec_toolkit.engine.command_line.words import Word  # noqa: PLC0415 - see above

    return arguments_of(parse_words([Word(written(arg)) for arg in extra]).values)


def places_of(extra: tuple[ExtraArg, ...]) -> dict[str, str]:
    """Keys of a recipe by the engine's name for what is written there."""
    if not extra:
        return {}
    from spec_toolkit.engine.command_line.parse import parse_words  # noqa: PLC0415 - see above
    from spec_toolkit.engine.command_line.words import Word  # noqa: PLC0415 - see above

    return {
        name: f"engine.extra_args[{number}].flag"
        for number, arg in enumerate(extra)
        for name in parse_words([Word(written(arg))]).written
    }


def misread(arg: ExtraArg, where: str) -> Iterator[Finding]:
    """What the engine's parser would say of it. A launch hands it over as it is written, so nothing of it is corrected."""
    from spec_toolkit.engine.command_line.parse import parse_words  # noqa: PLC0415 - see above
    from spec_toolkit.engine.command_line.words import Word  # noqa: PLC0415 - see above

    findings = parse_words([Word(written(arg))]).findings
    renamed = [
        replace(finding, verdict=Verdict.REFUSE, remedy=_AS_WRITTEN)
        for finding in findings
        if finding.verdict is Verdict.CORRECT
    ]
    for finding in renamed or findings:
        found = f"{finding.where} {finding.found}" if finding.where.startswith("-") else finding.found
        yield replace(finding, where=where, found=found)


def written(arg: ExtraArg) -> str:
    """As one word of a command line."""
    return arg.flag if arg.value is None else f"{arg.flag}={arg.value}"
