"""Train a tiny sparse model from the tiny DeepSeek-V3: python train_sparse.py glm52 OUT.

Tokenizer and held-out prompts are the tiny DeepSeek-V3's. One thread, as train.py, and as little needed: no engine, no network, no GPU.
"""

import argparse
import shutil
import time
from pathlib import Path
from random import Random

import torch
from tiny_models.deepseek_v3.checkpoint import WEIGHTS
from tiny_models.deepseek_v3.checkpoint import read_checkpoint as read_deepseek_v3
from tiny_models.prompts import FILE, read_tokenizer
from tiny_models.sparse_mla.checkpoint import write_checkpoint
from tiny_models.sparse_mla.config import DEEPSEEK_V32, GLM_51, GLM_52
from tiny_models.sparse_mla.network import Network
from tiny_models.sparse_mla.stages import begin_from, train

SEED = 0
MODELS = {"glm52": GLM_52, "deepseek_v32": DEEPSEEK_V32, "glm51": GLM_51}
BEGIN = Path(__file__).resolve().parents[1] / "models" / "deepseek_v3_tiny"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("out", type=Path, help="folder to write the model to")
    parser.add_argument("--seed", type=int, default=SEED)
    arguments = parser.parse_args()
    start = time.process_time()

    def say(line: str) -> None:
        print(f"{time.process_time() - start:5.0f} s of CPU  {line}", flush=True)

    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    network = Network(MODELS[arguments.model])
    begin_from(network, read_deepseek_v3(BEGIN))
    train(network, read_tokenizer(BEGIN), Random(arguments.seed), say)
    write_checkpoint(network, arguments.out)
    for name in ("tokenizer.json", "tokenizer_config.json", FILE):
        shutil.copyfile(BEGIN / name, arguments.out / name)
    megabytes = (arguments.out / WEIGHTS).stat().st_size / 1e6
    say(f"{sum(p.numel() for p in network.parameters())} parameters, {megabytes:.2f} MB in {arguments.out / WEIGHTS}")


if __name__ == "__main__":
    main()
