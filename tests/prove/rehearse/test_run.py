import asyncio
import re
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from spec_toolkit.errors import EngineError, FactsError
from spec_toolkit.launch.planned import plan_recipe
from spec_toolkit.prove.rehearse import run
from spec_toolkit.prove.rehearse.ready import make_ready
from spec_toolkit.prove.rehearse.run import _folder
from spec_toolkit.recipe.catalogue import find_recipe


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_its_folder_is_private_and_goes(scratch: Path) -> None:
    with _folder() as folder:
        assert folder.parent == scratch
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "engine.log").touch()
    assert list(scratch.iterdir()) == []


def test_an_interrupt_while_the_folder_is_made_leaves_none(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Path.mkdir

    def interrupted(self: Path, **options: int) -> None:
        made(self, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "mkdir", interrupted)
    with pytest.raises(KeyboardInterrupt), _folder():
        pass
    assert list(scratch.iterdir()) == []


def test_where_an_engine_failed_the_folder_is_kept_and_named(scratch: Path) -> None:
    def ends(folder: Path) -> None:
        (folder / "speculating").mkdir()
        (folder / "speculating" / "engine.log").touch()
        raise EngineError.of("engine.start", "speculating", "ended")

    with pytest.raises(EngineError) as caught, _folder() as folder:
        ends(folder)
    (left,) = scratch.iterdir()
    assert f"logs are kept in {left}." in str(caught.value)


def test_where_nothing_was_said_nothing_is_kept(scratch: Path) -> None:
    with pytest.raises(EngineError) as caught, _folder():
        raise EngineError.of("engine.start", "target alone", "ended")
    assert list(scratch.iterdir()) == []
    assert "logs" not in str(caught.value)


def test_the_administrations_key_is_no_flag_to_a_parser(scratch: Path) -> None:
    """The engine reads its file as a command line: of keys in base 64 one in 64 began with a hyphen, and it did not start."""
    keys = [run._Stage(nursery=None, folder=scratch, tell=print).key for _ in range(50)]
    assert all(re.fullmatch("[0-9a-f]{64}", key) for key in keys)
    assert len(set(keys)) == 50


def test_while_engines_answer_it_says_how_many_have_come(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_TELL_SECONDS", 0.01)
    told: asyncio.Queue[str] = asyncio.Queue()
    engines = [SimpleNamespace(address="http://127.0.0.1:9", name=name) for name in ("target alone", "speculating")]

    async def ask() -> str:
        stage = run._Stage(nursery=None, folder=scratch, tell=told.put_nowait)
        async with stage.clients(*engines) as (target, drafting):
            target.answers, drafting.answers = 3, 5
            said = await asyncio.wait_for(told.get(), 5)
        for _ in range(told.qsize()):
            told.get_nowait()
        with pytest.raises(TimeoutError):  # and no word more
            await asyncio.wait_for(told.get(), 0.1)
        return said

    assert asyncio.run(ask()) == "answers so far: 3 (target alone), 5 (speculating)"


def test_where_nobody_reads_what_is_told_the_asking_ends_with_that(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_TELL_SECONDS", 0.01)

    def tell(_: str) -> None:
        raise BrokenPipeError

    async def ask() -> None:
        stage = run._Stage(nursery=None, folder=scratch, tell=tell)
        async with stage.clients(SimpleNamespace(address="http://127.0.0.1:9", name="target alone")):
            await asyncio.sleep(30)

    with pytest.raises(BrokenPipeError):
        asyncio.run(ask())


@pytest.mark.parametrize(("tokens", "left_out"), [(4096, 0), (280, 18), (200, None)])
def test_prompts_that_do_not_fit_are_left_out_and_counted(tokens: int, left_out: int | None) -> None:
    loaded, plan = plan_recipe(find_recipe("rehearsal/deepseek_v3_cpu"))
    ready = make_ready(loaded, plan)
    limits = replace(ready.alone.plan.recipe.limits, context_tokens=tokens)
    recipe = replace(ready.alone.plan.recipe, limits=limits)
    ready = SimpleNamespace(alone=SimpleNamespace(plan=SimpleNamespace(recipe=recipe)))
    if left_out is None:
        with pytest.raises(FactsError, match=r"limits.context_tokens: is 200; .*\[rehearse.context\]"):
            run._questions(ready, 24)
        return
    questions, found = run._questions(ready, 24)
    assert found == left_out
    assert len(questions.prompts) == 24 * 5 - found
    assert max(map(len, questions.prompts)) <= tokens - 48
