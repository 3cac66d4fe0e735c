"""Choosing patches, checking them against sources and handing them over; the engine here is a module of one function."""

from pathlib import Path

import pytest

from spec_toolkit.engine.patch_file import Family
from spec_toolkit.engine.patches import (
    choose_patches,
    hand_over,
    mismatches,
    patches_folder,
    read_patches,
    resolve,
    unproven,
    verify,
    verify_all,
)
from spec_toolkit.errors import EngineError, SpecError
from spec_toolkit.fingerprint import fingerprint
from spec_toolkit.handover import Role, decode_list

YAML = """\
id: {id}
reason: shows the shape
upstream: []
applies_to: {applies_to}
families: [{families}]
behaviour:
  overlap: {{standing: {overlap}}}
  graphs: {{standing: not touched}}
drop_when: never
targets:
  - target: {target}
    fingerprint: {fingerprint}
    hook: double
    type: around
    roles: [{roles}]
"""
RELIES = """\
relies_on:
  - target: {target}
    fingerprint: {fingerprint}
    why: the hook divides by what it returns
"""


@pytest.fixture
def engine(tmp_path) -> Path:
    package = tmp_path / "fakeengine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "work.py").write_text("def step(batch):\n    return batch + 1\n\n\ndef other():\n    return 0\n")
    return package


@pytest.fixture
def add(tmp_path, engine):
    """Write one patch folder; what is not said is right."""

    def write(name: str = "double-it", **changes: str) -> Path:
        target = changes.get("target", "fakeengine.work.step")
        values = {
            "id": name,
            "applies_to": "on request",
            "families": "deepseek, gemma4",
            "overlap": "not touched",
            "target": target,
            "fingerprint": fingerprint("fakeengine.work.step", engine),
            "roles": "scheduler",
        }
        folder = tmp_path / "patches" / name.replace("-", "_")
        folder.mkdir(parents=True)
        (folder / "hooks.py").write_text("def double(original, *args):\n    return 2 * original(*args)\n")
        (folder / "patch.yaml").write_text(YAML.format(**{**values, **changes}))
        return folder

    return write


@pytest.fixture
def patches(tmp_path) -> Path:
    return tmp_path / "patches"


def refusal(call, *arguments, **named) -> str:
    with pytest.raises(EngineError) as refused:
        call(*arguments, **named)
    return str(refused.value)


def test_the_folder_is_named_after_the_engine():
    assert patches_folder(Path("patches"), "0.5.23") == Path("patches/sglang_0_5_23")


def test_a_folder_without_patches_has_none(tmp_path):
    assert read_patches(tmp_path / "sglang_9_9_9") == ()


def test_patches_are_read_in_order_of_their_ids(add, patches):
    add("second-one")
    add("first-one")
    assert [patch.id for patch in read_patches(patches)] == ["first-one", "second-one"]


def test_everything_wrong_is_said_at_once(add, patches):
    add("first-one", id="other-name")
    (add("second-one") / "hooks.py").unlink()
    add("third-one", roles="")
    add("fourth-one", families="")
    with pytest.raises(SpecError) as refused:
        read_patches(patches)
    said = [finding.found for finding in refused.value.findings]
    assert said == [
        "id 'other-name' is not that of folder 'first_one'",
        "'families' is empty; nothing would be applied",
        "hook 'double' is not a function of the hooks.py beside it",
        "fakeengine.work.step has no role; no process would run its hook",
    ]


@pytest.mark.parametrize(
    "hooks", ["double = 3\n", "def double(:\n", "class double:\n    pass\n", "def doubled():\n    pass\n"]
)
def test_a_hook_that_hooks_py_does_not_define_is_refused(add, patches, hooks):
    (add() / "hooks.py").write_text(hooks)
    assert "hook 'double' is not a function of the hooks.py beside it" in refusal(read_patches, patches)


@pytest.mark.parametrize(
    ("rehearsal", "requested", "family", "chosen"),
    [
        pytest.param(False, (), Family.DEEPSEEK, ["always"], id="a-deployment"),
        pytest.param(True, (), Family.DEEPSEEK, ["always", "on-cpu"], id="a-rehearsal"),
        pytest.param(False, ("asked-for",), Family.DEEPSEEK, ["always", "asked-for"], id="asked-for"),
        pytest.param(True, (), Family.GLM5, ["always"], id="another-family"),
    ],
)
def test_a_launch_gets_the_patches_it_needs(add, patches, rehearsal, requested, family, chosen):
    add("always", applies_to="every deployment", families="deepseek, glm5, gemma4")
    add("on-cpu", applies_to="rehearsal")
    add("asked-for")
    found = choose_patches(read_patches(patches), family=family, rehearsal=rehearsal, requested=requested)
    assert [patch.id for patch in found] == chosen


def test_a_patch_that_does_not_exist_names_the_nearest(add, patches):
    add()
    said = refusal(
        choose_patches, read_patches(patches), family=Family.DEEPSEEK, rehearsal=False, requested=("double-in",)
    )
    assert said == "engine.patches: no patch 'double-in' for this engine. Did you mean 'double-it'? [patches.unknown]"


