"""Resolves an image's name to its digest, as registries of the OCI distribution specification tell it. Touches the network.

The digest is of what the name stands for, an index of platforms or one manifest. Only a registry on this machine is asked over plain
HTTP.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from urllib.parse import urlencode, urlsplit

from spec_toolkit.errors import FactsError
from spec_toolkit.facts.web import LARGEST_BYTES, in_time, is_loopback, send

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_NAME = re.compile(r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_HOST = re.compile(r"(?:[A-Za-z0-9.-]+|\[[0-9a-fA-F:]+\])(?::\d{1,5})?")
_PARAMETER = re.compile(r'(\w+)="([^"]*)"')
_MANIFESTS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_LARGEST_TOKEN_BYTES = 2**16
_HUB = "docker.io"  # what a name without a registry means, and what that registry is reached at
_HUB_ADDRESS = "registry-1.docker.io"


@dataclass(frozen=True, slots=True)
class Reference:
    """A name as people write it: `team/engine:v1`, `registry.example:5000/team/engine`."""

    host: str
    repository: str
    tag: str
    digest: str | None  # written behind the tag; the image is then pinned

    @property
    def base(self) -> str:
        """The secure address to ask at; plain HTTP where the registry is on this machine."""
        host = _HUB_ADDRESS if self.host == _HUB else self.host
        return f"{'http' if is_loopback(host) else 'https'}://{host}"


def parse_reference(text: str) -> Reference | None:
    """None for what is no image's name. Pure."""
    name, _, digest = text.partition("@")
    if "@" in text and not _DIGEST.fullmatch(digest):
        return None
    first, slash, rest = name.partition("/")
    if slash and (first == "localhost" or "." in first or ":" in first):
        host, name = first, rest
    else:
        host = _HUB
    repository, colon, tag = name.partition(":")
    if host == _HUB and "/" not in repository:
        repository = f"library/{repository}"
    fits = _HOST.fullmatch(host) and _NAME.fullmatch(repository) and _TAG.fullmatch(tag if colon else "latest")
    return Reference(host, repository, tag if colon else "latest", digest or None) if fits else None


def image_digest(image: str, *, deadline_seconds: float = 20.0) -> str:
    """`sha256:...` of what the name stands for now; FactsError where no registry tells."""
    reference = parse_reference(image)
    if reference is None:
        raise FactsError.of(
            "facts.image", image, "is no image's name", remedy="Write it as registry/name:tag, or name:tag."
        )
    if reference.digest is not None:
        return reference.digest
    late = _NoAnswer(
        f"{reference.host} did not answer within {deadline_seconds:g} s",
        "Try again, or write the digest into the recipe.",
    )
    answer = in_time(lambda: _ask(reference, deadline_seconds), deadline_seconds) or late
    if isinstance(answer, str):
        return answer
    raise FactsError.of(
        "facts.image", image, answer.found, why="a tag may be moved to another image", remedy=answer.remedy
    )


@dataclass(frozen=True, slots=True)
class _NoAnswer:
    found: str
    remedy: str


def _ask(reference: Reference, timeout_seconds: float) -> str | _NoAnswer:
    try:
        return _digest(reference, timeout_seconds)
    except (
        OSError,
        ValueError,
    ) as error:  # URLError and http.client's errors are OSErrors, what cannot be parsed a ValueError
        return _NoAnswer(
            f"{reference.host} could not be asked ({type(error).__name__})",
            "Check the network and the image's name, or write the digest into the recipe.",
        )
    except Exception as error:  # noqa: BLE001 - http.client raises its own for an answer that is no HTTP
        return _NoAnswer(
            f"{reference.host} answered something else ({type(error).__name__})", "Check the image's name."
        )


def _digest(reference: Reference, timeout_seconds: float) -> str | _NoAnswer:
    address = f"{reference.base}/v2/{reference.repository}/manifests/{reference.tag}"
    headers = {"Accept": ", ".join(_MANIFESTS)}
    answer = send("HEAD", address, headers, timeout_seconds)
    if answer.status == 401:
        token = _token(reference, answer.headers, timeout_seconds)
        if isinstance(token, _NoAnswer):
            return token
        headers["Authorization"] = f"Bearer {token}"
        answer = send("HEAD", address, headers, timeout_seconds)
    if answer.status != 200:
        return _refused(reference, answer.status)
    told = answer.headers.get("Docker-Content-Digest")
    if told is None:  # the specification lets a registry leave it out; the manifest's own bytes say the same
        answer = send("GET", address, headers, timeout_seconds)
        if answer.status != 200 or not 0 < len(answer.body) <= LARGEST_BYTES:
            return _NoAnswer(
                f"{reference.host} does not give the image's manifest", "Write the digest into the recipe."
            )
        return f"sha256:{hashlib.sha256(answer.body).hexdigest()}"
    if not _DIGEST.fullmatch(told):
        return _NoAnswer(f"{reference.host} answered without a sha256 digest", "Write the digest into the recipe.")
    return told


def _token(reference: Reference, headers: Message, timeout_seconds: float) -> str | _NoAnswer:
    """What the registry's own challenge sends for: a token for reading this repository, given to anybody."""
    challenge = headers.get("WWW-Authenticate", "")
    wanted = dict(_PARAMETER.findall(challenge))
    realm = wanted.get("realm", "")
    host = urlsplit(realm).netloc
    if not challenge.lower().startswith("bearer ") or not (
        realm.startswith("https://")
        or (realm.startswith("http://") and is_loopback(host) and is_loopback(reference.host))
    ):
        return _refused(reference, 401)
    query = {key: wanted[key] for key in ("service",) if key in wanted}
    query["scope"] = f"repository:{reference.repository}:pull"
    answer = send("GET", f"{realm}?{urlencode(query)}", {}, timeout_seconds)
    if answer.status != 200:
        return _refused(reference, answer.status)
    granted = json.loads(answer.body[:_LARGEST_TOKEN_BYTES])
    token = granted.get("token") or granted.get("access_token") if isinstance(granted, Mapping) else None
    if not isinstance(token, str) or not re.fullmatch(r"[\x21-\x7e]+", token):
        return _NoAnswer(
            f"{reference.host} sends for a token, and {host} gives none", "Write the digest into the recipe."
        )
    return token


def _refused(reference: Reference, status: int) -> _NoAnswer:
    """A registry that hides an image says 401 or 404 alike."""
    if status in {401, 403, 404}:
        found = f"{reference.host} has no such image, or hides it (it answered {status})"
        return _NoAnswer(found, "Check name and tag; of a private image write the digest into the recipe.")
    return _NoAnswer(f"{reference.host} answered {status}", "Try again, or write the digest into the recipe.")
