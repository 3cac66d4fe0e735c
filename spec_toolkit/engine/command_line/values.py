"""Turns the text of a value into what the engine's parser would make of it, or says why it would not. Pure."""

import json
import re
from decimal import Decimal
from difflib import get_close_matches

from spec_toolkit.engine.command_line.table import FlagRow

Value = str | int | float | bool | list["Value"] | dict[str, "Value"] | None

_SIZE = re.compile(r"(\d{1,30}(?:\.\d{1,30})?)(Ki|Mi|Gi|Ti|k|M|G|T)")
_FACTOR = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_NEEDED = {
    "int": "a whole number",
    "float": "a number",
    "size": "a whole number, or one with k, M, G, T or Ki, Mi, Gi, Ti",
    "json": "JSON",
}
_MOST_NAMED = 14  # choices that a message lists; of more, the nearest


class UnfitError(Exception):
    """Carries what is needed instead, and the nearest choice where there is one."""

    def __init__(self, needed: str, nearest: str = "") -> None:
        super().__init__(needed)
        self.needed = needed
        self.nearest = nearest


def read_value(row: FlagRow, text: str) -> Value:
    """UnfitError where the engine's parser would refuse the text."""
    try:
        value = _convert(row.type, text)
    except (ValueError, RecursionError):
        raise UnfitError(f"{_NEEDED[row.type]} is needed") from None
    if row.choices and value not in [_convert(row.type, choice) for choice in row.choices]:
        close = get_close_matches(text[:60], row.choices, n=3)
        if len(row.choices) <= _MOST_NAMED:
            raise UnfitError(f"one of {', '.join(row.choices)} is needed", close[0] if close else "")
        among = f"such as {', '.join(close)}" if close else f"{row.choices[0]} among them"
        raise UnfitError(f"one of {len(row.choices)} words is needed, {among}", close[0] if close else "")
    return value


def _convert(kind: str, text: str) -> Value:
    match kind:
        case "int":
            return int(text)
        case "float":
            return float(text)
        case "size":
            return _size(text.strip())
        case "json":
            value: Value = json.loads(text)
            return value
        case _:
            return text


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None:
        return int(text)
    number, unit = match.groups()
    if "." in number and unit.endswith("i"):
        raise ValueError(text)
    return int(Decimal(number) * _FACTOR[unit])