def test_a_patch_for_another_family_is_refused(add, patches):
    add()
    said = refusal(choose_patches, read_patches(patches), family=Family.GLM5, rehearsal=False, requested=("double-it",))
    assert said == "engine.patches: 'double-it' is for deepseek, gemma4, this target is glm5. [patches.family]"


def test_a_patch_that_fits_has_nothing_to_say(add, patches, engine):
    add()
    (check,) = verify_all(patches, engine)
    assert check.matches
    assert mismatches([check]) == ()


def test_a_renamed_target_is_named(add, patches, engine):
    add(target="fakeengine.work.stride")
    (finding,) = mismatches(verify_all(patches, engine))
    assert finding.sentence() == (
        "fakeengine.work.stride: stride is not defined in work.py, and 'double-it' changes it; the engine would log this and run "
        "without the patch. Pin the engine this patch folder is named after, or update the patch. [patches.target-missing]"
    )


def test_a_changed_source_is_named(add, patches, engine):
    add()
    before = fingerprint("fakeengine.work.step", engine)[:12]
    changed = engine.parent / "other" / "fakeengine"
    changed.mkdir(parents=True)
    (changed / "work.py").write_text("def step(batch):\n    return batch + 2\n")
    (check,) = verify(read_patches(patches)[0], changed)
    (finding,) = mismatches([check])
    assert finding.sentence() == (
        f"fakeengine.work.step: its source has fingerprint {check.found[:12]}, 'double-it' expects {before}; the patch was written "
        "against other source, and would change what it was not tested with. Pin the engine this patch folder is named after, or "
        "update the patch. [patches.source-changed]"
    )


@pytest.fixture
def relying(add, patches, engine):
    """A patch that hooks `step` and relies on `other`."""

    def write(**changes: str):
        values = {"target": "fakeengine.work.other", "fingerprint": fingerprint("fakeengine.work.other", engine)}
        path = add() / "patch.yaml"
        path.write_text(path.read_text() + RELIES.format(**{**values, **changes}))
        return patches

    return write


def test_what_a_patch_relies_on_is_checked_beside_its_targets(relying, engine):
    checks = verify_all(relying(), engine)
    assert [(check.target, check.hooked) for check in checks] == [
        ("fakeengine.work.step", True),
        ("fakeengine.work.other", False),
    ]
    assert mismatches(checks) == ()


def test_a_change_in_what_is_relied_on_is_named(relying, engine):
    (finding,) = mismatches(verify_all(relying(fingerprint="0123456789abcdef"), engine))
    found = fingerprint("fakeengine.work.other", engine)[:12]
    assert finding.sentence() == (
        f"fakeengine.work.other: its source has fingerprint {found}, 'double-it' relies on 0123456789ab without hooking it; the "
        "patch's hooks were written for that source, and would lean on what they were not tested with. Pin the engine this patch "
        "folder is named after, or update the patch. [patches.source-changed]"
    )


def test_what_is_relied_on_and_gone_is_named(relying, engine):
    (finding,) = mismatches(verify_all(relying(target="fakeengine.work.another"), engine))
    assert finding.rule == "patches.target-missing"
    assert finding.found == "another is not defined in work.py, and 'double-it' relies on it without hooking it"


def test_what_is_relied_on_is_not_a_target_too(relying):
    assert refusal(read_patches, relying(target="fakeengine.work.step")).endswith(
        "fakeengine.work.step is relied on and named a second time; once is checked. [patches.file]"
    )


def test_what_is_relied_on_is_handed_over_and_never_as_a_hook(relying, tmp_path):
    (hook,) = decode_list(hand_over(read_patches(relying()), tmp_path).read_bytes())
    assert hook.target == "fakeengine.work.step"
    assert [relied.target for relied in hook.relies_on] == ["fakeengine.work.other"]


def test_an_engine_that_is_not_installed_matches_nothing(add, patches):
    add()
    (check,) = verify_all(patches)
    assert not check.matches
    assert check.problem == "package 'fakeengine' is not installed"


def test_what_was_never_run_on_a_gpu_is_labelled(add, patches):
    add(overlap="unproven on GPU")
    assert unproven(read_patches(patches)[0]) == ("overlap",)


def test_a_list_is_handed_over_resolved(add, patches, tmp_path):
    folder = add()
    path = hand_over(read_patches(patches), tmp_path)
    (hook,) = decode_list(path.read_bytes())
    assert path.is_absolute()
    assert hook.file == str(folder / "hooks.py")
    assert (hook.patch, hook.function, hook.roles) == ("double-it", "double", (Role.SCHEDULER,))
    assert [entry.name for entry in tmp_path.glob("patches.json*")] == ["patches.json"]


def test_two_patches_on_one_target_in_different_roles_are_refused(add, patches):
    """A child forked from a process that applied the first would never get the second."""
    add("first-one", roles="launcher")
    add("second-one", roles="scheduler")
    assert refusal(resolve, read_patches(patches)) == (
        "fakeengine.work.step: 'first-one' hooks it in launcher, 'second-one' in scheduler; a process forked from one of them would "
        "drop the other hook. Give both the same roles. [patches.clash]"
    )


def test_two_patches_on_one_target_in_the_same_roles_stack(add, patches):
    add("first-one")
    add("second-one")
    assert [hook.patch for hook in resolve(read_patches(patches))] == ["first-one", "second-one"]
