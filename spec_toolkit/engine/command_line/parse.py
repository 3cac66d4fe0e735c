"""Reads the words behind `launch_server` or `serve` as argparse of the engine does, but says everything that is wrong, not the first. Pure.

As argparse: an abbreviation that fits one flag is that flag, one that fits several is refused; `--flag=value` gives exactly one value; of
a flag that is written twice the last holds; a negative number is a value. A flag that an earlier release had is read as its successor.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from spec_toolkit.engine.command_line.retired import FOREIGN, RETIRED, Retired
from spec_toolkit.engine.command_line.say import shown
from spec_toolkit.engine.command_line.table import FlagRow, FlagTable, flag_table
from spec_toolkit.engine.command_line.values import UnfitError, Value, read_value
from spec_toolkit.engine.command_line.words import Word, visible
from spec_toolkit.engine.secrets import SECRET, is_secret_destination, without_secrets
from spec_toolkit.errors import Finding, correct, note, refuse, warn

MOST_FINDINGS = 50  # of a line that is no launch at all
_NEGATIVE = re.compile(r"-\d+|-\d*\.\d+")
_PLACES = {
    "host",
    "port",
    "node_rank",
    "dist_init_addr",
    "nccl_port",
}  # of one machine among many: nothing is planned from them
_WOULD_NOT_START = "the engine would not start"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One flag of a command, as the engine understands it."""

    flag: str  # the engine's own spelling, "--tp-size", though "--tp" was written
    destination: str  # the engine's name for it, "tp_size"
    values: tuple[str, ...] = ()  # empty: a switch; a secret's are "***"
    unknown: bool = False  # a shell variable stands in a value: what it holds is not known here


@dataclass(slots=True, kw_only=True)
class Parsed:
    values: dict[str, Value] = field(default_factory=dict)  # by destination; what is unknown is left out
    written: dict[str, Written] = field(default_factory=dict)  # by destination, in the order last written
    findings: list[Finding] = field(default_factory=list)

    def say(self, finding: Finding) -> None:
        if len(self.findings) < MOST_FINDINGS:
            self.findings.append(finding)


def parse_words(words: Sequence[Word]) -> Parsed:
    reader = _Reader(flag_table(), words)
    while reader.at < len(words):
        reader.step()
    reader.follow()
    return reader.parsed


