"""The words of a command line. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Word:
    text: str
    unknown: bool = False  # a part of it is a variable or a command whose result only the shell knows
    many: bool = False  # unknown and without quotes: it may become several words, or none


def visible(text: str) -> str:
    """Without what a terminal would obey; line breaks and tabs stay."""
    return text if text.isprintable() else "".join(c if c.isprintable() or c in "\n\t" else "�" for c in text)
