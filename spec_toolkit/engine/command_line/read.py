"""From the words of a launch to what it asks of the engine. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spec_toolkit.engine.arguments import Arguments
from spec_toolkit.engine.command_line.parse import Parsed, Written, parse_words
from spec_toolkit.engine.command_line.values import Value
from spec_toolkit.engine.command_line.words import Word
from spec_toolkit.engine.flags import Flag
from spec_toolkit.errors import Finding, refuse

_FIELDS = frozenset(Arguments.__struct_fields__) - {"others"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    arguments: Arguments
    written: tuple[Written, ...]
    findings: tuple[Finding, ...]


def read_flags(words: Sequence[Word]) -> Asked:
    parsed = parse_words(words)
    _complete(parsed)
    written = tuple(parsed.written.values())
    return Asked(arguments=arguments_of(parsed.values), written=written, findings=tuple(parsed.findings))


def arguments_of(values: Mapping[str, Value]) -> Arguments:
    """Of values by destination, as the parser stored them."""
    known = {name: _frozen(value) for name, value in values.items() if name in _FIELDS and value is not None}
    others = tuple(sorted(values.keys() - _FIELDS))
    return Arguments(**known, others=others)  # type: ignore[arg-type]  # a test holds each field's type against the table


def _frozen(value: Value) -> Value | tuple[Value, ...]:
    return tuple(value) if isinstance(value, list) else value


def _complete(parsed: Parsed) -> None:
    """What only the whole line shows."""
    if "model_path" not in parsed.written:
        found = "no model is named"
        parsed.say(refuse("command.no-model", Flag.MODEL, found, "the engine would not start", f"Add {Flag.MODEL}."))
