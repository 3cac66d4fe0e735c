"""What the tag of an image says of the engine in it. Pure."""

import re

_VERSION = re.compile(r"v?(\d+\.\d+\.\d+(?:(?:\.post|rc|\.dev)\d+)?)(?![\d.])")


def sglang_of(image: str | None) -> str | None:
    """The version in the tag of an image of sglang, which looks like v0.5.23-cu130; None where the tag says none."""
    name, _, tag = (image or "").partition("@")[0].rpartition(":")
    match = _VERSION.match(tag) if "sglang" in name and "/" not in tag else None
    return match[1] if match else None
