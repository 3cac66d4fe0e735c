"""A patch.yaml is read strictly: each complaint names file and line."""

from pathlib import Path

import pytest

from spec_toolkit.engine.patch_file import AppliesTo, Standing, read_patch_file
from spec_toolkit.errors import EngineError
from spec_toolkit.handover import HookType, Role

GOOD = """\
id: double-it
reason: shows the shape
upstream: []
applies_to: on request
families: [deepseek]
behaviour:
  overlap: {standing: unproven on GPU, note: not run}
  graphs: {standing: not touched}
drop_when: never
targets:
  - target: engine.work.step
    fingerprint: abc
    hook: double
    type: around
    roles: [scheduler]
    may_keep:
      - holder: engine.work.ROUTES
        why: filled and never read
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "patch.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def complaint(path: Path) -> str:
    with pytest.raises(EngineError) as refused:
        read_patch_file(path)
    return str(refused.value).replace(f"{path.parent}/", "")


def test_a_file_is_read_whole(tmp_path):
    file = read_patch_file(write(tmp_path, GOOD))
    (target,) = file.targets
    assert (file.applies_to, file.behaviour.overlap.standing) == (AppliesTo.ON_REQUEST, Standing.UNPROVEN_ON_GPU)
    assert (target.type, target.roles, target.may_keep[0].holder) == (
        HookType.AROUND,
        (Role.SCHEDULER,),
        "engine.work.ROUTES",
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        pytest.param("reason:", "reasn:", "patch.yaml:2: object contains unknown field `reasn`", id="unknown-key"),
        pytest.param(
            "hook: double", "hok: double", "patch.yaml:13: object contains unknown field `hok`", id="unknown-below"
        ),
        pytest.param("hook: double", "hook: 3", "patch.yaml:13: expected `str`, got `int`", id="kind"),
        pytest.param("type: around", "type: about", "patch.yaml:14: invalid enum value 'about'", id="type"),
        pytest.param("[scheduler]", "[pilot]", "patch.yaml:15: invalid enum value 'pilot'", id="role"),
        pytest.param("on request", "sometimes", "patch.yaml:4: invalid enum value 'sometimes'", id="applies-to"),
        pytest.param(
            "    hook: double\n", "", "patch.yaml:11: object missing required field `hook`", id="missing-below"
        ),
        pytest.param("drop_when: never\n", "", "patch.yaml:1: object missing required field `drop_when`", id="missing"),
        pytest.param("drop_when: never", "id: other", "patch.yaml:9: key 'id' is written twice", id="twice"),
        pytest.param("targets:", "targets: [", "cannot be read, line", id="no-yaml"),
        pytest.param(GOOD, "", "patch.yaml: is empty", id="empty"),
        pytest.param(GOOD, "- 1\n", "patch.yaml:1: expected `object`, got `array`", id="a-list"),
        pytest.param("[deepseek]", "!!python/name:os.system", "could not determine a constructor", id="a-tag"),
    ],
)
def test_a_bad_file_is_refused_with_its_line(tmp_path, old, new, message):
    assert old in GOOD
    assert message in complaint(write(tmp_path, GOOD.replace(old, new, 1)))


@pytest.mark.parametrize(("old", "new", "near"), [("reason:", "reasn:", "reason"), ("hook: d", "hok: d", "hook")])
def test_an_unknown_key_names_the_nearest(tmp_path, old, new, near):
    assert f"Did you mean '{near}'?" in complaint(write(tmp_path, GOOD.replace(old, new, 1)))


def test_a_file_that_is_not_there_is_refused(tmp_path):
    assert "No such file" in complaint(tmp_path / "patch.yaml")


def test_bytes_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / "patch.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    assert "cannot be read" in complaint(path)
