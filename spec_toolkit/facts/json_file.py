"""Reads JSON that other people wrote: whatever is wrong with a file is one FactsError that names it."""

import json
from pathlib import Path
from typing import Any

from spec_toolkit.errors import FactsError, Finding, Verdict


def read_object(path: Path) -> dict[str, Any]:
    """The object that is the whole file."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise not_as_it_should_be(path, "no such file") from None
    except OSError as error:
        raise not_as_it_should_be(path, f"cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError):  # a JSONDecodeError and a UnicodeDecodeError are ValueErrors
        raise not_as_it_should_be(path, "is not JSON") from None
    if not isinstance(value, dict):
        raise not_as_it_should_be(path, "is not a JSON object")
    return value


def not_as_it_should_be(path: Path, found: str) -> FactsError:
    remedy = "Fetch the model again, or check the recipe's model."
    return FactsError(
        Finding(rule="facts.checkpoint", verdict=Verdict.REFUSE, where=str(path), found=found, remedy=remedy)
    )
