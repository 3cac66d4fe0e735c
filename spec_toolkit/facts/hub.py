"""Resolves a hub repository's revision to a commit. Touches the network, and the hub's cache on this disk where there is none."""

import os
import re
import threading
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from spec_toolkit.errors import FactsError

_COMMIT = re.compile(r"[0-9a-f]{40}")
_BRANCH = "main"  # what the hub, and the engine, take where nothing is said


class Origin(Enum):
    """Who said which commit it is."""

    PIN = "the pin"
    HUB = "the hub"
    CACHE = "the hub's cache on this machine, the hub was not asked"  # may be behind the hub


@dataclass(frozen=True, slots=True)
class Resolved:
    repo: str
    commit: str  # 40 hexadecimal digits
    origin: Origin


@dataclass(frozen=True, slots=True)
class _NoAnswer:
    found: str
    remedy: str
    is_a_no: bool = False  # the hub was reached and denies: what an old cache holds is then no answer


def resolve_revision(repo: str, revision: str | None, *, deadline_seconds: float = 20.0) -> Resolved:
    """The commit that a branch, a tag or nothing means now; FactsError where nobody can tell.

    HF_ENDPOINT, HF_HUB_OFFLINE, HF_TOKEN and the place of the cache mean what they mean to huggingface_hub.
    """
    if revision is not None and _COMMIT.fullmatch(revision):
        return Resolved(repo, revision, Origin.PIN)
    wanted = revision or _BRANCH
    answer = _ask_hub(repo, wanted, deadline_seconds)
    if isinstance(answer, str):
        return Resolved(repo, answer, Origin.HUB)
    cached = None if answer.is_a_no else _cached_commit(repo, wanted)
    if cached is not None:
        return Resolved(repo, cached, Origin.CACHE)
    why = "without a commit nobody could say what was deployed"
    raise FactsError.of("facts.revision", f"{repo}@{wanted}", answer.found, why=why, remedy=answer.remedy)


def cached_snapshot(repo: str, commit: str) -> Path | None:
    """The folder of a commit in the hub's cache on this machine, where an engine that downloaded it left its files."""
    from huggingface_hub import constants  # noqa: PLC0415 - see `_ask`

    folder = _cache_of(repo, constants.HF_HUB_CACHE) / "snapshots" / commit
    return folder if folder.is_dir() else None


def _cache_of(repo: str, cache: str) -> Path:
    return Path(cache) / f"models--{repo.replace('/', '--')}"


def _ask_hub(repo: str, revision: str, deadline_seconds: float) -> str | _NoAnswer:
    """In a thread of its own: the client's timeout is for each packet, and a hub that trickles would hold us for ever."""
    answers: list[str | _NoAnswer] = []
    thread = threading.Thread(target=lambda: answers.append(_ask(repo, revision, deadline_seconds)), daemon=True)
    thread.start()
    thread.join(deadline_seconds)
    late = f"the hub did not answer within {deadline_seconds:g} s"
    return answers[0] if answers else _NoAnswer(late, "Try again, or write the commit into the recipe.")


def _ask(repo: str, revision: str, timeout_seconds: float) -> str | _NoAnswer:  # noqa: PLR0911 - one for each answer
    from huggingface_hub import HfApi, errors  # noqa: PLC0415 - a third of a second that planning does not spend

    pin = "Write the commit into the recipe."
    try:
        info = HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None).model_info(
            repo, revision=revision, timeout=timeout_seconds
        )
    except errors.GatedRepoError:
        return _NoAnswer("the hub asks for a permission", "Accept the model's terms and set HF_TOKEN.", is_a_no=True)
    except errors.RevisionNotFoundError:
        return _NoAnswer("the hub has no such revision", "Check the recipe's revision.", is_a_no=True)
    except errors.RepositoryNotFoundError:
        return _NoAnswer(
            "the hub has no such repository, or hides it", "Check the name, or set HF_TOKEN.", is_a_no=True
        )
    except errors.OfflineModeIsEnabled:
        return _NoAnswer("HF_HUB_OFFLINE forbids to ask the hub, and the cache has no answer", pin)
    except errors.HfHubHTTPError as error:
        return _NoAnswer(f"the hub answered {error.response.status_code}", f"Try again. {pin}")
    except Exception as error:  # noqa: BLE001 - the client lets its transport's and the answer's own errors through
        return _NoAnswer(
            f"the hub could not be asked ({type(error).__name__})", f"Check the network and HF_ENDPOINT. {pin}"
        )
    if info.sha is None or not _COMMIT.fullmatch(info.sha):
        return _NoAnswer("the hub answered without a commit", pin)
    return info.sha


def _cached_commit(repo: str, revision: str) -> str | None:
    """The commit that the last download of this branch left in the cache, if its files are still there."""
    from huggingface_hub import constants  # noqa: PLC0415 - see `_ask`

    folder = _cache_of(repo, constants.HF_HUB_CACHE)
    try:
        commit = (folder / "refs" / revision).read_text("utf-8").strip()
    except (OSError, ValueError):
        return None
    return commit if _COMMIT.fullmatch(commit) and (folder / "snapshots" / commit).is_dir() else None
