"""What a model card states, measured: `python -m tests.rehearsal.measure_models [MODEL...] --num-steps 1 2 3 5 7`.

One engine a model and K, forked from one import. Each request alone, then eight at a time; both against the replay in torch.
A tool and no test: its table goes into the card by hand.
"""

import argparse
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import torch

from spec_toolkit.engine.patch_file import Family
from spec_toolkit.launch.nursery import Nursery
from spec_toolkit.launch.ports import free_engine_port
from spec_toolkit.shipped import rehearsal
from tests.rehearsal.rehearsed import arguments, patched, wait_ready

sys.path.insert(0, str(rehearsal() / "training"))
from measure import emitted_lengths
from tiny_models.answers import Answer, ask, departures
from tiny_models.families import assistant_beside, read_network
from tiny_models.prompts import read_prompts, read_tokenizer, token_ids
from tiny_models.replay import replay
from tiny_models.tokenizer import EOS_ID

MODELS = rehearsal() / "models"
FAMILY = {"deepseek": Family.DEEPSEEK, "glm": Family.GLM5, "gemma4": Family.GEMMA4}


def family_of(model: Path) -> Family:
    return next(family for beginning, family in FAMILY.items() if model.name.startswith(beginning))


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


@contextmanager
def serving(nursery: Nursery, model: Path, num_steps: int) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="measure-") as kept:
        folder, port = Path(kept), free_engine_port()
        log, assistant = folder / "engine.log", assistant_beside(model)
        argv = arguments(port, num_steps=num_steps, num_draft_tokens=num_steps + 1)
        argv += ["--model-path", str(model), "--max-total-tokens", "16384"]
        if assistant.is_dir():
            argv += ["--speculative-algorithm", "NEXTN", "--speculative-draft-model-path", str(assistant)]
        pid = nursery.spawn(argv, patched(folder, family_of(model)), log)
        try:
            wait_ready(port, lambda: nursery.exit_code(pid), log)
            yield f"http://127.0.0.1:{port}"
        finally:
            nursery.kill(pid, signal.SIGKILL)  # SIGTERM drains for seconds
            nursery.wait(pid, 30)


def measure(nursery: Nursery, model: Path, steps: Sequence[int], per_bucket: int, max_new_tokens: int) -> None:
    tokenizer, network = read_tokenizer(model), read_network(model)
    prompts = read_prompts(model, per_bucket)
    requests = [token_ids(tokenizer, prompt) for prompt in prompts]
    columns: dict[int, dict[str, float]] = {}
    for num_steps in steps:
        replays = [replay(network, ids, num_steps, max_new_tokens, EOS_ID) for ids in requests]

        with serving(nursery, model, num_steps) as url:

            def answer(ids: list[int], url: str = url) -> Answer:
                return ask(url, ids, max_new_tokens)

            alone = [answer(ids) for ids in requests]
            with ThreadPoolExecutor(8) as eight:
                together = list(eight.map(answer, requests))
        columns[num_steps] = emitted_lengths(prompts, alone)
        say(
            f"{model.name} K = {num_steps}: {len(requests) - len(departures(replays, alone))} of {len(requests)} as replayed alone, "
            f"{len(requests) - len(departures(replays, together))} eight at a time; {sum(len(a.output_ids) for a in alone)} tokens "
            f"in {sum(a.rounds for a in alone)} rounds",
        )
    say("| bucket |" + "".join(f" K = {k} |" for k in columns))
    say("|---|" + "---|" * len(columns))
    for bucket in dict.fromkeys(prompt.bucket for prompt in prompts):
        say(f"| {bucket} |" + "".join(f" {column[bucket]:.2f} |" for column in columns.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("models", nargs="*", type=Path, help="folders; all that are shipped by default")
    parser.add_argument("--num-steps", nargs="+", type=int, default=[1, 2, 3, 5, 7])
    parser.add_argument("--per-bucket", type=int, default=4)
    parser.add_argument("--max-new-tokens", type=int, default=64)
    asked = parser.parse_args()
    torch.set_num_threads(1)  # the engine beside us needs the other core
    shipped = [folder for folder in sorted(MODELS.iterdir()) if not folder.name.endswith("_assistant")]
    with Nursery.start(most=1) as nursery:
        for model in asked.models or shipped:
            measure(nursery, model.resolve(), asked.num_steps, asked.per_bucket, asked.max_new_tokens)


if __name__ == "__main__":
    main()
