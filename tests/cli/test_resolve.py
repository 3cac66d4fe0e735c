"""`spec-toolkit resolve` as a person meets it: the engine is asked once, and then its answer is kept."""

import json
from pathlib import Path

import pytest

from spec_toolkit.cli import main as cli
from spec_toolkit.launch import resolve

COMMAND = "python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3-0324 --tp 8"


@pytest.fixture
def toolkit(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["spec-toolkit", "resolve", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        return int(str(ended.value.code)), said.out, said.err

    return call


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        pytest.param([], 2, "Name a recipe", id="nothing"),
        pytest.param(["deepseek_v3_h200", "--command", COMMAND], 2, "Name a recipe", id="both"),
        pytest.param(["--command", COMMAND], 2, "needs --gpu", id="no-gpu"),
        pytest.param(["deepseek_v3_h20"], 2, "Did you mean 'deepseek_v3_h200'", id="recipe"),
        pytest.param(["--command", "ls -l", "--gpu", "h200"], 2, "[command.", id="no-launch"),
        pytest.param(["--command", COMMAND, "--gpu", "h2000"], 2, "[check.unknown-gpu]", id="gpu"),
        pytest.param(
            ["--command", COMMAND.replace("0324", "9"), "--gpu", "h200"], 3, "[resolve.unknown-model]", id="model"
        ),
        pytest.param(
            ["--command", COMMAND.replace("deepseek-ai", "/nowhere"), "--gpu", "h200"], 3, "no such file", id="folder"
        ),
    ],
)
def test_what_cannot_be_asked_is_said_in_a_sentence(toolkit, arguments: list[str], code: int, says: str) -> None:
    ended, out, err = toolkit(*arguments)
    assert ended == code
    assert says in err
    assert not out


def test_without_an_engine_it_says_how_to_get_one(toolkit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolve, "engine_identity", lambda: None)
    ended, _, err = toolkit("deepseek_v3_h200")
    assert ended == 3
    assert "make setup" in err


@pytest.mark.engine
def test_a_command_is_resolved_told_and_kept(toolkit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = [
        "--gpu",
        "h200",
        "--count",
        "8",
        "--command",
        f"{COMMAND} --speculative-algorithm EAGLE --api-key very-secret",
    ]
    ended, told, waited = toolkit(*ask)
    assert ended == 0, told
    assert "deepseek-ai/DeepSeek-V3-0324 on 8 H200, as sglang 0.5.23 resolves it" in told
    assert "asking sglang" in waited
    monkeypatch.setattr(resolve, "_CHILD", "/nowhere")
    ended, told, waited = toolkit(*ask, "--json")
    record = json.loads(told)
    assert (ended, waited) == (0, "")
    assert record["decided"]["algorithm"] == "EAGLE"
    kept = [path.read_text() for path in tmp_path.rglob("*.json")]
    assert kept
    assert not [text for text in kept if "very-secret" in text]


@pytest.mark.engine
def test_a_launch_that_the_engine_refuses_is_refused(toolkit) -> None:
    ended, told, _ = toolkit(
        "--gpu", "h200", "--count", "8", "--command", f"{COMMAND} --pp-size 2 --speculative-algorithm EAGLE"
    )
    assert ended == 1
    assert "only supported on prefill nodes" in told
    assert "[resolve.refused]" in told
