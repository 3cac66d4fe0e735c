"""The patches in the real engine on a CPU: what they do, and each way a launch is stopped."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from spec_toolkit.engine.patch_reports import alive, expected_processes, missing_reports, read_reports
from spec_toolkit.fingerprint import fingerprint
from spec_toolkit.handover import ENDED_BY_PATCHES, LIST_VARIABLE, HandedHook, HookType, Role, encode_list, list_sha256
from spec_toolkit.shipped import rehearsal

pytestmark = pytest.mark.engine

MODEL = rehearsal() / "models" / "deepseek_v3_tiny"
EVERY_15TH = slice(0, None, 15)  # of the held-out prompts: some of each bucket


def changed(hooks, name, **changes):
    """The list with one hook that is not as the engine is."""
    assert name in {hook.function for hook in hooks}
    return tuple(replace(hook, **changes) if hook.function == name else hook for hook in hooks)


def missing(engine, hooks):
    reports = read_reports(engine.patch_list)
    return missing_reports(
        hooks,
        list_sha256(engine.patch_list.read_bytes()),
        reports,
        expected=expected_processes(tp=1),
        live=alive(report.pid for report in reports),
    )


@dataclass(frozen=True)
class Said:
    tokens: list[int]
    rounds: int


def answers(engine, *, together: bool) -> list[Said]:
    """What the engine says to held-out prompts, one at a time or in one batch."""
    lines = (MODEL / "held_out.jsonl").read_text(encoding="utf-8").splitlines()
    prompts = [json.loads(line)["prompt"] for line in lines[EVERY_15TH]]
    asked = {"temperature": 0, "max_new_tokens": 24, "ignore_eos": True}
    batches = [prompts] if together else [[prompt] for prompt in prompts]
    return [
        Said(answer["output_ids"], answer["meta_info"]["spec_verify_ct"])
        for batch in batches
        for answer in json.loads(engine.post("/generate", {"text": batch, "sampling_params": asked})[1])
    ]


def test_a_renamed_target_stops_the_launch(start, hooks):
    renamed = "sglang.kernels.ops.speculative.gather_spec_extras.gather_extras"
    engine = start(changed(hooks, "gather_rows", target=renamed))
    assert engine.wait() == ENDED_BY_PATCHES
    (message,) = engine.messages()
    assert message == (
        f"{renamed} (in launcher): gather_extras is not defined in gather_spec_extras.py, and 'cpu-overlap-schedule' changes it; the "
        "engine would log this and run without the patch. Run `spec-toolkit patches verify`, then pin the engine it names or update "
        "the patch. [plugin.target-missing]"
    )


def test_a_changed_source_stops_the_launch(start, hooks):
    engine = start(changed(hooks, "gather_rows", fingerprint="0123456789abcdef" * 4))
    assert engine.wait() == ENDED_BY_PATCHES
    target = "sglang.kernels.ops.speculative.gather_spec_extras.gather_spec_extras"
    (message,) = engine.messages()
    assert message == (
        f"{target} (in launcher): its source has fingerprint {fingerprint(target)[:12]}, 'cpu-overlap-schedule' expects 0123456789ab; "
        "the patch was written against other source, and would change what it was not tested with. Run `spec-toolkit patches verify`, "
        "then pin the engine it names or update the patch. [plugin.source-changed]"
    )


def test_a_scheduler_that_refuses_takes_the_engine_with_it(start, hooks):
    engine = start(changed(hooks, "gather_rows", function="gather_columns"))
    assert engine.wait() != 0
    (message,) = engine.messages()
    assert "(in scheduler-pp0-tp0): has no function 'gather_columns'" in message
    assert f"exit code: {ENDED_BY_PATCHES}" in engine.log()


def test_a_plugin_that_cannot_be_imported_is_missing_from_the_reports(tmp_path, hooks):
    """SGLang logs it and goes on; here without a server, which would come up unpatched."""
    broken = tmp_path / "spec_toolkit"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise ImportError('half installed')\n")
    patch_list = tmp_path / "patches.json"
    patch_list.write_bytes(encode_list(hooks))
    path = os.pathsep.join([str(tmp_path), str(rehearsal() / "path")])
    done = subprocess.run(
        [sys.executable, "-c", "from sglang.srt.plugins import load_plugins; load_plugins()"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": path,
            LIST_VARIABLE: str(patch_list),
            "SGLANG_USE_CPU_ENGINE": "1",
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Failed to load plugin spec_toolkit" in done.stderr
    sha256 = list_sha256(patch_list.read_bytes())
    (finding,) = missing_reports(
        hooks, sha256, read_reports(patch_list), expected=frozenset({"launcher"}), live=frozenset()
    )
    assert finding.sentence() == (
        "launcher: has not reported its patches (it got no SPEC_TOOLKIT_PATCHES, or could not load plugin 'spec_toolkit'); the engine "
        "would serve without them. Look for 'Failed to load plugin spec_toolkit' in the engine's log. [patches.not-reported]"
    )


FORGETFUL = """
import os

