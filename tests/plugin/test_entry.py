"""The plugin inside processes of a small engine: what it applies, and the message of each way it refuses."""

import stat
from dataclasses import replace

import pytest

from spec_toolkit.handover import ENDED_BY_PATCHES, Relied, Role, report_folder

LOAD = "from sglang.srt.plugins import load_plugins; load_plugins()\n"
USE = LOAD + "from sglang.work import step; print(step(1))"

# What the entry module itself may bring into an engine that was handed no list.
INERT_MODULES = {"spec_toolkit", "spec_toolkit.plugin", "spec_toolkit.plugin.entry", "spec_toolkit.handover"}


def refusal(engine, patch_list, program=USE) -> str:
    """The one message of a process that ended itself."""
    done = engine.run(program, patch_list)
    assert done.returncode == ENDED_BY_PATCHES, done.stderr
    messages = [line for line in done.stderr.splitlines() if line.startswith("spec-toolkit: ")]
    assert len(messages) == 1
    return messages[0].removeprefix("spec-toolkit: ")


def test_without_a_list_nothing_is_hooked_and_nothing_is_imported(engine):
    done = engine.run(
        LOAD + "import sys\n"
        "from sglang.srt.plugins.hook_registry import HookRegistry\n"
        "print(dict(HookRegistry._hooks), HookRegistry._patched)\n"
        "print(*sorted(name for name in sys.modules if name.startswith('spec_toolkit')))\n"
        "print(*(name for name in ('yaml', 'msgspec', 'aiohttp', 'click', 'rich', 'torch') if name in sys.modules))"
    )
    hooks, ours, heavy = done.stdout.split("\n")[:3]
    assert hooks == "{} set()"
    assert set(ours.split()) == INERT_MODULES
    assert heavy == ""


def test_a_hook_is_applied_and_reported(engine):
    done = engine.run(USE, engine.list_of(engine.hook()))
    assert (done.returncode, done.stdout) == (0, "4\n")
    (report,) = engine.reports()
    assert (report.role, report.applied, report.inherited) == (Role.LAUNCHER, ("sglang.work.step",), ())


def test_with_a_list_nothing_heavy_is_imported_either(engine):
    heavy = "print(*(n for n in ('yaml', 'msgspec', 'aiohttp', 'click', 'rich') if n in __import__('sys').modules))"
    assert engine.run(LOAD + heavy, engine.list_of(engine.hook())).stdout == "\n"


def test_the_report_is_for_this_user_only(engine):
    patch_list = engine.list_of(engine.hook())
    engine.run(USE, patch_list)
    assert stat.S_IMODE(report_folder(patch_list).stat().st_mode) == 0o700


@pytest.mark.parametrize("target", ["Worker.run", "Worker.plain", "Worker.of"])
def test_methods_of_every_kind_are_hooked(engine, target):
    hook = engine.hook(f"sglang.work.{target}")
    program = LOAD + f"from sglang.work import Worker; print(Worker().{target.split('.')[1]}(1))"
    expected = "4\n" if target == "Worker.run" else "2\n"
    assert engine.run(program, engine.list_of(hook)).stdout == expected


def test_hooks_of_other_roles_are_left_out(engine):
    done = engine.run(USE, engine.list_of(engine.hook(roles=(Role.SCHEDULER,))))
    assert done.stdout == "2\n"
    (report,) = engine.reports()
    assert report.applied == ()


def test_a_scheduler_reports_its_ranks(engine):
    program = "from sglang.roles import run_scheduler_process; run_scheduler_process(1, 0, None)"
    engine.run(program, engine.list_of(engine.hook()))
    assert [report.name() for report in engine.reports()] == ["scheduler-pp0-tp1"]


def test_a_renamed_target_ends_the_process(engine):
    patch_list = engine.list_of(engine.hook())
    engine.write("work", "def stride(batch):\n    return batch + 1\n")
    assert refusal(engine, patch_list) == (
        "sglang.work.step (in launcher): step is not defined in work.py, and 'double-it' changes it; the engine would log this and "
        "run without the patch. Run `spec-toolkit patches verify`, then pin the engine it names or update the patch. "
        "[plugin.target-missing]"
    )


def test_a_changed_source_ends_the_process(engine):
    hook = engine.hook(fingerprint="0123456789abcdef" * 4)
    found = engine.hook().fingerprint[:12]
    assert refusal(engine, engine.list_of(hook)) == (
        f"sglang.work.step (in launcher): its source has fingerprint {found}, 'double-it' expects 0123456789ab; the patch was written "
        "against other source, and would change what it was not tested with. Run `spec-toolkit patches verify`, then pin the engine "
        "it names or update the patch. [plugin.source-changed]"
    )


def test_a_process_checks_the_targets_of_other_roles_too(engine):
    hook = engine.hook(fingerprint="0" * 64, roles=(Role.SCHEDULER,))
    assert "[plugin.source-changed]" in refusal(engine, engine.list_of(hook))


