"""Keeps the engine's keys out of what it says of itself. Version-free; the hooks of `redact-keys` bind it to the engine's functions.

A secret is known by the name it stands under, and then struck wherever its value occurs: inside a command line, a nested record or
bytes. What was learned is kept for the life of the process, because an error text holds the value without the name.
"""

import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass
from typing import Any

NAMES = ("api_key", "admin_api_key", "ssl_keyfile_password")
MARK = "<redacted>"

# A shorter value is struck only as a whole word: a key 'test' must not tear up the path of the test model.
_SHORTEST_STRUCK_ANYWHERE = 8

_NUMBERS = frozenset({int, float, bool, type(None)})  # token ids come in lists of 100,000: nothing to strike in them


class Secrets:
    """The values this process must not say."""

    def __init__(self, names: Sequence[str] = NAMES) -> None:
        self._names = frozenset(names)
        self._flags = tuple(f"--{name.replace('_', '-')}" for name in names)
        self._values: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self._inside = threading.local()

    @contextmanager
    def outermost(self) -> Iterator[bool]:
        """True for the first of nested calls on this thread."""
        first = not getattr(self._inside, "entered", False)
        self._inside.entered = True
        try:
            yield first
        finally:
            if first:
                self._inside.entered = False

    def learn(self, value: object) -> None:
        if isinstance(value, bytes):
            value = value.decode(errors="replace")
        if isinstance(value, str) and value and value != MARK and value not in self._values:
            self._values.add(value)
            longest_first = sorted(self._values, key=len, reverse=True)
            self._pattern = re.compile("|".join(_occurrence(known) for known in longest_first))

    def learn_from_arguments(self, argv: Sequence[str]) -> None:
        """`--api-key VALUE` and `--api-key=VALUE`."""
        for argument, following in zip(argv, [*argv[1:], ""], strict=True):
            name, equals, value = argument.partition("=")
            if name in self._flags:
                self.learn(value if equals else following)

    def learn_from_fields(self, record: object) -> None:
        for name in self._names:
            self.learn(getattr(record, name, None))

    def scrub(self, value: Any) -> Any:
        """The same value without a secret in it; what is scrubbed is a copy, what needs none may be the original."""
        self._learn_within(value)
        return self._struck(value)

    def scrub_text(self, text: str) -> str:
        return self._pattern.sub(MARK, text) if self._pattern else text

    def _learn_within(self, value: object) -> None:
        if isinstance(value, Mapping):
            for key, item in value.items():
                if key in self._names:
                    self.learn(item)
                else:
                    self._learn_within(item)
        elif _is_record(value):
            self.learn_from_fields(value)
        elif isinstance(value, list | tuple | set | frozenset) and not _only_numbers(value):
            for item in value:
                self._learn_within(item)

    def _struck(self, value: Any) -> Any:
        struck = value
        if isinstance(value, str):
            struck = self.scrub_text(value)
        elif isinstance(value, bytes):
            struck = self._struck_bytes(value)
        elif isinstance(value, Mapping):
            struck = {self._struck(key): self._struck_under(key, item) for key, item in value.items()}
        elif isinstance(value, tuple) and hasattr(value, "_fields"):  # a named tuple
            struck = type(value)(*map(self._struck, value))
        elif isinstance(value, list | tuple | set | frozenset) and not _only_numbers(value):
            struck = type(value)(map(self._struck, value))
        elif _is_record(value) and any(getattr(value, name, None) for name in self._names):
            # Not rebuilt: a record's constructor may do anything. Its text can be scrubbed.
            struck = self.scrub_text(repr(value))
        return struck

    def _struck_under(self, key: object, item: Any) -> Any:
        return MARK if key in self._names and item else self._struck(item)

    def _struck_bytes(self, value: bytes) -> bytes:
        text = value.decode("latin-1")  # byte for byte, so that whatever is not the key comes back unchanged
        pattern = self._pattern
        return pattern.sub(MARK, text).encode("latin-1") if pattern and pattern.search(text) else value


def _only_numbers(values: Iterable[object]) -> bool:
    return _NUMBERS.issuperset(map(type, values))


def _is_record(value: object) -> bool:
    return (is_dataclass(value) and not isinstance(value, type)) or hasattr(type(value), "__struct_fields__")


def _occurrence(secret: str) -> str:
    escaped = re.escape(secret)
    return escaped if len(secret) >= _SHORTEST_STRUCK_ANYWHERE else rf"(?<!\w){escaped}(?!\w)"


SECRETS = Secrets()  # one per process: what one hook learns, another strikes
