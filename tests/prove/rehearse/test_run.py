import tempfile
from pathlib import Path

import pytest

from spec_toolkit.errors import EngineError
from spec_toolkit.prove.rehearse.run import _folder


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
    with pytest.raises(EngineError) as caught, _folder():
        raise EngineError.of("engine.start", "target alone", "ended")
    (left,) = scratch.iterdir()
    assert f"logs are kept in {left}." in str(caught.value)
