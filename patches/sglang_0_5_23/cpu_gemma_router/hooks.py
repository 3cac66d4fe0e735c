"""Makes the router of Gemma 4's experts scale its input on a CPU, as it does on a GPU."""

from collections.abc import Callable
from typing import Any


def read_what_was_folded_in(original: Callable[[Any], None], router: Any) -> None:
    """Around Gemma4Router.fuse_scale, which writes the router's scale into the weight of a norm that is marked as having none.

    The norm's CUDA kernel multiplies by that weight whatever the mark says; its plain form asks the mark.
    """
    original(router)
    router.norm.with_scale = True
