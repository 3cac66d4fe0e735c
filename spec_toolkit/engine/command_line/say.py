"""Words of a command as messages show them. Pure."""

from spec_toolkit.engine.secrets import without_secrets

_LONGEST = 80  # characters of a word that a message shows


def shown(text: str) -> str:
    """A word as it may stand in a message: printable, short, without what looks like a key."""
    clean = "".join(c if c.isprintable() else "�" for c in without_secrets(text[:4096])[: _LONGEST + 1])
    return clean if len(clean) <= _LONGEST else clean[: _LONGEST - 1] + "…"
