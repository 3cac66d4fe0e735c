"""Train a tiny model on generated text and write it as a checkpoint the engine loads: python train.py OUT.

One thread, so that sums are taken in one order whatever the machine. Needs torch, safetensors and tokenizers; no engine, no network, no GPU.
"""

import argparse
import time
from itertools import islice
from pathlib import Path
from random import Random

import torch
from tiny_models.corpus import BUCKETS, documents, held_out_documents
from tiny_models.deepseek_v3.checkpoint import WEIGHTS, write_checkpoint
from tiny_models.deepseek_v3.config import Config
from tiny_models.deepseek_v3.network import Network
from tiny_models.deepseek_v3.stages import train
from tiny_models.prompts import Prompt, write_prompts
from tiny_models.tokenizer import render, train_tokenizer, write_tokenizer
from tokenizers import Tokenizer

SEED = 0
TOKENIZER_DOCUMENTS = 200  # per bucket
HELD_OUT_PROMPTS = 24  # per bucket


def corpus_tokenizer() -> Tokenizer:
    sample = [d for bucket in BUCKETS for d in islice(documents(bucket, SEED), TOKENIZER_DOCUMENTS)]
    return train_tokenizer(text for d in sample for text in (d.message, d.answer))


def held_out_prompts() -> list[Prompt]:
    return [
        Prompt(bucket, document.message, render(document.message))
        for bucket in BUCKETS
        for document in held_out_documents(bucket, HELD_OUT_PROMPTS)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="folder to write the model to")
    parser.add_argument("--seed", type=int, default=SEED)
    arguments = parser.parse_args()
    start = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - start:5.0f} s  {line}", flush=True)

    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    config, tokenizer = Config(), corpus_tokenizer()
    write_tokenizer(tokenizer, arguments.out, config.max_position_embeddings)
    write_prompts(arguments.out, held_out_prompts())
    network = Network(config)
    train(network, tokenizer, Random(arguments.seed), say)
    write_checkpoint(network, arguments.out)
    megabytes = (arguments.out / WEIGHTS).stat().st_size / 1e6
    say(f"{sum(p.numel() for p in network.parameters())} parameters, {megabytes:.2f} MB in {arguments.out / WEIGHTS}")


if __name__ == "__main__":
    main()
