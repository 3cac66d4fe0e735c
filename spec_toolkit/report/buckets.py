"""Emitted length by bucket as a table. Pure."""

from collections.abc import Sequence

from spec_toolkit.prove.buckets import BucketRow


def table(rows: Sequence[BucketRow]) -> str:
    lines = [f"  {'bucket':8} {'prompts':>7} {'tokens':>7} {'rounds':>7} {'emitted length':>15}"]
    lines += [
        f"  {row.bucket:8} {row.prompts:7} {row.emitted_tokens:7} {row.rounds:7} {row.emitted_length:15.2f}"
        for row in rows
    ]
    return "\n".join(lines)
