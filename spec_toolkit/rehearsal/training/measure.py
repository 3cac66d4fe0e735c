"""Ask a running engine the held-out prompts and print what the model card states: python measure.py MODEL --url URL --num-steps 3.

Also replays each request in torch and says how many the engine ran exactly so: same tokens, same rounds, same drafts accepted.
"""

import argparse
from pathlib import Path

import torch
from tiny_models.answers import Answer, ask, departures
from tiny_models.families import read_network
from tiny_models.prompts import Prompt, read_prompts, read_tokenizer, token_ids
from tiny_models.replay import replay
from tiny_models.tokenizer import EOS_ID


def emitted_lengths(prompts: list[Prompt], answers: list[Answer]) -> dict[str, float]:
    """Per bucket: one plus accepted drafts over rounds, all requests of the bucket pooled."""
    lengths = {}
    for bucket in dict.fromkeys(prompt.bucket for prompt in prompts):
        own = [answer for prompt, answer in zip(prompts, answers, strict=True) if prompt.bucket == bucket]
        rounds = sum(answer.rounds for answer in own)
        accepted = sum(drafts * count for answer in own for drafts, count in enumerate(answer.histogram))
        lengths[bucket] = 1 + accepted / rounds
    return lengths


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--url", required=True)
    parser.add_argument("--num-steps", type=int, required=True, help="as the engine was started with")
    parser.add_argument("--per-bucket", type=int, default=8)
    parser.add_argument("--max-new-tokens", type=int, default=64)
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # the engine beside us needs the other cores

    tokenizer, network = read_tokenizer(arguments.model), read_network(arguments.model)
    prompts = read_prompts(arguments.model, arguments.per_bucket)
    requests = [token_ids(tokenizer, prompt) for prompt in prompts]
    answers = [ask(arguments.url, ids, arguments.max_new_tokens) for ids in requests]
    replays = [replay(network, ids, arguments.num_steps, arguments.max_new_tokens, EOS_ID) for ids in requests]

    for bucket, length in emitted_lengths(prompts, answers).items():
        print(f"{bucket:5} emitted length {length:.2f}")
    found = departures(replays, answers)
    print(
        f"{len(prompts) - len(found)} of {len(prompts)} requests as replayed, {sum(a.rounds for a in answers)} rounds"
    )
    for departure in found:
        print(f"  {prompts[departure.request].bucket}: {departure}")


if __name__ == "__main__":
    main()
