import json

import click
import pytest
from click.testing import CliRunner

from spec_toolkit.cli import check, init
from spec_toolkit.cli.main import cli
from spec_toolkit.errors import RecipeError

V3 = "sglang serve deepseek-ai/DeepSeek-V3-0324 --tp 8 --max-running-requests 64 --context-length 32768 --speculative-algorithm EAGLE"
MACHINE = ("--gpu", "h200", "--count", "8")


def call(verb, *arguments: str, stdin: str | None = None):
    """Exit code, stdout, stderr."""
    result = CliRunner().invoke(verb.command, arguments, input=stdin, standalone_mode=False)
    if result.exception:
        raise result.exception
    return result.return_value, result.stdout, result.stderr


def test_a_command_is_checked():
    code, told, _ = call(check, "--command", f"{V3} --cuda-graph-max-bs 64", *MACHINE)
    assert code == 0
    assert "--cuda-graph-max-bs-decode" in told
    assert told.splitlines()[-1].startswith("deepseek-ai/DeepSeek-V3-0324 on 8 H200 may be launched")


def test_a_refused_command_ends_with_1():
    code, told, _ = call(check, "--command", f"{V3} --tp_size 8", *MACHINE)
    assert code == 1
    assert "[command.unknown-flag]" in told


def test_either_comes_from_standard_input(tmp_path):
    assert call(check, "--command", "-", *MACHINE, stdin=V3)[0] == 0
    pod = f"spec: {{containers: [{{command: [{', '.join(V3.split())}]}}]}}"
    code, told, _ = call(check, "--manifest", "-", *MACHINE, stdin=pod)
    assert code in {0, 1}
    assert "stdin:1" in told
    path = tmp_path / "pod.yaml"
    path.write_text(pod)
    assert call(check, "--manifest", str(path), *MACHINE)[0] == code


def test_json_is_the_record():
    _, told, _ = call(check, "--command", V3, *MACHINE, "--json")
    (record,) = json.loads(told)
    assert record["machine"] == "8 H200"
    assert {"rule", "verdict", "where", "found"} <= set(record["findings"][0])


@pytest.mark.parametrize("arguments", [[], ["deepseek_v3_h200", "--command", V3], ["--command", V3, "--manifest", "x"]])
def test_exactly_one_thing_is_looked_at(arguments):
    with pytest.raises(Exception, match="exactly one"):
        call(check, *arguments)


def test_what_cannot_be_read_is_said():
    with pytest.raises(RecipeError, match=r"command\.no-launch"):
        call(check, "--command", "echo", *MACHINE)
    with pytest.raises(RecipeError, match="no such file"):
        call(check, "--manifest", "nowhere.yaml", *MACHINE)


def test_a_config_file_is_read_where_the_command_would_find_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.yaml").write_text("tp_size: 8\n")
    assert "[command.unknown-flag]" in call(check, "--command", f"{V3} --config x.yaml", *MACHINE)[1]


def test_a_config_file_in_nobodys_home_is_said():
    found = call(check, "--command", f"{V3} --config ~nosuchuser/x.yaml", *MACHINE)
    assert found[0] == 1
    assert "whom this machine does not have" in found[1]
    assert "[command.config-file]" in found[1]


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "--command", "sglang serve \udcff", *MACHINE],
        ["check", "--command", V3, "--gpu", "h\ud800"],
        ["plan", "r\udcff.yaml"],
        ["init", "--manifest", "\udc80", *MACHINE],
        ["--\udcff"],
    ],
)
def test_what_is_no_text_is_refused_before_any_verb(arguments):
    with pytest.raises(click.UsageError, match="is not UTF-8 text"):
        cli.main(arguments, standalone_mode=False)


@pytest.mark.parametrize("verb", [check, init])
@pytest.mark.parametrize("folder", ["/models/", "./", "a/"])
def test_a_name_too_long_for_any_folder_is_an_unknown_model(verb, folder):
    text = f"sglang serve {folder}{'a' * 300} --tp 8 --context-length 4096 --max-running-requests 8"
    assert call(verb, "--command", text, *MACHINE)[0] in {0, 1}


def test_a_recipe_without_speculation_passes_its_check(tmp_path):
    path = tmp_path / "plain_h200.yaml"
    plain = V3.partition(" --speculative")[0]
    assert call(init, "--command", plain, *MACHINE, "--out", str(path))[0] == 0
    assert call(check, str(path))[0] == 0


def test_a_recipe_is_written_and_passes_its_check(tmp_path):
    path = tmp_path / "mine_h200.yaml"
    code, told, said = call(init, "--command", V3, *MACHINE, "--out", str(path))
    assert (code, told) == (0, "")
    assert "written" in said
    assert call(check, str(path))[0] == 0
    with pytest.raises(RecipeError, match=r"init\.exists"):
        call(init, "--command", V3, *MACHINE, "--out", str(path))


def test_without_a_file_the_recipe_is_the_answer():
    code, told, said = call(init, "--command", f"{V3} --page-size 64", *MACHINE)
    assert code == 0
    assert told.startswith("# Written by `spec-toolkit init`")
    assert "extra_args" in told
    assert "init." in said


def test_nothing_is_written_of_a_command_that_the_engine_refuses(tmp_path):
    path = tmp_path / "x_h200.yaml"
    assert call(init, "--command", f"{V3} --tp_size 8", *MACHINE, "--out", str(path))[0] == 1
    assert not path.exists()


def test_of_several_launches_the_first_becomes_a_recipe_and_that_is_said():
    code, told, said = call(init, "--command", f"{V3}\nsglang serve a/b", *MACHINE)
    assert code == 0
    assert "model: deepseek-ai/DeepSeek-V3-0324" in told
    assert "holds 2 launches" in said
