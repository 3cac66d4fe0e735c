"""Makes what was pasted plain: line breaks of one kind, blanks that are blanks, nothing that cannot be seen. Pure."""

import re

from spec_toolkit.errors import Finding, RecipeError, correct

_NO_BLANKS = re.compile("[\xa0\u2000-\u200a\u202f\u205f\u3000]")


def plain_text(text: str) -> tuple[str, list[Finding]]:
    """RecipeError for a character that a terminal would obey or nobody would see."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    plain = _NO_BLANKS.sub(" ", lines)
    for number, line in enumerate(plain.split("\n"), start=1):
        hidden = next((c for c in line if not c.isprintable() and c != "\t"), None)
        if hidden:
            found = f"line {number} holds the character U+{ord(hidden):04X}, which cannot be seen"
            raise RecipeError.of("command.encoding", "command", found, remedy="Delete it.")
    if plain == lines:
        return plain, []
    found, why = "holds blanks that the shell takes for letters", "such as the no-break space of a web page"
    return plain, [correct("command.blanks", "command", found, why, "Read as blanks: type them anew.")]
