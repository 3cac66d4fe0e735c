"""The commands as a person meets them: exit codes, what goes to stdout, and never a traceback."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # each is a process or several

DEADLINE_SECONDS = 60.0
VERBS = (
    *("bundle", "check", "deploy", "doctor", "init", "logs", "patches", "pin", "plan", "recipes"),
    *("rehearse", "resolve", "status", "stop"),
)
RECIPES = Path(__file__).parent.parent.parent / "recipes"


@pytest.fixture
def toolkit(tmp_path: Path):
    environment = os.environ | {
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
    }

    def call(*arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
        answer = subprocess.run(
            [sys.executable, "-m", "spec_toolkit.cli.main", *arguments],
            env=environment | changes,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )
        assert "Traceback" not in answer.stderr
        return answer

    return call


def write(tmp_path: Path, **changes: str) -> Path:
    text = (RECIPES / "rehearsal" / "deepseek_v3_cpu.yaml").read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "mine_cpu.yaml"
    path.write_text(text)
    return path


def test_help_lists_every_verb_and_each_has_help_with_an_example(toolkit) -> None:
    listing = toolkit("--help")
    assert listing.returncode == 0
    for verb in VERBS:
        assert f"  {verb}" in listing.stdout
        page = toolkit(verb, "--help")
        assert page.returncode == 0
        assert f"spec-toolkit {verb}" in page.stdout, "no example"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        pytest.param(["nonsense"], 2, "No such command", id="verb"),
        pytest.param(["deploy"], 2, "Missing argument", id="argument"),
        pytest.param(["check", "deepseek_v3_h20"], 2, "Did you mean 'deepseek_v3_h200'", id="catalogue-name"),
        pytest.param(["check", "./nowhere.yaml"], 2, "nowhere.yaml", id="file"),
        pytest.param(["status", "nowhere"], 3, "nowhere: no such deployment on this machine", id="deployment"),
        pytest.param(["stop", "../x"], 2, "cannot name a deployment", id="name"),
        pytest.param(["deploy", "deepseek_v3_h200", "--name", "a/b"], 2, "cannot name a deployment", id="deploy-name"),
    ],
)
def test_what_is_wrong_with_a_command_line_is_said_in_a_sentence(toolkit, arguments, code, said) -> None:
    answer = toolkit(*arguments)
    assert answer.returncode == code
    assert said in answer.stderr


def test_a_machine_without_gpus_is_told_what_it_has_and_what_is_needed(toolkit, tmp_path: Path) -> None:
    answer = toolkit("deploy", "deepseek_v3_h200")
    assert answer.returncode == 3
    assert "has no NVIDIA GPU" in answer.stderr
    assert "the recipe needs 8 × H200" in answer.stderr  # noqa: RUF001 - it says "times"
    assert answer.stdout == "", "a screenful of command hides the refusal"
    assert not (tmp_path / "state").exists()


def test_a_dry_run_for_another_machine_shows_the_command_too(toolkit, tmp_path: Path) -> None:
    answer = toolkit("deploy", "deepseek_v3_h200", "--dry-run")
    assert answer.returncode == 3
    assert "has no NVIDIA GPU" in answer.stderr
    assert "-m sglang.launch_server" in answer.stdout
    assert not (tmp_path / "state").exists()


def test_as_json_the_wrong_machine_and_a_dry_run_are_one_record(toolkit) -> None:
    for arguments, code in (
        (["deepseek_v3_h200"], 3),
        (["deepseek_v3_h200", "--dry-run"], 3),
        (["deepseek_v3_cpu", "--dry-run"], 0),
    ):
        answer = toolkit("deploy", *arguments, "--json")
        assert answer.returncode == code
        record = json.loads(answer.stdout)
        assert record["launch"]["command"]
        assert bool(code) is any(finding["rule"].startswith("machine.") for finding in record["findings"])


@pytest.mark.parametrize("state", ["/proc/nope", "/dev/null", "/proc/self/mem/x"])
def test_a_state_folder_that_cannot_be_is_a_sentence(toolkit, state: str) -> None:
    answer = toolkit("deploy", "rehearsal/deepseek_v3_cpu", "--detach", XDG_STATE_HOME=state)
    assert answer.returncode == 3
    assert "Check rights and space. [world.system]" in answer.stderr


def test_an_nvidia_smi_that_writes_noise_is_no_gpu(toolkit, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin" / "nvidia-smi"
    fake.write_text("#!/bin/sh\nhead -c 500 /dev/urandom\n")
    fake.chmod(0o755)
    answer = toolkit("deploy", "deepseek_v3_h200", PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert answer.returncode == 3
    assert "the recipe needs 8" in answer.stderr


def test_a_dry_run_touches_nothing_and_asks_nobody(toolkit, tmp_path: Path) -> None:
    answer = toolkit("deploy", "rehearsal/deepseek_v3_cpu", "--dry-run")
    assert answer.returncode == 0
    assert "rehearsal/serve.py" in answer.stdout
    assert not (tmp_path / "state").exists()


def test_a_refused_recipe_starts_nothing(toolkit, tmp_path: Path) -> None:
    path = write(tmp_path, **{"sglang: 0.5.23": "sglang: 0.5.22"})
    answer = toolkit("deploy", str(path))
    assert answer.returncode == 1
    assert "[pins.engine-version]" in answer.stderr
    assert not (tmp_path / "state").exists()


def test_check_as_json_is_a_record_with_its_findings(toolkit) -> None:
    answer = toolkit("check", "deepseek_v3_h200", "--json")
    assert answer.returncode == 0
    [record] = json.loads(answer.stdout)
    assert (record["name"], record["machine"]) == ("deepseek_v3_h200", "8 × H200, TP 8")  # noqa: RUF001 - times
    assert (record["labels"], record["may_launch"]) == (["unproven"], True)
    assert {"rule", "verdict", "where", "found", "why", "remedy", "changes"} == set(record["findings"][0])


def test_no_deployment_is_not_an_error(toolkit) -> None:
    assert toolkit("status").returncode == 0
    assert json.loads(toolkit("status", "--json").stdout) == []


def test_patches_are_listed_and_verified_against_the_installed_engine(toolkit) -> None:
    listed = toolkit("patches", "list")
    assert listed.returncode == 0
    assert "redact-keys  (every deployment" in listed.stdout
    verified = toolkit("patches", "verify")
    assert verified.returncode == 0, verified.stdout
    assert "match sglang 0.5.23" in verified.stdout


def test_help_does_not_import_what_it_does_not_need() -> None:
    script = "import sys; sys.argv = ['x', '--help']; from spec_toolkit.cli.main import cli\ntry: cli()\nexcept SystemExit: pass\nprint(*sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=True
    )
    heavy = {"rich", "aiohttp", "asyncio", "yaml", "msgspec", "torch", "sglang", "huggingface_hub"}
    assert not heavy & set(answer.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    ("recipe", "code", "says"),
    [
        pytest.param("deepseek_v4_pro_b200", 3, "cannot be rehearsed", id="an-architecture-without-a-cpu-form"),
        pytest.param("no_such_recipe", 2, "neither a file nor a recipe", id="no-recipe"),
        pytest.param("refused.yaml", 1, "[shape.tree-width]", id="a-recipe-that-check-refuses"),
        pytest.param("tree.yaml", 3, "[backend.chain-only]", id="what-the-cpu-engine-does-not-do"),
    ],
)
def test_what_cannot_be_rehearsed_says_so_at_once(toolkit, tmp_path, recipe: str, code: int, says: str) -> None:
    text = (RECIPES / "deepseek_v3_h200.yaml").read_text()
    (tmp_path / "refused.yaml").write_text(text.replace("topk: 1", "topk: 2"))
    tree = (RECIPES / "gemma4_31b_h200.yaml").read_text().replace("topk: 1", "topk: 2\n  num_draft_tokens: 6")
    (tmp_path / "tree.yaml").write_text(tree)
    answer = toolkit("rehearse", recipe)
    assert (answer.returncode, answer.stdout) == (code, "")
    assert says in answer.stderr
    if code != 2:  # a file that is no recipe has no name to make a record of
        as_json = toolkit("rehearse", recipe, "--json")
        record = json.loads(as_json.stdout)
        assert as_json.returncode == code
        assert record["passed"] is None
        assert any(says.strip("[]") in str(each) for each in record["refused"])


@pytest.mark.parametrize(
    ("words", "closed", "code"),
    [
        pytest.param(["plan", "deepseek_v3_h200"], "stdout", 141, id="an-answer"),
        pytest.param(["--help"], "stdout", 141, id="help"),
        pytest.param(["plan", "--help"], "stdout", 141, id="a-verbs-help"),
        pytest.param(["plan", "no_such_recipe"], "stderr", 2, id="a-refusal"),
        pytest.param(["plan", "--no-such-option"], "stderr", 2, id="a-wrong-command-line"),
    ],
)
def test_a_reader_that_goes_away_is_no_answer(words: list[str], closed: str, code: int) -> None:
    """The shell's number for a closed pipe: 1 would say that the answer is no. What can be said by the exit code is."""
    theirs, ours = os.pipe()
    os.close(theirs)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, closed: ours}
    try:
        answer = subprocess.run(
            [sys.executable, "-m", "spec_toolkit.cli.main", *words],
            **streams, text=True, timeout=DEADLINE_SECONDS, check=False,
        )  # fmt: skip
    finally:
        os.close(ours)
    assert answer.returncode == code
    assert not answer.stdout
    assert not answer.stderr
