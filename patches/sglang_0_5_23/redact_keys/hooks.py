"""Where the engine speaks of itself: every such text passes one of these three functions."""

from collections.abc import Callable, Sequence
from typing import Any

from spec_toolkit.plugin.redaction import SECRETS


def describe(original: Callable[..., Any], value: Any, *, in_watermark_config: bool = False) -> Any:
    """`redact_watermark_secrets`: /server_info over HTTP, gRPC and Rust, the start-up log, the dumps' snapshots.

    It calls itself for each nested value; only the outermost call is scrubbed.
    """
    with SECRETS.outermost() as outermost:
        described = original(value, in_watermark_config=in_watermark_config)
    return SECRETS.scrub(described) if outermost else described


def command_line(original: Callable[..., str], argv: Sequence[str], watermark_config: str | None = None) -> str:
    """`redact_watermark_command_line`: the `launch_command`, which has the config file merged in."""
    SECRETS.learn_from_arguments(argv)
    return SECRETS.scrub_text(original(argv, watermark_config))


def dumped_arguments(original: Callable[[Any], Any], tokenizer_manager: Any) -> Any:
    """`TokenizerManager._server_args_for_dump`: request and crash dumps, which would pickle the whole record as it is."""
    dumped = original(tokenizer_manager)
    return SECRETS.scrub(dumped if isinstance(dumped, dict) else dumped.resolved_dict())
