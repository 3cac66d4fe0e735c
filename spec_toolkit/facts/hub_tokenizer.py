"""The tokenizer of a hub repository at a commit, as one hash. Touches the network; the files lie in a temporary folder meanwhile."""

import os
import shutil
import tempfile
import threading
from pathlib import Path

from spec_toolkit.errors import FactsError
from spec_toolkit.facts.tokenizer import tokenizer_hash

# What `tokenizer_hash` reads. Of the optional ones the hub must say that there is none: a file left out would make another hash.
_NEEDED = ("tokenizer.json",)
_OPTIONAL = ("tokenizer_config.json", "chat_template.jinja", "chat_template.json")


def hub_tokenizer_hash(repo: str, commit: str, *, deadline_seconds: float = 120.0) -> str:
    """`sha256:...`; FactsError where not every file could be seen. Some vocabularies are tens of MB."""
    folder = Path(tempfile.mkdtemp(prefix="spec-toolkit-tokenizer-"))
    try:
        found = _fetch_in_time(repo, commit, folder, deadline_seconds)
        if found is not None:
            raise FactsError.of(
                "facts.tokenizer",
                f"{repo}@{commit[:12]}",
                found,
                why="a hash over some of its files would be another's",
                remedy="Try again, or leave target.tokenizer open.",
            )
        return tokenizer_hash(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _fetch_in_time(repo: str, commit: str, folder: Path, deadline_seconds: float) -> str | None:
    """In a thread of its own, as in `hub`. None where everything there is was fetched."""
    answers: list[str | None] = []
    thread = threading.Thread(
        target=lambda: answers.append(_fetch(repo, commit, folder, deadline_seconds)), daemon=True
    )
    thread.start()
    thread.join(deadline_seconds)
    return answers[0] if answers else f"its files did not come within {deadline_seconds:g} s"


def _fetch(repo: str, commit: str, folder: Path, timeout_seconds: float) -> str | None:
    from huggingface_hub import errors, hf_hub_download  # noqa: PLC0415 - a third of a second that planning does not spend
    from huggingface_hub.utils.tqdm import disable_progress_bars  # noqa: PLC0415 - as above

    disable_progress_bars()
    for name in (*_NEEDED, *_OPTIONAL):
        try:
            hf_hub_download(
                repo,
                name,
                revision=commit,
                local_dir=folder,
                endpoint=os.environ.get("HF_ENDPOINT") or None,
                etag_timeout=min(20.0, timeout_seconds),
            )
        except errors.LocalEntryNotFoundError:
            return f"{name} could not be fetched (the hub did not answer, or HF_HUB_OFFLINE forbids to ask it)"
        except errors.EntryNotFoundError:
            if name in _NEEDED:
                return f"it has no {name}"
        except errors.HfHubHTTPError as error:
            return f"{name} could not be fetched (the hub answered {error.response.status_code})"
        except Exception as error:  # noqa: BLE001 - the client lets its transport's and the answer's own errors through
            return f"{name} could not be fetched ({type(error).__name__})"
    return None
