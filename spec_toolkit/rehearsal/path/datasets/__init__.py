"""Stand-in for datasets: `sglang.bench_serving` imports two of its names; only the MMMU and LongBench sets call them."""

import rehearsal_guard

rehearsal_guard.permit("datasets")


def load_dataset(*args: object, **kwargs: object) -> object:
    raise RuntimeError(
        "datasets: load_dataset was called; a rehearsal brings its own prompts. Install datasets to load others."
    )


def concatenate_datasets(*args: object, **kwargs: object) -> object:
    raise RuntimeError(
        "datasets: concatenate_datasets was called; a rehearsal brings its own prompts. Install datasets for others."
    )
