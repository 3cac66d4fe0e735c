"""How the gateway says no: one typed error, as an answer of its own or as the last event of a stream. Pure."""

from enum import Enum

import orjson


class Reason(Enum):
    """Why; also the names the gateway counts by. A client finds it as `error.type`."""

    OVERLOADED = "gateway.overloaded"  # as many in flight as there may be
    NO_ENGINE = "gateway.no-engine"  # none took the request, or went on with it, before the deadline
    NOT_RESUMABLE = "gateway.not-resumable"  # the engine was lost, and this kind of request cannot go on elsewhere
    RESUME_REFUSED = "gateway.resume-refused"  # the next engine would not go on with it
    LOST_TOO_OFTEN = "gateway.lost-too-often"  # perhaps the request itself ends the engines
    MALFORMED = "gateway.malformed-upstream"  # the engine sent what no stream holds
    STOPPING = "gateway.stopping"
    BAD_REQUEST = "gateway.bad-request"
    TOO_LARGE = "gateway.too-large"
    TOO_SLOW = "gateway.too-slow"  # a request that did not arrive, or a stream that was not read
    NOT_SERVED = "gateway.not-served"  # no such path here
    ADMIN_ONLY = "gateway.admin-only"  # a path by which an engine is changed or looked into
    DEFECT = "gateway.defect"  # of ours


STATUS = {
    Reason.OVERLOADED: 429,
    Reason.NO_ENGINE: 503,
    Reason.NOT_RESUMABLE: 502,
    Reason.RESUME_REFUSED: 502,
    Reason.LOST_TOO_OFTEN: 502,
    Reason.MALFORMED: 502,
    Reason.STOPPING: 503,
    Reason.BAD_REQUEST: 400,
    Reason.TOO_LARGE: 413,
    Reason.TOO_SLOW: 408,
    Reason.NOT_SERVED: 404,
    Reason.ADMIN_ONLY: 403,
    Reason.DEFECT: 500,
}


class Refused(Exception):  # noqa: N818 - an answer, not a defect
    """`found` and `remedy` are sentences for the client; they never hold anything of a prompt or an answer."""

    def __init__(self, reason: Reason, found: str, remedy: str, *, retry_after: int | None = None) -> None:
        super().__init__(f"{found} {remedy} [{reason.value}]")
        self.reason = reason
        self.status = STATUS[reason]
        self.retry_after = retry_after  # seconds

    @classmethod
    def by_defect(cls) -> "Refused":
        return cls(Reason.DEFECT, "The gateway has a defect.", "Tell whoever runs it; its log says where.")

    @classmethod
    def by_stop(cls) -> "Refused":
        return cls(Reason.STOPPING, "The deployment is being stopped.", "Try another one.")

    def body(self) -> bytes:
        said = {"message": str(self), "type": self.reason.value, "param": None, "code": self.status}
        return orjson.dumps({"error": said})

    def event(self) -> bytes:
        """Ends a stream that has begun. No `[DONE]` follows: an answer without one is not whole."""
        return b"data: " + self.body() + b"\n\n"
