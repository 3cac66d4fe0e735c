"""Rules about how weights are stored against the flag that names a format and the kernel that reads it. Pure.

Read in the engine: configs/model_config.py (`_verify_quantization`), model_loader/weight_utils.py (`get_quant_config`),
layers/quantization/marlin_utils.py.
"""

from collections.abc import Iterator

from spec_toolkit.errors import Finding, refuse, warn
from spec_toolkit.facts.model import Model, Quantization, Weights
from spec_toolkit.planning.situation import Situation

# Formats that exist only as a checkpoint: the flag reads them, it makes none. (`fp8` and some others quantise while they load.)
_ONLY_STORED = frozenset(
    {"modelopt", "modelopt_fp8", "awq", "awq_marlin", "gptq", "gptq_marlin", "compressed-tensors", "quark"}
)
_FP4 = "modelopt_fp4"
# By flag: other formats of a checkpoint that the engine lets it read, beside its own.
_ALSO_READS = {
    "modelopt_fp8": {"modelopt"},
    _FP4: {"modelopt", "fp8"},
    "modelopt": {"modelopt_fp8", _FP4, "modelopt_mixed"},
    "awq_marlin": {"awq"},
    "gptq_marlin": {"gptq"},
}
_COMPARED = _ONLY_STORED | {_FP4, "fp8"}
_TILE = 64  # columns that Marlin's kernels take at once


def quantization_flag(situation: Situation) -> Iterator[Finding]:
    flag, stored = situation.arguments.quantization, situation.target.quantization
    if flag is None or stored is None or flag.lower() not in _COMPARED:
        return
    flag, method = flag.lower(), _method(stored)
    found, name = f"is {flag}", situation.target.name
    remedy = "Leave it out: the checkpoint says how it is quantised. Or choose one that is."
    if (
        method is None
        and flag == _FP4
        and situation.target.shape is not None
        and situation.target.shape.experts is not None
    ):
        why = f"{name} is not quantised, and the engine would convert its experts while it loads; nobody has measured what that costs"
        yield warn("formats.quantization-flag", "quantization", found, why, "Choose a checkpoint made in this format.")
    elif method is None and (flag == _FP4 or flag in _ONLY_STORED):
        yield refuse(
            "formats.quantization-flag",
            "quantization",
            found,
            f"{name} is not quantised, and the flag names a format, it makes none",
            remedy,
        )
    elif method is None or method == flag or method in _ALSO_READS.get(flag, set()):
        return
    elif method.startswith("modelopt"):
        why = f"{name} is stored as {method}, which the engine reads all the same, and chooses kernels after the flag"
        yield warn("formats.quantization-flag", "quantization", found, why, "Leave it out.")
    else:
        yield refuse(
            "formats.quantization-flag",
            "quantization",
            found,
            f"{name} is stored as {method}, which this flag does not read",
            remedy,
        )


def marlin_tile(situation: Situation) -> Iterator[Finding]:
    """W4A16 runs on Marlin, whose kernels repack each rank's part of a matrix by 64 columns."""
    tp = situation.arguments.tp_size or 1
    for name, columns in _columns(situation.target, tp):
        if columns % _TILE:
            found = (
                f"{situation.target.name} is W4A16, and a rank's part of {name} is {columns:,} columns wide (tp {tp})"
            )
            why = f"Marlin takes {_TILE} at once, and {columns % _TILE} are left over"
            yield refuse("formats.kernel-tile", "tp_size", found, why, "Choose another tp or another checkpoint.")
            return


def _columns(target: Model, tp: int) -> Iterator[tuple[str, int]]:
    """What each kind of matrix puts out on one rank. Gate and up are one matrix to the engine; down is split by its inputs."""
    stored = target.quantization
    if stored is not None and stored.method == "compressed-tensors" and stored.bits == 4 and target.tensors:
        for name, tensor in target.tensors.items():
            matrix = name.removesuffix(".weight_packed")
            if matrix == name or not tensor.shape:
                continue
            if matrix.endswith((".gate_proj", ".up_proj")):
                yield matrix, 2 * tensor.shape[0] // tp
            elif matrix.endswith((".down_proj", ".o_proj")):
                yield matrix, tensor.shape[0]
    elif target.weights is Weights.W4A16 and target.shape is not None:
        yield "gate and up", 2 * target.shape.intermediate_size // tp
        yield "down", target.shape.hidden_size


def _method(stored: Quantization) -> str | None:
    """As the engine calls it: it splits ModelOpt by algorithm."""
    method = stored.method.lower().replace("compressed_tensors", "compressed-tensors") if stored.method else None
    if method == "modelopt" and stored.algorithm:
        return (
            _FP4
            if "FP4" in stored.algorithm.upper()
            else "modelopt_fp8"
            if stored.algorithm.upper() == "FP8"
            else method
        )
    return method


RULES = (quantization_flag, marlin_tile)
