"""What nobody else may read among a launch's flags, their values and its environment. Pure; the one list of it."""

import json
import re
from collections.abc import Mapping, Sequence

SECRET = "***"  # noqa: S105 - what stands in place of one

# Destinations whose value is a secret whatever it looks like. The engine hides the watermark's from its own log.
SECRET_DESTINATIONS = frozenset({
    "api_key", "admin_api_key", "ssl_keyfile_password", "watermark_key", "watermark_key_b", "watermark_config",
})  # fmt: skip
_PASSWORDS = {"SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "PWD", "CREDENTIAL", "CREDENTIALS"}
_PARTS = _PASSWORDS | {"TOKEN", "KEY", "APIKEY", "ACCESSKEY", "SECRETKEY", "AUTH", "AUTHORIZATION"}
# Tokens and keys of a vocabulary or a configuration, which are no secrets.
_SPECIAL = {"BOS", "EOS", "PAD", "UNK", "MASK", "SEP", "CLS", "IMAGE", "AUDIO", "VIDEO"}
_WORDS_OF_NAME = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

# Keys as their makers shape them; a folder may be called hf_models.
_LOOKS_SECRET = re.compile(
    r"(hf_|ghp_|nvapi-|glpat-|AKIA)[A-Za-z0-9]{16,}|(?<![A-Za-z0-9])(sk-|xox[bp]-|eyJ)[\w.-]{16,}"
)
_LOGIN = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_HARMLESS = re.compile(r"|true|false|\d{1,3}", re.IGNORECASE)
# A member of an object that is no whole JSON, such as one that was cut off; its name, and its value where that is no group.
_MEMBER = re.compile(r"""(["']?)([A-Za-z][\w.-]{0,80})(\1\s*[:=]\s*)("(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?|[^\s,{}\[\]"']+)""")  # fmt: skip

Json = str | int | float | bool | Sequence["Json"] | Mapping[str, "Json"] | None


def is_secret_destination(dest: str) -> bool:
    return dest in SECRET_DESTINATIONS or dest.startswith("watermark_key")


def is_secret_variable(name: str, value: str) -> bool:
    """Whether an environment variable holds what nobody else may read; SGLANG_…_TOKENS_… does not."""
    return _is_secret_name(name) and not _HARMLESS.fullmatch(value)


def without_secrets(text: str) -> str:
    """The text with everything in it blotted out that looks like a key or a login, or stands under a name for one in an object."""
    return _LOGIN.sub(SECRET, _LOOKS_SECRET.sub(SECRET, _without_members(text)))


def _without_members(text: str) -> str:
    if "{" not in text:
        return text
    try:
        whole: Json = json.loads(text)
        blotted = _blotted(whole)
        return text if blotted == whole else json.dumps(blotted, ensure_ascii=False)
    except (ValueError, RecursionError):
        return _MEMBER.sub(_member, text)


def _member(match: re.Match[str]) -> str:
    quote, name, mark, value = match.groups()
    if not _is_secret_name(name) or _HARMLESS.fullmatch(value.strip("\"'")):
        return match[0]
    around = value[0] if value[0] in "\"'" else '"'
    return f"{quote}{name}{mark}{around}{SECRET}{around}"


def _blotted(value: Json, name: str = "") -> Json:
    """`name`: of the member that the value is of."""
    if isinstance(value, dict):
        return {key: _blotted(inner, key if not _is_password(name) else name) for key, inner in value.items()}
    if isinstance(value, list):
        return [_blotted(inner, name) for inner in value]
    is_secret = (isinstance(value, str) and _is_secret_name(name) and not _HARMLESS.fullmatch(value)) or (
        isinstance(value, int | float) and not isinstance(value, bool) and _is_password(name)
    )
    return SECRET if is_secret else _without_members(value) if isinstance(value, str) else value


def _is_secret_name(name: str) -> bool:
    words = _words_of(name)
    return not _PARTS.isdisjoint(words) and (_SPECIAL.isdisjoint(words) or not _PASSWORDS.isdisjoint(words))


def _is_password(name: str) -> bool:
    return not _PASSWORDS.isdisjoint(_words_of(name))


def _words_of(name: str) -> set[str]:
    """Of a name however it is put together: SECRET_KEY, secretKey, secret-key."""
    return {word.upper() for word in _WORDS_OF_NAME.findall(name[:200])}