class _Reader:
    """Goes through the words once, a flag with its values at a time."""

    def __init__(self, table: FlagTable, words: Sequence[Word]) -> None:
        self.parsed = Parsed()
        self.at = 0
        self._table = table
        self._words = words
        self._same_as: dict[str, str] = {}  # destination: the one whose value it takes

    def step(self) -> None:
        word = self._words[self.at]
        self.at += 1
        if word.text == "--":
            self.parsed.say(refuse("command.stray-word", "command", "'--' ends the flags", _WOULD_NOT_START))
            self.at = len(self._words)
        elif self._is_value(word):
            self._stray(word)
        else:
            self._flag(word)

    def follow(self) -> None:
        """Gives a flag that takes the value of another one that value, once all are read."""
        for destination, other in self._same_as.items():
            row, source = self._row_of(destination), self._row_of(other)
            value = self.parsed.values.get(other)
            if value is None:
                found = f"would have the value of {source.names[0]}, which is not written"
                self.parsed.say(refuse("command.value", row.names[0], found))
            else:
                self._keep(row, row.names[0], [str(value)])

    def _flag(self, word: Word) -> None:
        name, mark, joined = word.text.partition("=")
        given = Word(joined, word.unknown) if mark else None
        if name in RETIRED:
            self._retired(name, RETIRED[name], given)
        elif row_and_name := self._find(name):
            self._take(*row_and_name, given)
        else:
            self._unknown_flag(name, word)

    def _find(self, name: str) -> tuple[FlagRow, str] | None:
        """The flag and its full name; None where it is none or could be several."""
        if name in self._table.by_name:
            return self._table.by_name[name], name
        fitting = self._fitting(name)
        return (self._table.by_name[fitting[0]], fitting[0]) if len(fitting) == 1 else None

    def _fitting(self, abbreviation: str) -> tuple[str, ...]:
        is_long = abbreviation.startswith("--") and len(abbreviation) > 2
        return self._table.beginning_with(abbreviation) if is_long else ()

    def _is_value(self, word: Word) -> bool:
        text = word.text
        if len(text) < 2 or not text.startswith("-"):
            return True
        name = text.partition("=")[0]
        if text == "--" or name in RETIRED or name in self._table.by_name or self._fitting(name):
            return False
        return bool(_NEGATIVE.fullmatch(text)) or " " in text

    def _values(self, takes: str) -> list[Word]:
        most = {"none": 0, "one": 1, "maybe": 1}.get(takes, len(self._words))
        taken: list[Word] = []
        while len(taken) < most and self.at < len(self._words) and self._is_value(self._words[self.at]):
            if self._words[self.at].many and taken:  # behind a value, it is as likely to hold further flags
                break
            taken.append(self._words[self.at])
            self.at += 1
        return taken

    def _take(self, row: FlagRow, name: str, given: Word | None, renamed: Retired | None = None) -> None:
        """Reads a flag's values and keeps them."""
        if row.dest == "help":
            self.parsed.say(refuse("command.help", name, "prints the engine's help; nothing is launched"))
            return
        if row.takes == "none" and given is not None:
            self.parsed.say(refuse("command.value", name, "is a switch and takes no value", _WOULD_NOT_START))
            return
        values = [given] if given is not None else self._values(row.takes)
        if row.takes in {"one", "many"} and not values:
            self.parsed.say(refuse("command.missing-value", name, "has no value", _WOULD_NOT_START))
            return
        if renamed:
            values = [Word(renamed.values.get(value.text, value.text), value.unknown) for value in values]
        if row.instead:
            found = "is still taken, with a warning that it will be removed"
            self.parsed.say(note("command.deprecated", name, found, remedy=f"Write {row.instead}."))
        unknown = next((value for value in values if value.unknown), None)
        if unknown is not None and not is_secret_destination(row.dest):
            self.parsed.values.pop(row.dest, None)
            self._write(row, name, [shown(value.text) for value in values], unknown=True)
            if row.dest in _PLACES:
                self.parsed.values |= {row.dest: shown(unknown.text)} if row.type == "text" else {}
            else:
                found = f"is {shown(unknown.text)}, whose value is not known here"
                remedy = "Planned as if the flag were not there: write its value."
                self.parsed.say(warn("command.variable", name, found, remedy=remedy))
            return
        self._keep(row, name, [value.text for value in values])

    def _keep(self, row: FlagRow, name: str, texts: list[str]) -> None:
        is_secret = is_secret_destination(row.dest)
        read: list[Value] = []
        for text in texts:
            try:
                read.append(SECRET if is_secret else read_value(row, without_secrets(visible(text))))
            except UnfitError as error:
                remedy = f"Did you mean '{error.nearest}'?" if error.nearest else ""
                self.parsed.say(refuse("command.value", name, f"is '{shown(text)}'", error.needed, remedy))
                return
        self.parsed.values[row.dest] = _stored(row, name, read)
        self._write(row, name, [SECRET if is_secret else without_secrets(text) for text in texts])

    def _write(self, row: FlagRow, name: str, values: Sequence[str], *, unknown: bool = False) -> None:
        self.parsed.written.pop(row.dest, None)
        written = Written(flag=row.name_for(name), destination=row.dest, values=tuple(values), unknown=unknown)
        self.parsed.written[row.dest] = written

    def _stray(self, word: Word) -> None:
        if word.many:
            found = f"{shown(word.text)} may hold further flags, and is not known here"
            remedy = "Write them out to have them looked at."
            self.parsed.say(warn("command.variable", "command", found, remedy=remedy))
        elif word.text:
            found = f"the word '{shown(word.text)}' belongs to no flag"
            self.parsed.say(refuse("command.stray-word", "command", found, _WOULD_NOT_START))
        else:
            self.parsed.say(
                refuse("command.stray-word", "command", "an empty word belongs to no flag", _WOULD_NOT_START)
            )

    def _unknown_flag(self, name: str, word: Word) -> None:
        self._values("any")  # what belongs to it is neither stray nor shown: it may be a secret
        fitting = self._fitting(name)
        if word.unknown and "$" in name:
            found = f"{shown(name)} is a flag that is not known here"
            self.parsed.say(warn("command.variable", "command", found, remedy="Write it out to have it looked at."))
        elif fitting:
            found = f"fits {len(fitting)} flags ({', '.join(fitting[:4])}{', …' if len(fitting) > 4 else ''})"
            remedy = "Write the one you mean."
            self.parsed.say(refuse("command.ambiguous-flag", shown(name), found, _WOULD_NOT_START, remedy))
        else:
            found = f"is not a flag of sglang {self._table.version}"
            self.parsed.say(refuse("command.unknown-flag", shown(name), found, _WOULD_NOT_START, self._nearest(name)))

    def _nearest(self, name: str) -> str:
        if name in FOREIGN:
            return f"It is vLLM's; '{FOREIGN[name]}' is the nearest here."
        if len(self.parsed.findings) >= MOST_FINDINGS:
            return ""
        dashed = "--" + name[:60].lstrip("-").replace("_", "-")
        close = [*self._fitting(dashed)[:1]] or get_close_matches(dashed, self._table.by_name, n=1)
        return f"Did you mean '{close[0]}'?" if close else ""

    def _retired(self, name: str, retired: Retired, given: Word | None) -> None:
        found = f"is not a flag of sglang {self._table.version} any more"
        if not retired.instead:
            if given is None and retired.takes_value:
                self._values("one")
            remedy = "Planned without it: leave it out." if retired.harmless else ""
            say, rule = (correct, "command.renamed") if retired.harmless else (refuse, "command.unknown-flag")
            self.parsed.say(say(rule, name, found, retired.why, remedy))
            return
        row, instead = self._table.by_name[retired.instead], retired.instead
        planned = instead
        if retired.value_of:
            self._same_as[row.dest] = retired.value_of
            planned = f"{instead} at the value of {self._row_of(retired.value_of).names[0]}"
        elif retired.value is not None:
            self._keep(row, instead, [retired.value])
            planned = f"{instead} {retired.value}"
        else:
            self._take(row, instead, given, retired)
        remedy = f"Planned with {planned}; write that."
        self.parsed.say(correct("command.renamed", name, found, f"it became {instead}", remedy))

    def _row_of(self, destination: str) -> FlagRow:
        return next(row for row in self._table.by_name.values() if row.dest == destination)


def _stored(row: FlagRow, name: str, read: list[Value]) -> Value:
    match row.takes:
        case "none":
            return not (row.negatable and name.startswith("--no-"))
        case "many" | "any":
            return read
        case "maybe" if not read:
            return row.stores
        case _:
            return read[0] if row.stores is None or row.takes == "maybe" else row.stores
