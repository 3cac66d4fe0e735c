"""Quotes inside a shell's `${NAME:-…}`. Pure."""

import shlex

from spec_toolkit.engine.command_line.words import Word
from spec_toolkit.errors import RecipeError


def without_quotes(text: str, *, quoted: bool, whole: bool) -> str | tuple[Word, ...]:
    """What stands behind `:-`, without its quotes; `quoted`: a ' in it is a letter; `whole`: it is one word whatever blanks it has."""
    if not set(text) & set("'\"\\"):
        return text
    lexer = shlex.shlex(text, posix=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    lexer.whitespace = "" if whole else lexer.whitespace
    lexer.quotes = '"' if quoted else lexer.quotes
    try:
        words = tuple(Word(word) for word in lexer)
    except ValueError:
        raise unclosed("a quote") from None
    return "".join(word.text for word in words) if whole else words


def unclosed(mark: str) -> RecipeError:
    return RecipeError.of(
        "command.quote",
        "command",
        f"{mark} is opened and never closed",
        remedy="Paste the whole command, quotes included.",
    )
