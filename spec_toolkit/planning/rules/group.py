"""Rules about two launches that are ranks of one engine: the leader and the workers of a group. Pure.

Ranks meet in collectives, so each must come to the same shapes from its own arguments; what differs shows as a hang, or as wrong tokens.
"""

from collections.abc import Iterator

from msgspec.structs import asdict

from spec_toolkit.errors import Finding, refuse
from spec_toolkit.planning.situation import Situation

# What is a rank's own, or only the leader's to use: it answers clients, and tells them its name.
_OWN = frozenset({"node_rank", "host", "port", "dist_init_addr", "api_key", "admin_api_key", "served_model_name"})
_OWN_TOO = frozenset({"enable_metrics", "chat_template", "others", "watchdog_timeout"})
_MOST = 6  # differences that a sentence lists


def same_launch(leader: Situation, worker: Situation) -> Iterator[Finding]:
    first, second = asdict(leader.arguments), asdict(worker.arguments)
    differing = [name for name in first if name not in _OWN | _OWN_TOO and first[name] != second[name]]
    if not differing:
        return
    listed = [f"{name} {_said(second[name])} here and {_said(first[name])} there" for name in differing[:_MOST]]
    more = f", and {len(differing) - _MOST} more" if len(differing) > _MOST else ""
    why = "they are ranks of one engine, which meet in collectives of the same shape"
    found = f"differs from the leader's launch: {', '.join(listed)}{more}"
    yield refuse("cluster.group-differs", differing[0], found, why, "Let both launch alike.")


def _said(value: object) -> str:
    return "left out" if value is None else str(value)


GROUP_RULES = (same_launch,)
