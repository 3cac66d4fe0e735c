"""The families of the matrix: where each one's target and draft lie, and what an engine is told for them."""

from dataclasses import dataclass
from pathlib import Path

from spec_toolkit.engine.patch_file import Family
from spec_toolkit.shipped import rehearsal

MODELS = rehearsal() / "models"


def assistant_of(target: Path) -> Path:
    return target.with_name(f"{target.name}_assistant")


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyFamily:
    """A trained tiny model. Its MTP layer is in its own checkpoint, or an assistant lies beside it."""

    name: str
    patches: Family
    has_assistant: bool = False
    layouts: tuple[str, ...] = ()  # of two ranks, which it is run on too

    @property
    def folder(self) -> Path:
        return MODELS / f"{self.name}_tiny"

    @property
    def folders(self) -> tuple[Path, ...]:
        return (self.folder, assistant_of(self.folder)) if self.has_assistant else (self.folder,)

    @property
    def takes_rejection(self) -> bool:
        """The engine keeps no probabilities of an assistant's drafts (FROZEN_KV_MTP), which rejection needs."""
        return not self.has_assistant

    def model_arguments(self, folder: Path, *, drafts: bool) -> list[str]:
        """`folder` holds the target, or a copy of it; an assistant lies beside either."""
        found = ["--model-path", str(folder)]
        if drafts and self.has_assistant:
            found += ["--speculative-algorithm", "NEXTN", "--speculative-draft-model-path", str(assistant_of(folder))]
        return found


FAMILIES = {
    family.name: family
    for family in (
        TinyFamily(name="deepseek_v3", patches=Family.DEEPSEEK, layouts=("tp2", "attention-dp")),
        TinyFamily(name="deepseek_v32", patches=Family.DEEPSEEK),
        TinyFamily(name="glm51", patches=Family.GLM5),
        TinyFamily(name="glm52", patches=Family.GLM5, layouts=("tp2", "attention-dp")),
        TinyFamily(name="gemma4_dense", patches=Family.GEMMA4, has_assistant=True, layouts=("tp2",)),
        TinyFamily(name="gemma4_moe", patches=Family.GEMMA4, has_assistant=True, layouts=("tp2",)),
        TinyFamily(name="gemma4_e2b", patches=Family.GEMMA4, has_assistant=True, layouts=("tp2",)),
        TinyFamily(name="gemma4_unified", patches=Family.GEMMA4, has_assistant=True),
    )
}
