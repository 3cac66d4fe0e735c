"""Fetches what describes a model from the hub, at a commit, into the hub's cache on this machine. Touches network and disk; no weights."""

import os
import threading
from dataclasses import dataclass
from pathlib import Path

from spec_toolkit.errors import FactsError

# What `read_model` reads. A tokenizer alone can be 30 MB; everything else is small.
_DESCRIBING = frozenset(
    {
        *("config.json", "hf_quant_config.json", "model.safetensors.index.json"),
        *("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "chat_template.json"),
    }
)


@dataclass(frozen=True, slots=True)
class Fetched:
    folder: Path  # holds the describing files, and perhaps more that was there before
    files: tuple[str, ...]  # names of all files of the repository at this commit


def fetch_description(repo: str, commit: str, *, deadline_seconds: float = 30.0) -> Fetched:
    """FactsError where not every describing file that the repository has could be fetched."""
    answers: list[Fetched | str] = []
    thread = threading.Thread(target=lambda: answers.append(_fetch(repo, commit, deadline_seconds)), daemon=True)
    thread.start()
    thread.join(deadline_seconds)
    answer = answers[0] if answers else f"its files did not come within {deadline_seconds:g} s"
    if isinstance(answer, Fetched):
        return answer
    why = "without them the model is known by the tables alone"
    raise FactsError.of("facts.hub", f"{repo}@{commit[:12]}", answer, why=why, remedy="Try again, or go on offline.")


def _fetch(repo: str, commit: str, timeout_seconds: float) -> Fetched | str:
    from huggingface_hub import HfApi, errors, hf_hub_download  # noqa: PLC0415 - a third of a second that planning does not spend
    from huggingface_hub.utils.tqdm import disable_progress_bars  # noqa: PLC0415 - as above

    disable_progress_bars()
    endpoint = os.environ.get("HF_ENDPOINT") or None
    try:
        info = HfApi(endpoint=endpoint).model_info(repo, revision=commit, timeout=timeout_seconds)
        files = tuple(sibling.rfilename for sibling in info.siblings or ())
        fetched = [
            hf_hub_download(repo, name, revision=commit, endpoint=endpoint, etag_timeout=min(10.0, timeout_seconds))
            for name in sorted(_DESCRIBING.intersection(files))
        ]
    except errors.HfHubHTTPError as error:
        return f"the hub answered {error.response.status_code}"
    except Exception as error:  # noqa: BLE001 - the client lets its transport's and the answer's own errors through
        return f"the hub could not be asked ({type(error).__name__})"
    return Fetched(Path(fetched[0]).parent, files) if fetched else "it has no config.json"