def relying(engine, **changes: str):
    """A hook of a patch that relies on `other` as it is now."""
    relied = {"target": "sglang.work.other", "fingerprint": engine.hook("sglang.work.other").fingerprint, **changes}
    return engine.hook(relies_on=(Relied(**relied),))


def test_what_is_relied_on_is_checked_and_not_hooked(engine):
    program = LOAD + "from sglang.work import step, other; print(step(1), other(1))"
    assert engine.run(program, engine.list_of(relying(engine))).stdout == "4 0\n"
    assert engine.reports()[0].applied == ("sglang.work.step",)


def test_what_is_relied_on_and_reads_otherwise_ends_the_process(engine):
    found = engine.hook("sglang.work.other").fingerprint[:12]
    assert refusal(engine, engine.list_of(relying(engine, fingerprint="0123456789abcdef" * 4))) == (
        f"sglang.work.other (in launcher): its source has fingerprint {found}, 'double-it' relies on 0123456789ab without hooking it; "
        "the patch's hooks were written for that source, and would lean on what they were not tested with. Run `spec-toolkit patches "
        "verify`, then pin the engine it names or update the patch. [plugin.source-changed]"
    )


def test_what_is_relied_on_and_gone_ends_the_process(engine):
    assert refusal(engine, engine.list_of(relying(engine, target="sglang.work.another"))) == (
        "sglang.work.another (in launcher): another is not defined in work.py, and 'double-it' relies on it without hooking it; the "
        "patch's hooks were written for that source, and would lean on what they were not tested with. Run `spec-toolkit patches "
        "verify`, then pin the engine it names or update the patch. [plugin.target-missing]"
    )


def test_a_plugin_that_cannot_be_imported_is_swallowed_and_leaves_no_report(engine):
    """What the launcher's check for missing reports is for."""
    (engine.root / "spec_toolkit").mkdir()
    (engine.root / "spec_toolkit" / "__init__.py").write_text("raise ImportError('half installed')\n")
    done = engine.run(USE, engine.list_of(engine.hook()))
    assert (done.returncode, done.stdout) == (0, "2\n")
    assert "Failed to load plugin spec_toolkit" in done.stderr
    assert engine.reports() == []


def test_a_plugin_broken_below_its_entry_ends_the_process(engine):
    broken = "import sys; sys.modules['spec_toolkit.plugin.loader'] = None\n"
    message = refusal(engine, engine.list_of(engine.hook()), broken + USE)
    assert "ModuleNotFoundError" in message
    assert message.endswith("Reinstall spec-toolkit for this engine. [plugin.failed]")


@pytest.mark.parametrize("content", [b"", b"{}", b'[{"target": 3}]', b"\xff\xfe", b"[1]"])
def test_a_list_that_cannot_be_read_ends_the_process(engine, content):
    patch_list = engine.list_of()
    patch_list.write_bytes(content)
    assert "this process would run without its patches" in refusal(engine, patch_list)


def test_a_missing_list_ends_the_process(engine):
    assert "FileNotFoundError" in refusal(engine, engine.root / "nowhere.json")


def test_a_hook_the_engine_swallows_ends_the_process(engine):
    hook = engine.hook("sglang.work.Worker")
    assert refusal(engine, engine.list_of(hook)) == (
        "sglang.work.Worker (in launcher): hook 'double' of 'double-it' is not in place after the engine applied its hooks; the engine "
        "logs such a failure and goes on without the patch. The engine's log above names the cause. [plugin.hook-not-applied]"
    )


@pytest.mark.parametrize("function", ["triple", "not_a_function"])
def test_a_hook_that_is_not_there_ends_the_process(engine, function):
    message = refusal(engine, engine.list_of(engine.hook(function=function)))
    assert f"has no function '{function}', which 'double-it' puts on sglang.work.step" in message
    assert message.endswith("[plugin.hook-missing]")


def test_a_hooks_file_edited_after_the_launch_ends_the_process(engine):
    hook = replace(engine.hook(), file_sha256="0" * 64)
    assert refusal(engine, engine.list_of(hook)).endswith("[plugin.hooks-changed]")


def test_a_target_hooked_before_us_ends_the_process(engine):
    """The engine would drop our hook without a word."""
    taken = (
        "from sglang.srt.plugins.hook_registry import HookRegistry, HookType\n"
        "HookRegistry.register('sglang.work.step', lambda original, batch: 0, HookType.AROUND)\n"
        "HookRegistry.apply_hooks()\n"
    )
    assert refusal(engine, engine.list_of(engine.hook()), taken + USE).endswith("[plugin.target-taken]")


