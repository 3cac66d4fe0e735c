"""Patches as the launcher sees them: read them, choose them, check them against the installed engine, hand them over.

Touches the disk where a name says read, verify or hand over; the rest is pure. Nothing here imports the engine. What happens to the
list inside the engine's processes is `spec_toolkit.plugin`; whether they all said so is `engine.patch_reports`.
"""

import ast
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from spec_toolkit.engine.patch_file import AppliesTo, Family, PatchFile, Standing, read_patch_file
from spec_toolkit.errors import EngineError, Finding, SpecError, Verdict
from spec_toolkit.fingerprint import TargetMissing, fingerprint, package_folder
from spec_toolkit.handover import HandedHook, Relied, Role, encode_list

LIST_NAME = "patches.json"


@dataclass(frozen=True, slots=True)
class Patch:
    """One folder of patches/<engine version>/."""

    folder: Path
    file: PatchFile

    @property
    def id(self) -> str:
        return self.file.id

    @property
    def hooks_file(self) -> Path:
        return self.folder / "hooks.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetCheck:
    """One target of a patch, or what it relies on, against an engine's sources."""

    patch: str
    target: str
    expected: str  # fingerprint the patch was written against
    found: str | None  # None: no such definition
    problem: str = ""  # why there is none
    hooked: bool = True  # False: relied on only

    @property
    def matches(self) -> bool:
        return self.found == self.expected


def installed_engine() -> str | None:
    """Version of the engine in this environment."""
    from importlib import metadata  # noqa: PLC0415 - it reads mail headers, and a plan need not ask what is installed

    try:
        return metadata.version("sglang")
    except metadata.PackageNotFoundError:
        return None


def patches_folder(root: Path, engine_version: str) -> Path:
    """Where the patches for a version lie under `shipped("patches")`; the folder need not exist."""
    return root / f"sglang_{engine_version.replace('.', '_')}"


def read_patches(folder: Path) -> tuple[Patch, ...]:
    """Every patch in the folder, by id. EngineError with everything that is wrong with any of them."""
    found: list[Patch] = []
    problems: list[Finding] = [
        _refused("patches.file", str(hooks.parent), "has hooks.py and no patch.yaml; nothing would be applied")
        for hooks in sorted(folder.glob("*/hooks.py"))
        if not hooks.with_name("patch.yaml").is_file()
    ]
    for path in sorted(folder.glob("*/patch.yaml")):
        try:
            patch = Patch(path.parent, read_patch_file(path))
        except SpecError as error:
            problems.extend(error.findings)
            continue
        problems.extend(_inconsistencies(patch))
        found.append(patch)
    if problems:
        raise EngineError(*problems)
    return tuple(sorted(found, key=lambda patch: patch.id))


def choose_patches(
    patches: Sequence[Patch], *, family: Family, rehearsal: bool, requested: Iterable[str] = ()
) -> tuple[Patch, ...]:
    """Those a launch needs. EngineError for a requested id that does not exist or is not for this family."""
    known = {patch.id: patch for patch in patches}
    wanted = tuple(requested)
    problems = [_unknown(name, known) for name in wanted if name not in known]
    problems += [_wrong_family(known[n], family) for n in wanted if n in known and family not in known[n].file.families]
    if problems:
        raise EngineError(*problems)
    belongs = {AppliesTo.EVERY_DEPLOYMENT} | ({AppliesTo.REHEARSAL} if rehearsal else set())
    return tuple(
        patch
        for patch in patches
        if family in patch.file.families and (patch.id in wanted or patch.file.applies_to in belongs)
    )


def verify(patch: Patch, engine: Path | None = None) -> tuple[TargetCheck, ...]:
    """Each target of the patch, and what it relies on, against the sources of the installed engine, or of the package folder given."""
    file = patch.file
    hooked = (_check(patch, target.target, target.fingerprint, engine, hooked=True) for target in file.targets)
    relied = (_check(patch, relied.target, relied.fingerprint, engine, hooked=False) for relied in file.relies_on)
    return (*hooked, *relied)


def verify_all(folder: Path, engine: Path | None = None) -> tuple[TargetCheck, ...]:
    return tuple(check for patch in read_patches(folder) for check in verify(patch, engine))


def mismatches(checks: Iterable[TargetCheck]) -> tuple[Finding, ...]:
    """What to refuse a launch with; the plugin says the same from inside the engine."""
    return tuple(_mismatch(check) for check in checks if not check.matches)


def unproven(patch: Patch) -> tuple[str, ...]:
    """The features of the engine under which the patch was never run on a GPU: 'overlap', 'graphs'."""
    behaviour = patch.file.behaviour
    features = (("overlap", behaviour.overlap), ("graphs", behaviour.graphs))
    return tuple(name for name, seen in features if seen.standing is Standing.UNPROVEN_ON_GPU)


def resolve(patches: Sequence[Patch]) -> tuple[HandedHook, ...]:
    """The hooks to hand over. EngineError where two patches would get in each other's way."""
    hooks = tuple(hook for patch in patches for hook in _handed(patch))
    if clashes := tuple(_clashes(hooks)):
        raise EngineError(*clashes)
    return hooks


