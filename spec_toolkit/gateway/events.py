"""Where one event of a stream ends and the next begins. Pure."""

MOST_EVENT_BYTES = 64 << 20  # of one event of any stream


class Events:
    """Whole events, without the blank line that ends them, out of pieces of any size."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> list[bytes]:
        if self._parts:
            meets = self._parts[-1].endswith(b"\n") and piece.startswith(b"\n")
            if not meets and b"\n\n" not in piece:
                self._keep(piece)
                return []
            piece = b"".join((*self._parts, piece))
            self._parts.clear()
            self._size = 0
        *events, rest = piece.split(b"\n\n")
        if rest:
            self._keep(rest)
        return events

    @property
    def is_too_long(self) -> bool:
        return self._size > MOST_EVENT_BYTES

    def clear(self) -> None:
        self._parts.clear()
        self._size = 0

    def _keep(self, piece: bytes) -> None:
        self._parts.append(piece)
        self._size += len(piece)