HOLDERS = {
    "list": ("ROUTES = [step]", "sglang.work.ROUTES"),
    "dict": ("TABLE = {'step': step}", "sglang.work.TABLE (step)"),
    "partial": ("import functools\nBOUND = functools.partial(step, 1)", "sglang.work.BOUND"),
    "default-argument": ("def late(run=step):\n    return run(1)", "default argument of sglang.work.late"),
    "closure": (
        "def outer(run):\n    def inner():\n        return run(1)\n    return inner\nINNER = outer(step)",
        "closure of sglang.work.outer.<locals>.inner",
    ),
    "class-alias": ("class Other:\n    run = step", "class sglang.work.Other (run)"),
}


@pytest.mark.parametrize(("source", "name"), HOLDERS.values(), ids=HOLDERS)
def test_whoever_keeps_the_unhooked_function_ends_the_process(engine, source, name):
    hook = engine.hook()
    engine.write("work", (engine.package / "work.py").read_text() + f"\n{source}\n")
    assert refusal(engine, engine.list_of(hook)) == (
        f"sglang.work.step (in launcher): the unhooked function is still held by {name}; calls through there would run without the "
        "patch. Hook the holder instead, or name it under may_keep with the reason it does no harm. [plugin.unhooked-copy]"
    )


@pytest.mark.parametrize(("source", "name"), HOLDERS.values(), ids=HOLDERS)
def test_a_holder_known_to_do_no_harm_may_keep_it(engine, source, name):
    hook = engine.hook(may_keep=(name,))
    engine.write("work", (engine.package / "work.py").read_text() + f"\n{source}\n")
    assert engine.run(USE, engine.list_of(hook)).stdout == "4\n"


def test_a_name_imported_from_the_module_is_rebound(engine):
    """Near miss: module globals are the one kind of copy the engine itself sees."""
    engine.write("user", "from sglang.work import step\n")
    program = "import sglang.user\n" + LOAD + "print(sglang.user.step(1))"
    assert engine.run(program, engine.list_of(engine.hook())).stdout == "4\n"


def test_a_holder_frozen_out_of_the_collectors_sight_is_found(engine):
    """A fork server freezes its heap, and `gc.get_referrers` does not look there."""
    engine.write("user", "from sglang.work import step\nROUTES = [step]\n")
    program = "import gc, sglang.user\ngc.freeze()\n" + USE
    assert "held by sglang.user.ROUTES" in refusal(engine, engine.list_of(engine.hook()), program)


def test_a_class_that_its_decorator_replaced_is_garbage(engine):
    """Near miss: uncollected because a fork server rests the collector while it imports."""
    engine.write("user", "from sglang.work import step\nclass Old:\n    run = step\nOld.me = Old\ndel Old\n")
    program = "import gc\ngc.disable()\nimport sglang.user\n" + USE
    assert engine.run(program, engine.list_of(engine.hook())).stdout == "4\n"


FORK = """
import os, sys
import sglang.work, sglang.roles
import sglang.srt.plugins as plugins
plugins.load_plugins()
child = os.fork()
if child == 0:
    plugins._plugins_loaded = False
    plugins.HookRegistry._hooks.clear()
    sglang.roles.run_scheduler_process(0, 0, None)
    print("scheduler", sglang.work.step(1), sglang.work.other(1), flush=True)
    os._exit(0)
_, status = os.waitpid(child, 0)
print("launcher", sglang.work.step(1), sglang.work.other(1), flush=True)
os._exit(os.waitstatus_to_exitcode(status))
"""


def test_a_forked_scheduler_keeps_what_it_shares_and_adds_its_own(engine):
    shared = engine.hook()
    its_own = engine.hook("sglang.work.other", "negate", roles=(Role.SCHEDULER,))
    done = engine.run(FORK, engine.list_of(shared, its_own))
    assert done.stdout.splitlines() == ["scheduler 4 0", "launcher 4 0"], done.stderr
    launcher, scheduler = engine.reports()
    assert launcher.applied == ("sglang.work.step",)
    assert scheduler.applied == ("sglang.work.step", "sglang.work.other")
    assert scheduler.pid != launcher.pid


def test_a_forked_scheduler_says_which_hooks_came_with_the_fork(engine):
    launchers = engine.hook(roles=(Role.LAUNCHER,))
    done = engine.run(FORK, engine.list_of(launchers))
    assert done.stdout.splitlines() == ["scheduler 4 0", "launcher 4 0"]
    _, scheduler = engine.reports()
    assert (scheduler.applied, scheduler.inherited) == ((), ("sglang.work.step",))


def test_a_forked_scheduler_ends_itself_and_not_its_parent(engine):
    its_own = engine.hook("sglang.work.other", "triple", roles=(Role.SCHEDULER,))
    done = engine.run(FORK, engine.list_of(its_own))
    assert "[plugin.hook-missing]" in done.stderr
    assert done.stdout.splitlines() == ["launcher 2 0"]
    assert done.returncode == ENDED_BY_PATCHES
