"""The words of a command line, and what may not be said of them. Pure."""

import re
from dataclasses import dataclass

SECRET = "***"  # noqa: S105 - what stands in place of one

_SECRET_PARTS = {"TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS", "APIKEY", "KEY", "AUTH"}  # fmt: skip
_SECRET_DESTINATIONS = {"api_key", "admin_api_key", "ssl_keyfile_password", "watermark_key", "watermark_key_b"}
# Keys as their makers shape them; a folder may be called hf_models.
_LOOKS_SECRET = re.compile(
    r"(hf_|ghp_|nvapi-|glpat-|AKIA)[A-Za-z0-9]{16,}|(?<![A-Za-z0-9])(sk-|xox[bp]-|eyJ)[\w.-]{16,}"
)
_LOGIN = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_HARMLESS = re.compile(r"|true|false|\d{1,3}", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Word:
    text: str
    unknown: bool = False  # a part of it is a variable or a command whose result only the shell knows
    many: bool = False  # unknown and without quotes: it may become several words, or none


def is_secret_destination(dest: str) -> bool:
    return dest in _SECRET_DESTINATIONS or dest.startswith("watermark_key")


def is_secret_variable(name: str, value: str) -> bool:
    """Whether an environment variable holds what nobody else may read; SGLANG_…_TOKENS_… does not."""
    return not _SECRET_PARTS.isdisjoint(name.upper().split("_")) and not _HARMLESS.fullmatch(value)


def visible(text: str) -> str:
    """Without what a terminal would obey; line breaks and tabs stay."""
    return text if text.isprintable() else "".join(c if c.isprintable() or c in "\n\t" else "�" for c in text)


def without_secrets(text: str) -> str:
    """The text with everything in it blotted out that looks like a key or a login."""
    return _LOGIN.sub(SECRET, _LOOKS_SECRET.sub(SECRET, text))