def start_without_the_list(original, self, process):
    if getattr(process._target, "__name__", "") != "run_scheduler_process":
        return original(self, process)
    path = os.environ.pop("SPEC_TOOLKIT_PATCHES")
    try:
        return original(self, process)
    finally:
        os.environ["SPEC_TOOLKIT_PATCHES"] = path
"""


def forgetful(folder: Path) -> HandedHook:
    """Starts each scheduler without the patch list, as a launcher that scrubs its children's environment would."""
    file = folder / "forgetful" / "hooks.py"
    file.parent.mkdir()
    file.write_text(FORGETFUL)
    target = "multiprocessing.popen_fork.Popen._launch"
    return HandedHook(
        patch="forgetful",
        target=target,
        fingerprint=fingerprint(target),
        file=str(file),
        file_sha256=hashlib.sha256(FORGETFUL.encode()).hexdigest(),
        function="start_without_the_list",
        type=HookType.AROUND,
        roles=(Role.LAUNCHER,),
    )


def test_a_rank_without_its_list_is_noticed_though_it_serves(start, hooks, tmp_path):
    everywhere = tuple(replace(hook, roles=(Role.LAUNCHER, Role.SCHEDULER)) for hook in hooks)
    handed = (*everywhere, forgetful(tmp_path))
    engine = start(handed)
    engine.wait_ready()
    (finding,) = missing(engine, handed)
    assert finding.sentence() == (
        "scheduler-pp0-tp0: has not reported its patches (it got no SPEC_TOOLKIT_PATCHES, or could not load plugin 'spec_toolkit'); "
        "the engine would serve without them. Look for 'Failed to load plugin spec_toolkit' in the engine's log. "
        "[patches.not-reported]"
    )


def test_every_process_reports_and_overlap_changes_no_token_and_no_round(start, hooks):
    on = start(hooks)
    on.wait_ready()
    assert missing(on, hooks) == ()
    said = json.loads(on.get("/server_info")[1])
    assert (said["disable_overlap_schedule"], said["attention_backend"]) == (False, "intel_amx")
    with_overlap = [answers(on, together=together) for together in (False, True)]
    on.stop()
    off = start(hooks, "--disable-overlap-schedule")
    off.wait_ready()
    assert json.loads(off.get("/server_info")[1])["disable_overlap_schedule"] is True
    without = [answers(off, together=together) for together in (False, True)]
    # Rounds too: a draft fed from another request's row costs rounds, not tokens.
    assert with_overlap == without
    assert all(sum(len(said.tokens) / said.rounds for said in run) / len(run) > 1.5 for run in without)


# Left out: what ends or stops the engine, or loads something.
UNASKED = ("shutdown", "abort", "release", "pause", "profile", "freeze", "weights", "sleep", "lora", "realtime")


def test_the_admin_key_is_in_nothing_the_engine_says(start, hooks, tmp_path):
    dumps = tmp_path / "dumps"
    engine = start(hooks, "--crash-dump-folder", str(dumps))
    engine.wait_ready()
    answers(engine, together=True)
    paths = json.loads(engine.get("/openapi.json")[1])["paths"]
    asked = [path for path in paths if not any(word in path for word in UNASKED)]
    assert {"/server_info", "/get_server_info", "/get_model_info"} <= set(asked)
    for path in [*asked, "/metrics", "/no-such-path"]:
        for answer in (engine.get(path), engine.post(path, {}), engine.post(path, {"api_key": 1, "text": [{}]})):
            assert engine.admin_key.encode() not in answer[1], path
    processes = [report.pid for report in read_reports(engine.patch_list)]
    for pid in processes:
        for part in ("cmdline", "environ"):
            assert engine.admin_key.encode() not in Path(f"/proc/{pid}/{part}").read_bytes()
    scheduler = next(report.pid for report in read_reports(engine.patch_list) if report.role is Role.SCHEDULER)
    os.kill(scheduler, signal.SIGKILL)
    engine.wait()
    assert engine.admin_key not in engine.log()
    _assert_dump_is_clean(dumps, engine.admin_key)


def _assert_dump_is_clean(dumps: Path, admin_key: str) -> None:
    deadline = time.monotonic() + 30
    while not (files := list(dumps.rglob("*.pkl"))) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert len(files) == 1
    content = files[0].read_bytes()
    assert admin_key.encode() not in content
    assert b"<redacted>" in content
