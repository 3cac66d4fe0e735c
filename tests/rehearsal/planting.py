"""Faults for the matrix to see: hooks handed to the engine beside the rehearsal's patches, and a checkpoint that is not as trained."""

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import load_file, save_file

from spec_toolkit.fingerprint import fingerprint
from spec_toolkit.handover import HandedHook, HookType, Role
from tests.rehearsal.families import assistant_of

FULL_P = """
def hook(original, *arguments, **options):
    import sgl_kernel.sampling
    sgl_kernel.sampling.residual = lambda p, q: p  # behind a refused draft the whole target, which counts the draft's share twice
    return original(*arguments, **options)
"""

TIES_BY_SHAPE = """
import torch

def hook(original, self, forward_batch, *arguments, **options):
    import sgl_kernel.selection as selection
    several = forward_batch.forward_mode.is_target_verify()  # rows of a request, where a decode step has one

    def highest(scores, topk):
        if several:  # of equal scores the later position
            return scores.numel() - 1 - torch.sort(scores.flip(0), descending=True, stable=True).indices[:topk]
        return torch.sort(scores, descending=True, stable=True).indices[:topk]

    selection.highest = highest
    return original(self, forward_batch, *arguments, **options)
"""

SHIFTED_ROW = """
def hook(original, self, input_ids, positions, forward_batch, *arguments, **options):
    seen = forward_batch.spec_info.hidden_states
    forward_batch.spec_info.hidden_states = seen.roll(1, 0)  # each row gets the one of the position before
    try:
        return original(self, input_ids, positions, forward_batch, *arguments, **options)
    finally:
        forward_batch.spec_info.hidden_states = seen
"""


def hook(folder: Path, target: str, source: str) -> HandedHook:
    """`source` defines `hook`, which stands around the target in every scheduler."""
    file = folder / "planted" / "hooks.py"
    file.parent.mkdir(parents=True)
    file.write_text(source, encoding="utf-8")
    return HandedHook(
        patch="planted",
        target=target,
        fingerprint=fingerprint(target),
        file=str(file),
        file_sha256=hashlib.sha256(source.encode()).hexdigest(),
        function="hook",
        type=HookType.AROUND,
        roles=(Role.SCHEDULER,),
    )


def swapped_halves(model: Path, folder: Path) -> Path:
    """A copy whose draft takes the hidden state where it was trained to take the embedding."""
    copy = folder / "swapped"
    shutil.copytree(model, copy)
    if assistant_of(model).is_dir():
        shutil.copytree(assistant_of(model), assistant_of(copy))
    holder, weight_name = (
        (assistant_of(copy), "pre_projection.weight") if assistant_of(model).is_dir() else (copy, "eh_proj.weight")
    )
    tensors = load_file(holder / "model.safetensors")
    (name,) = (name for name in tensors if name.endswith(weight_name))
    tensors[name] = tensors[name].roll(tensors[name].shape[1] // 2, 1).contiguous()
    save_file(tensors, holder / "model.safetensors", metadata={"format": "pt"})
    return copy


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """One fault, the cells that must be red and by which word of their faults."""

    family: str
    hook: tuple[str, str] | None = None  # target, source
    model: Callable[[Path, Path], Path] | None = None
    without: str = ""  # a patch that is left out
    rejection: bool = False
    red: frozenset[str]
    because: str


GREEDY = frozenset({"greedy, batch 1", "greedy, batch 8", "prefix-cache hit", "after 10 dropped streams"})
MODEL_RUNNER = "sglang.srt.model_executor.model_runner.ModelRunner.forward"
PLANTS = {
    "full-p-after-a-rejection": Plant(
        family="deepseek_v3",
        hook=("sglang.srt.speculative.eagle_utils.eagle_sample", FULL_P),
        rejection=True,
        red=frozenset({"sampled"}),
        because="sampled: out of bounds",
    ),
    "ties-by-the-shape-of-the-batch": Plant(
        family="glm52",
        hook=(MODEL_RUNNER, TIES_BY_SHAPE),
        red=frozenset({"greedy, batch 1"}),
        because="part from the target",
    ),
    "hidden-row-shifted": Plant(
        family="deepseek_v3",
        hook=("sglang.srt.models.deepseek_nextn.DeepseekModelNextN.forward", SHIFTED_ROW),
        red=GREEDY,
        because="rounds",
    ),
    "eh-proj-halves-swapped": Plant(family="deepseek_v3", model=swapped_halves, red=GREEDY, because="rounds"),
    "penalties-on-one-side-only": Plant(  # the engine's own verify: what a round accepts does not count
        family="deepseek_v3",
        without="whole-sampling",
        red=frozenset({"greedy, penalised"}),
        because="part from the target",
    ),
    "pre-projection-halves-swapped": Plant(family="gemma4_dense", model=swapped_halves, red=GREEDY, because="rounds"),
}