def hand_over(patches: Sequence[Patch], folder: Path) -> Path:
    """Write the list the engine is to be started with; its path goes into handover.LIST_VARIABLE.

    The folder should be fresh for each start: the processes' reports are written beside the list.
    """
    content = encode_list(resolve(patches))
    path = folder / LIST_NAME
    unfinished = path.with_suffix(".part")
    unfinished.write_bytes(content)
    unfinished.replace(path)
    return path.absolute()


def _check(patch: Patch, target: str, expected: str, engine: Path | None, *, hooked: bool) -> TargetCheck:
    found, problem = None, ""
    try:
        found = fingerprint(target, engine or package_folder(target.partition(".")[0]))
    except TargetMissing as missing:
        problem = str(missing)
    return TargetCheck(patch=patch.id, target=target, expected=expected, found=found, problem=problem, hooked=hooked)


def _mismatch(check: TargetCheck) -> Finding:
    if check.found is None:
        rule = "patches.target-missing"
        found = f"{check.problem}, and '{check.patch}' {'changes' if check.hooked else 'relies on'} it"
        why = "the engine would log this and run without the patch"
    else:
        rule = "patches.source-changed"
        expects = "expects" if check.hooked else "relies on"
        found = f"its source has fingerprint {check.found:.12}, '{check.patch}' {expects} {check.expected:.12}"
        why = "the patch was written against other source, and would change what it was not tested with"
    if not check.hooked:
        found += " without hooking it"
        why = "the patch's hooks were written for that source, and would lean on what they were not tested with"
    return Finding(
        rule=rule,
        verdict=Verdict.REFUSE,
        where=check.target,
        found=found,
        why=why,
        remedy="Pin the engine this patch folder is named after, or update the patch.",
    )


def _inconsistencies(patch: Patch) -> Iterator[Finding]:
    """What the file's own shape cannot say."""
    file, where = patch.file, str(patch.folder / "patch.yaml")
    if file.id.replace("-", "_") != patch.folder.name:
        yield _refused("patches.identity", where, f"id '{file.id}' is not that of folder '{patch.folder.name}'")
    defined = _functions_in(patch.hooks_file)
    for target in file.targets:
        if target.hook not in defined:
            yield _refused("patches.hooks", where, f"hook '{target.hook}' is not a function of the hooks.py beside it")
    for name, value in (("targets", file.targets), ("families", file.families)):
        if not value:
            yield _refused("patches.file", where, f"'{name}' is empty; nothing would be applied")
    for target in file.targets:
        if not target.roles:
            yield _refused("patches.file", where, f"{target.target} has no role; no process would run its hook")
    targets = [target.target for target in file.targets]
    for repeated in sorted({target for target in targets if targets.count(target) > 1}):
        yield _refused("patches.file", where, f"{repeated} is named twice; hook it once and call both from there")
    relied = [relied.target for relied in file.relies_on]
    for repeated in sorted({target for target in relied if target in targets or relied.count(target) > 1}):
        yield _refused("patches.file", where, f"{repeated} is relied on and named a second time; once is checked")


def _functions_in(hooks_file: Path) -> frozenset[str]:
    """By parsing: hooks import the engine. A file that is not there or not Python defines none."""
    try:
        tree = ast.parse(hooks_file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return frozenset()
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def _clashes(hooks: Sequence[HandedHook]) -> Iterator[Finding]:
    """A target that two patches hook must be hooked in the same roles.

    Where a child is forked from a parent that already applied one of them, the engine would drop the other without a word.
    """
    first: dict[str, HandedHook] = {}
    for hook in hooks:
        other = first.setdefault(hook.target, hook)
        if set(other.roles) != set(hook.roles):
            yield _refused(
                "patches.clash",
                hook.target,
                f"'{other.patch}' hooks it in {_words(other.roles)}, '{hook.patch}' in {_words(hook.roles)}; "
                "a process forked from one of them would drop the other hook",
                remedy="Give both the same roles.",
            )


def _handed(patch: Patch) -> Iterator[HandedHook]:
    digest = hashlib.sha256(patch.hooks_file.read_bytes()).hexdigest()
    relied = tuple(Relied(target=each.target, fingerprint=each.fingerprint) for each in patch.file.relies_on)
    for target in patch.file.targets:
        yield HandedHook(
            patch=patch.id,
            target=target.target,
            fingerprint=target.fingerprint,
            file=str(patch.hooks_file.absolute()),
            file_sha256=digest,
            function=target.hook,
            type=target.type,
            roles=target.roles,
            may_keep=tuple(keeper.holder for keeper in target.may_keep),
            relies_on=relied,
        )


def _unknown(name: str, known: Iterable[str]) -> Finding:
    near = get_close_matches(name, list(known), n=1)
    remedy = f"Did you mean '{near[0]}'?" if near else "`spec-toolkit patches list` names them."
    return _refused("patches.unknown", "engine.patches", f"no patch '{name}' for this engine", remedy=remedy)


def _wrong_family(patch: Patch, family: Family) -> Finding:
    families = ", ".join(each.value for each in patch.file.families)
    return _refused(
        "patches.family", "engine.patches", f"'{patch.id}' is for {families}, this target is {family.value}"
    )


def _words(roles: Iterable[Role]) -> str:
    return " and ".join(sorted(role.value for role in roles))


def _refused(rule: str, where: str, found: str, *, remedy: str = "") -> Finding:
    return Finding(rule=rule, verdict=Verdict.REFUSE, where=where, found=found, remedy=remedy)
