"""Emitted length by bucket as a table. Pure."""

from collections.abc import Sequence

from spec_toolkit.prove.buckets import BucketRow


def table(rows: Sequence[BucketRow], labels: Sequence[str]) -> str:
    """`labels`: the words that go wherever these numbers go."""
    mark = f"  [{', '.join(labels)}]" if labels else ""
    lines = [f"  {'bucket':8} {'prompts':>7} {'tokens':>7} {'rounds':>7} {'emitted length':>15}{mark}"]
    for row in rows:
        length = "-" if row.emitted_length is None else f"{row.emitted_length:.2f}"
        lines.append(f"  {row.bucket:8} {row.prompts:7} {row.emitted_tokens:7} {row.rounds:7} {length:>15}")
    return "\n".join(lines)
