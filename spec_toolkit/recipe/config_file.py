"""A file of --config, merged in front of the flags as the engine merges it: what stands in the command line wins. Pure but for the reader."""

import json
from collections.abc import Callable, Iterator, Sequence

from spec_toolkit.engine.command_line.say import shown
from spec_toolkit.engine.command_line.table import FlagRow, flag_table
from spec_toolkit.engine.command_line.words import Word
from spec_toolkit.engine.flags import Flag
from spec_toolkit.errors import Finding, RecipeError, correct, refuse, warn
from spec_toolkit.recipe.documents import Plain, read_documents

_FLAG = Flag.CONFIG.value
_SPELLINGS = {_FLAG, _FLAG[:-1], _FLAG[:-2]}  # abbreviations that the parser takes, and then nobody reads the file
_WOULD_NOT_START = "the engine would not start"


def merge_config(
    words: Sequence[Word], open_file: Callable[[str], bytes] | None
) -> tuple[list[Word], list[Word], list[Finding]]:
    """What the file holds, as words, and the command's own words without --config; the engine reads them in this order."""
    kept, files, findings = _split(words)
    if len(files) > 1:
        findings.append(refuse("command.config-file", _FLAG, "is written twice", _WOULD_NOT_START))
    if not files:
        return [], kept, findings
    if files[0].unknown or not files[0].text:
        found = f"is {shown(files[0].text)}, whose value is not known here"
        findings.append(warn("command.variable", _FLAG, found, remedy="What the file holds was not looked at."))
        return [], kept, findings
    held, more = _read(files[0].text, open_file)
    return held, kept, [*findings, *more]


def _split(words: Sequence[Word]) -> tuple[list[Word], list[Word], list[Finding]]:
    kept: list[Word] = []
    files: list[Word] = []
    findings: list[Finding] = []
    rest = iter(words)
    for word in rest:
        name, joined, value = word.text.partition("=")
        if name not in _SPELLINGS:
            kept.append(word)
            continue
        file = Word(value, word.unknown) if joined else next(rest, None)
        if file is None:
            findings.append(refuse("command.missing-value", _FLAG, "has no value", _WOULD_NOT_START))
            continue
        files.append(file)
        if word.text != _FLAG:
            found, why = "would be ignored", "the engine reads the file only behind the whole word --config and a blank"
            remedy = f"Read as it was meant: write {_FLAG} {shown(file.text)}."
            findings.append(correct("command.config-ignored", shown(word.text), found, why, remedy))
    return kept, files, findings


def _read(name: str, open_file: Callable[[str], bytes] | None) -> tuple[list[Word], list[Finding]]:
    if not name.lower().endswith((".yaml", ".yml")):
        found = f"is {shown(name)}; a name that ends in .yaml or .yml is needed"
        return [], [refuse("command.config-file", _FLAG, found, _WOULD_NOT_START)]
    if open_file is None:
        found = f"names {shown(name)}, which is not on this machine"
        return [], [warn("command.config-file", _FLAG, found, remedy="What it holds was not looked at.")]
    try:
        documents = read_documents(open_file(name), shown(name))
    except RecipeError as error:
        found = "; ".join(finding.found for finding in error.findings)
        return [], [refuse("command.config-file", _FLAG, f"{shown(name)}: {found}", _WOULD_NOT_START)]
    except OSError as error:
        found = f"{shown(name)} cannot be read ({(error.strerror or 'no such file').lower()})"
        return [], [refuse("command.config-file", _FLAG, found, _WOULD_NOT_START)]
    data = documents[0].value if documents else None
    if not isinstance(data, dict | None) or len(documents) > 1:
        found = f"{shown(name)} is not one group of keys"
        return [], [refuse("command.config-file", _FLAG, found, _WOULD_NOT_START)]
    words: list[Word] = []
    findings: list[Finding] = []
    by_key = sorted(
        flag_table().by_name.values(), key=lambda row: row.in_config
    )  # a key that one flag can read stays usable
    rows = {key: row for row in by_key for key in _keys_of(row)}
    for key, value in (data or {}).items():
        row = rows.get(key.replace("-", "_"))
        if row is not None and not row.in_config:
            found = f"{shown(name)} holds '{shown(key)}', which the engine takes in the command line only"
            findings.append(refuse("command.config-file", _FLAG, found, _WOULD_NOT_START))
        else:
            words += _words_of(key, value, row)
    return words, findings


def _keys_of(row: FlagRow) -> Iterator[str]:
    yield row.dest
    yield from (name[2:].replace("-", "_") for name in row.names if name.startswith("--"))


def _words_of(key: str, value: Plain, row: FlagRow | None) -> list[Word]:
    """As the engine's merger writes them; a switch that is false is left out."""
    flag = Word(f"--{key}")
    match value:
        case bool() if row is not None and row.takes == "none":
            return [flag] if value else []
        case bool():
            return [flag, Word(str(value).lower())]
        case list():
            return [flag, *(Word(str(item)) for item in value)] if value else []
        case dict():
            return [flag, Word(json.dumps(value))]
        case _:
            return [flag, Word(str(value))]
