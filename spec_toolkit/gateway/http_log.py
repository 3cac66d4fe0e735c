"""What the HTTP server underneath says of its connections: one line, and nothing of what a client sent. Pure."""

import logging
import traceback
from types import TracebackType

LOGGER = "spec_toolkit.gateway.http"


class Curt(logging.Filter):
    """Of an error its kind and its place are left: its message holds the line that could not be read, and that is a client's."""

    def filter(self, record: logging.LogRecord) -> bool:
        kind, place = _told(record.exc_info)
        record.msg = f"a connection ends: {kind} at {place}" if kind else "a connection ends"
        record.args = None
        record.exc_info = record.exc_text = record.stack_info = None
        return True


def http_log() -> logging.Logger:
    log = logging.getLogger(LOGGER)
    if not any(isinstance(each, Curt) for each in log.filters):
        log.addFilter(Curt())
    return log


def _told(error: object) -> tuple[str, str]:
    match error:
        case (_, BaseException() as raised, TracebackType() as trace):
            where = traceback.extract_tb(trace)[-1]
            return type(raised).__name__, f"{where.filename}:{where.lineno} in {where.name}"
        case (_, BaseException() as raised, _):
            return type(raised).__name__, "an unknown place"
    return "", ""
