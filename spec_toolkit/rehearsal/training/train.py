"""Train a tiny model on generated text and write it as a checkpoint the engine loads: python train.py FAMILY OUT.

A Gemma 4 is two checkpoints: its assistant is written to the folder beside, OUT_assistant. The sparse ones (DeepSeek V3.2, GLM-5.x)
start from the tiny DeepSeek-V3, whose tokenizer they share; Gemma 4's of the kinds of 26B-A4B and 12B from the tiny dense pair.
One thread, so that sums are taken in one order whatever the machine. Needs torch, safetensors and tokenizers; no engine, no network, no GPU.
"""

import argparse
import shutil
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from random import Random

import torch
from tiny_models.corpus import BUCKETS, documents, held_out_documents
from tiny_models.deepseek_v3 import checkpoint as deepseek_checkpoint
from tiny_models.deepseek_v3 import stages as deepseek_stages
from tiny_models.deepseek_v3.config import Config as DeepseekConfig
from tiny_models.deepseek_v3.network import Network as DeepseekNetwork
from tiny_models.families import assistant_beside
from tiny_models.gemma4 import checkpoint as gemma_checkpoint
from tiny_models.gemma4 import stages as gemma_stages
from tiny_models.gemma4.config import FAMILIES as GEMMA_FAMILIES
from tiny_models.gemma4.config import dense as gemma4_dense
from tiny_models.gemma4.network import Network as GemmaNetwork
from tiny_models.prompts import Prompt, read_tokenizer, write_prompts
from tiny_models.sparse_mla import checkpoint as sparse_checkpoint
from tiny_models.sparse_mla import stages as sparse_stages
from tiny_models.sparse_mla.config import FAMILIES as SPARSE_FAMILIES
from tiny_models.sparse_mla.network import Network as SparseNetwork
from tiny_models.tokenizer import render, train_tokenizer, write_tokenizer
from tokenizers import Tokenizer

SEED = 0
TOKENIZER_DOCUMENTS = 200  # per bucket
HELD_OUT_PROMPTS = 24  # per bucket
MODELS = Path(__file__).resolve().parents[1] / "models"
DEEPSEEK_V3 = MODELS / "deepseek_v3_tiny"
GEMMA4_DENSE = MODELS / "gemma4_dense_tiny"
BEGINS_DENSE = frozenset({"gemma4_moe", "gemma4_unified"})  # as the trained dense pair

Say = Callable[[str], None]


def corpus_tokenizer() -> Tokenizer:
    sample = [d for bucket in BUCKETS for d in islice(documents(bucket, SEED), TOKENIZER_DOCUMENTS)]
    return train_tokenizer(text for d in sample for text in (d.message, d.answer))


def held_out_prompts() -> list[Prompt]:
    return [
        Prompt(bucket, document.message, render(document.message))
        for bucket in BUCKETS
        for document in held_out_documents(bucket, HELD_OUT_PROMPTS)
    ]


def train_deepseek_v3(out: Path, random: Random, say: Say) -> list[Path]:
    config, tokenizer = DeepseekConfig(), corpus_tokenizer()
    write_tokenizer(tokenizer, out, config.max_position_embeddings)
    network = DeepseekNetwork(config)
    deepseek_stages.train(network, tokenizer, random, say)
    deepseek_checkpoint.write_checkpoint(network, out)
    return [out]


def train_sparse(family: str, out: Path, random: Random, say: Say) -> list[Path]:
    network = SparseNetwork(SPARSE_FAMILIES[family])
    sparse_stages.begin_from(network, deepseek_checkpoint.read_checkpoint(DEEPSEEK_V3))
    sparse_stages.train(network, read_tokenizer(DEEPSEEK_V3), random, say)
    sparse_checkpoint.write_checkpoint(network, out)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(DEEPSEEK_V3 / name, out / name)
    return [out]


def train_gemma4(family: str, out: Path, start_from: Path | None, random: Random, say: Say) -> list[Path]:
    config, tokenizer, assistant = GEMMA_FAMILIES[family](), corpus_tokenizer(), assistant_beside(out)
    assistant.mkdir(exist_ok=True)
    for folder in (out, assistant):  # the engine reads a tokenizer beside the draft too
        write_tokenizer(tokenizer, folder, config.text.max_position_embeddings)
    network = GemmaNetwork(config)
    schedule = gemma_stages.Schedule()
    if start_from is not None:
        trained = gemma_checkpoint.read_checkpoint(start_from, assistant_beside(start_from), gemma4_dense())
        gemma_stages.begin_as(network, trained)
        schedule = gemma_stages.AGAIN
    if not (config.unified and start_from):  # its text network is the dense one's: nothing is left to learn
        gemma_stages.train(network, tokenizer, random, say, schedule)
    gemma_checkpoint.write_checkpoint(network, out, assistant)
    return [out, assistant]


def check_folders(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Ends with a message where something would be written over, or is not there to begin from."""
    for folder in (arguments.out, *([assistant_beside(arguments.out)] if arguments.family in GEMMA_FAMILIES else [])):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            parser.error(
                f"{folder}: holds something already, which training would write over. Name another, or remove it."
            )
    if arguments.start_from is not None:
        if arguments.family not in GEMMA_FAMILIES:
            parser.error(
                f"--start-from: {arguments.family} begins from nothing or from the shipped deepseek_v3_tiny. Leave it out."
            )
        for folder in (arguments.start_from, assistant_beside(arguments.start_from)):
            if not (folder / "model.safetensors").is_file():
                parser.error(
                    f"--start-from: {folder} holds no model.safetensors. Name a trained gemma4_dense with its assistant beside it."
                )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], epilog="For example: python train.py glm52 /tmp/glm52_tiny"
    )
    parser.add_argument("family", choices=["deepseek_v3", *SPARSE_FAMILIES, *GEMMA_FAMILIES])
    parser.add_argument("out", type=Path, help="folder to write the model to; none that holds anything")
    parser.add_argument(
        "--seed", type=int, default=SEED, help="of weights and order of texts; the shipped ones: %(default)s"
    )
    parser.add_argument(
        "--start-from",
        type=Path,
        help="of a Gemma 4: a trained gemma4_dense, its assistant beside it; default for gemma4_moe and gemma4_unified: the shipped one",
    )
    arguments = parser.parse_args()
    check_folders(parser, arguments)
    start = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - start:5.0f} s, {time.process_time():5.0f} s of CPU  {line}", flush=True)

    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    write_prompts(arguments.out, held_out_prompts())
    random = Random(arguments.seed)
    if arguments.family == "deepseek_v3":
        folders = train_deepseek_v3(arguments.out, random, say)
    elif arguments.family in SPARSE_FAMILIES:
        folders = train_sparse(arguments.family, arguments.out, random, say)
    else:
        start_from = arguments.start_from or (GEMMA4_DENSE if arguments.family in BEGINS_DENSE else None)
        folders = train_gemma4(arguments.family, arguments.out, start_from, random, say)
    for folder in folders:
        weights = folder / "model.safetensors"
        say(f"{weights.stat().st_size / 1e6:.2f} MB in {weights}")


if __name__ == "__main__":
    main()
