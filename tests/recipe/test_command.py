import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_toolkit.errors import RecipeError, Verdict
from spec_toolkit.recipe.command import read_commands
from tests.recipe.reading import read_command

SERVER = "python3 -m sglang.launch_server"


def said(launch) -> list[str]:
    return [finding.rule for finding in launch.findings]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"{SERVER} --model-path a/b --tp 8", id="module"),
        pytest.param("sglang serve a/b --tp 8", id="serve"),
        pytest.param("sglang serve --tp 8 --model a/b", id="serve-with-a-flag-first"),
        pytest.param("sglang serve a/b --model-type llm --tp 8", id="serve-a-language-model"),
        pytest.param("/opt/venv/bin/sglang serve a/b --tp=8", id="by-path"),
        pytest.param("$ python -u -m sglang.launch_server --model-path a/b --tp 8", id="prompt"),
        pytest.param(f"{SERVER} \\\n  --model-path a/b \\\n  --tp 8  # eight\n", id="several-lines"),
        pytest.param(f"{SERVER} \\\r\n  --model-path a/b \\\r\n  --tp 8\r\n", id="windows"),
        pytest.param(f"# start it\ncd /x && source y; {SERVER} --model-path a/b --tp 8 2>&1 | tee log &", id="among-others"),
        pytest.param(f"nohup {SERVER} --model-path a/b --tp 8 > log 2>&1 &", id="nohup"),
        pytest.param(f"sudo -E numactl --membind=0 taskset -c 0-7 {SERVER} --model-path a/b --tp 8", id="wrappers"),
        pytest.param(f"bash -c '{SERVER} --model-path a/b --tp 8'", id="bash-c"),
        pytest.param(f'ssh host "bash -lc \'exec {SERVER} --model-path a/b --tp 8\'"', id="a-shell-in-a-shell"),
        pytest.param(f"docker run --rm -it -p 30000:30000 x {SERVER} --model-path a/b --tp 8", id="docker"),
        pytest.param(f"docker run x bash -c '{SERVER} --model-path a/b --tp 8'", id="docker-with-a-shell"),
        pytest.param("docker run --entrypoint python3 x -m sglang.launch_server --model-path a/b --tp 8", id="entrypoint"),
        pytest.param(f"M=a/b; N=8\n{SERVER} --model-path $M --tp ${{N}}", id="variables-of-the-text"),
        pytest.param(f"{SERVER} --model-path a/b --tp ${{TP:-8}}", id="default"),
        pytest.param(f'ARGS=(--model-path a/b\n  --tp 8)\n{SERVER} "${{ARGS[@]}}"', id="array"),
        pytest.param(f'ARGS="--model-path a/b --tp 8"\n{SERVER} $ARGS', id="several-words-in-a-variable"),
        pytest.param(f"CMD='{SERVER} --model-path a/b --tp 8'\neval \"$CMD\"", id="eval"),
        pytest.param(f"cat > run.sh <<'EOF'\n{SERVER} --model-path a/b --tp 8\nEOF\n", id="here-document"),
        pytest.param("srun -N 1 python /sgl/sglang/launch_server.py --model-path a/b --tp 8", id="by-file"),
    ],
)  # fmt: skip
def test_a_launch_is_found_in_what_stands_around_it(text):
    launch = read_command(text)
    assert (launch.arguments.model_path, launch.arguments.tp_size) == ("a/b", 8)
    assert launch.arguments.others == ()
    assert not launch.findings


@pytest.mark.parametrize(
    ("text", "environment"),
    [
        pytest.param(f"A=1 B='x y' {SERVER} --model-path a/b", {"A": "1", "B": "x y"}, id="in-front"),
        pytest.param(f"env -u C A=1 {SERVER} --model-path a/b", {"A": "1"}, id="env"),
        pytest.param(f"export A=1 B=2\n{SERVER} --model-path a/b", {"A": "1", "B": "2"}, id="export"),
        pytest.param(f"A=1\nexport A\n{SERVER} --model-path a/b", {"A": "1"}, id="export-later"),
        pytest.param(f"A=1\n{SERVER} --model-path a/b", {}, id="near-miss-not-exported"),
        pytest.param(f"A=1 bash -c 'B=2 {SERVER} --model-path a/b'", {"A": "1", "B": "2"}, id="through-a-shell"),
        pytest.param(f"A=1 docker run -e B=2 -eC=3 --env D=4 --env=E=5 x {SERVER} --model-path a/b", {"B": "2", "C": "3", "D": "4", "E": "5"}, id="docker-hands-on-its-own"),
        pytest.param(f"HF_TOKEN=hf_aaaaaaaaaaaa {SERVER} --model-path a/b", {"HF_TOKEN": "***"}, id="secret"),
        pytest.param(f"http_proxy=http://me:pw@host:1 {SERVER} --model-path a/b", {"http_proxy": "http://***@host:1"}, id="login"),
        pytest.param(f"SGLANG_NUM_TOKENS=256 {SERVER} --model-path a/b", {"SGLANG_NUM_TOKENS": "256"}, id="near-miss-a-number-of-tokens"),
    ],
)  # fmt: skip
def test_the_environment_of_the_engine(text, environment):
    assert read_command(text).environment == environment


def test_a_container_says_image_version_gpus_and_shared_memory():
    launch = read_command(
        f"docker run --gpus '\"device=0,1\"' --shm-size=32g --ipc host lmsysorg/sglang:v0.5.21-cu130 {SERVER} --model a/b"
    )
    assert (launch.image, launch.sglang) == ("lmsysorg/sglang:v0.5.21-cu130", "0.5.21")
    assert (launch.gpus, launch.shared_memory_bytes, launch.host_ipc) == (2, 32 * 2**30, True)


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("lmsysorg/sglang:v0.5.23", "0.5.23"),
        ("registry:5000/x/sglang:0.5.10.post1-cu130", "0.5.10.post1"),
        ("lmsysorg/sglang:latest", None),
        ("lmsysorg/sglang@sha256:00", None),
        ("vllm/vllm-openai:v0.23.1", None),
    ],
)
def test_the_version_of_an_images_tag(image, version):
    assert read_command(f"docker run {image} sglang serve a/b").sglang == version


def test_visible_devices_are_counted():
    assert read_command(f"CUDA_VISIBLE_DEVICES=0,1,2,3 {SERVER} --model a/b").gpus == 4


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        pytest.param(f"{SERVER} --model a/b \\ \n --tp 8", ["command.cut-off"], id="blank-behind-the-backslash"),
        pytest.param(f"{SERVER} --model a/b \\\n # why\n --tp 8", ["command.cut-off"], id="comment-between"),
        pytest.param(f"{SERVER} --model a/b\n--tp 8", ["command.cut-off"], id="backslash-forgotten"),
    ],
)
def test_a_command_that_the_shell_cuts_off_is_read_whole_with_a_word(text, rules):
    launch = read_command(text)
    assert launch.arguments.tp_size == 8
    assert [(finding.rule, finding.verdict) for finding in launch.findings] == [
        (rule, Verdict.CORRECT) for rule in rules
    ]


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        pytest.param(f"{SERVER} --model-path <model> --tp 8", ["command.variable"], id="placeholder"),
        pytest.param(f"{SERVER} --model-path $MODEL --tp 8", ["command.variable"], id="variable"),
        pytest.param(f"{SERVER} --model-path a/b --tp $(nvidia-smi -L | wc -l)", ["command.variable"], id="command"),
        pytest.param(f"{SERVER} --model-path a/b --tp `nproc`", ["command.variable"], id="old-command"),
        pytest.param(f"{SERVER} --model-path a/b $MORE --tp 8", ["command.variable"], id="further-flags"),
        pytest.param(f"{SERVER} --model-path a/b --host $IP --node-rank $RANK --tp 8", [], id="near-miss-a-place"),
        pytest.param(f"{SERVER} --model-path a/b --api-key $KEY", ["command.secret"], id="secret"),
        pytest.param(f"{SERVER} --tp 8", ["command.no-model"], id="no-model"),
        pytest.param("sglang serve a/b c/d", ["command.stray-word"], id="two-models"),
        pytest.param("sglang serve a/b --model-type diffusion", ["command.no-language-model"], id="pictures"),
        pytest.param(f"{SERVER} --model-path a/b; {SERVER} --model-path c/d", ["command.several"], id="two-launches"),
    ],
)  # fmt: skip
def test_what_there_is_to_say(text, rules):
    assert said(read_command(text)) == rules


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        pytest.param("", "command.no-launch", id="empty"),
        pytest.param("vllm serve a/b", "command.no-launch", id="another-server"),
        pytest.param("python -m sglang.bench_serving", "command.no-launch", id="another-module"),
        pytest.param(f"{SERVER} --model-path 'a/b", "command.quote", id="quote"),
        pytest.param(f"{SERVER} --model-path ${{A", "command.quote", id="brace"),
        pytest.param(f"{SERVER} " + "x" * 70_000, "command.size", id="large"),
        pytest.param("A=" + "x" * 1000 + f"\n{SERVER} " + "$A " * 600, "command.size", id="variables"),
        pytest.param("A=xxxxxxxxxxxxxxxx\n" + "A=$A$A$A$A\n" * 30 + f"{SERVER} $A", "command.size", id="bomb"),
    ],
)
def test_what_is_no_launch_is_refused(text, rule):
    with pytest.raises(RecipeError) as caught:
        read_command(text)
    assert [finding.rule for finding in caught.value.findings] == [rule]


def test_blanks_of_a_web_page_are_read_as_blanks_with_a_word():
    launch = read_command("sglang\xa0serve a/b\u3000--tp 8")
    assert (launch.arguments.tp_size, said(launch)) == (8, ["command.blanks"])


def test_nothing_that_a_terminal_would_obey_is_kept():
    assert read_command("A=$'\\x1b[2J' sglang serve $'a\\x1b/b'").arguments.model_path == "a�/b"
    with pytest.raises(RecipeError, match=r"command\.encoding"):
        read_command("sglang serve a/b\x1b[2J")


def test_every_launch_of_a_text_can_be_had():
    assert [launch.arguments.model_path for launch in read_commands("sglang serve a/b\nsglang serve c/d\n")] == [
        "a/b",
        "c/d",
    ]


def opened(files: dict[str, str]):
    def open_file(name: str) -> bytes:
        if name not in files:
            raise FileNotFoundError(2, "No such file or directory", name)
        return files[name].encode()

    return open_file


@pytest.mark.parametrize(
    ("held", "words", "asked"),
    [
        pytest.param("tp-size: 8\nmodel-path: a/b\n", "", {"tp_size": 8, "model_path": "a/b"}, id="values"),
        pytest.param("tp-size: 8\n", "--model a/b --tp 4", {"tp_size": 4, "model_path": "a/b"}, id="the-command-line-wins"),
        pytest.param("trust-remote-code: true\nskip-server-warmup: false\n", "--model a/b", {"model_path": "a/b", "trust_remote_code": True}, id="switches"),
        pytest.param("cuda-graph-bs-decode: [1, 2]\n", "--model a/b", {"model_path": "a/b", "cuda_graph_bs_decode": [1, 2]}, id="a-list"),
        pytest.param("api-key: sk-aaaaaaaaaa\n", "--model a/b", {"model_path": "a/b", "api_key": "***"}, id="a-secret-belongs-there"),
    ],
)  # fmt: skip
def test_a_config_file_is_merged_as_the_engine_does(held, words, asked):
    launch = read_command(f"{SERVER} --config x.yaml {words}", open_file=opened({"x.yaml": held}))
    arguments = launch.arguments
    assert {name: getattr(arguments, name) for name in asked} == {
        n: tuple(v) if isinstance(v, list) else v for n, v in asked.items()
    }
    assert not launch.findings


@pytest.mark.parametrize(
    ("held", "text", "rule", "verdict"),
    [
        pytest.param("tp-size: 8\n", "--config y.yaml --model a/b", "command.config-file", Verdict.REFUSE, id="missing"),
        pytest.param("tp-size: 8\n", "--config x.json --model a/b", "command.config-file", Verdict.REFUSE, id="no-yaml-by-name"),
        pytest.param("- a\n", "--config x.yaml --model a/b", "command.config-file", Verdict.REFUSE, id="no-keys"),
        pytest.param("a: [\n", "--config x.yaml --model a/b", "command.config-file", Verdict.REFUSE, id="no-yaml"),
        pytest.param("lora-paths: [a]\n", "--config x.yaml --model a/b", "command.config-file", Verdict.REFUSE, id="what-the-engine-takes-from-no-file"),
        pytest.param("tp_size: 8\n", "--config x.yaml --model a/b", "command.unknown-flag", Verdict.REFUSE, id="underscore"),
        pytest.param("tp-size: 8\n", "--config x.yaml --config x.yaml --model a/b", "command.config-file", Verdict.REFUSE, id="twice"),
        pytest.param("tp-size: 8\n", "--config=x.yaml --model a/b", "command.config-ignored", Verdict.CORRECT, id="joined"),
        pytest.param(
            "tp-size: 8\n", "--conf x.yaml --model a/b", "command.config-ignored", Verdict.CORRECT, id="abbreviated"
        ),
        pytest.param("tp-size: 8\n", "--model a/b --config", "command.missing-value", Verdict.REFUSE, id="no-name"),
    ],
)  # fmt: skip
def test_config_files_that_do_not_do_what_was_meant(held, text, rule, verdict):
    launch = read_command(f"{SERVER} {text}", open_file=opened({"x.yaml": held}))
    assert [(finding.rule, finding.verdict) for finding in launch.findings] == [(rule, verdict)]


def test_a_config_file_of_another_machine_is_not_looked_for():
    launch = read_command(f"{SERVER} --model a/b --config /etc/x.yaml")
    assert [(finding.rule, finding.verdict) for finding in launch.findings] == [("command.config-file", Verdict.WARN)]


pieces = st.sampled_from(
    ["sglang serve", SERVER, "a/b", "--model-path", "--tp", "8", "$X", "${X:-1}", "X=1", "export", "$(", ")", "'", '"', "\\", "\n", "\\\n", " ",
     "`", "(", "&&", "|", "<", ">", "<<EOF", "#", "docker run", "-e", "bash -c", "--config", "x.yaml", "--", "-", "{", "}", "$", "é", "\x00", "A=(", "${A[@]}"]
)  # fmt: skip


@given(st.lists(pieces, max_size=20).map("".join), st.lists(pieces, max_size=20).map(" ".join))
def test_any_text_is_a_launch_or_refused_and_never_shows_a_secret(joined, spaced):
    for text in (joined, spaced, f"{SERVER} --api-key sk-verysecret12345678 {spaced}"):
        try:
            said = repr(read_command(text))
        except RecipeError as error:
            said = str(error)
        assert "verysecret" not in said


@pytest.mark.parametrize(
    ("before", "image"),
    [
        pytest.param("docker run --rm lmsysorg/sglang:v0.5.23", "lmsysorg/sglang:v0.5.23", id="run"),
        pytest.param("docker exec -it sglang-1", None, id="into-a-container"),
        pytest.param("docker container exec -e A=1 sglang-1", None, id="the-long-word"),
        pytest.param("docker compose exec -T engine", None, id="into-a-service"),
        pytest.param("docker compose run --rm engine", None, id="of-a-service"),
        pytest.param("podman create lmsysorg/sglang:v0.5.23", "lmsysorg/sglang:v0.5.23", id="create"),
    ],
)
def test_only_what_is_started_from_an_image_names_one(before, image):
    launch = read_command(f"{before} {SERVER} --model-path a/b --tp 8")
    assert (launch.image, launch.arguments.tp_size) == (image, 8)


@pytest.mark.parametrize(
    ("value", "model"),
    [
        pytest.param('${MODEL:-"a/b"}', "a/b", id="quoted"),
        pytest.param("${MODEL:-'a/b'}", "a/b", id="in-single-quotes"),
        pytest.param('"${MODEL:-"a/b"}"', "a/b", id="quotes-in-quotes"),
        pytest.param('"${MODEL:-a\'s/b}"', "a's/b", id="near-miss-a-letter-in-quotes"),
        pytest.param('x${MODEL:-"a b"}', "xa b", id="a-blank-in-quotes"),
        pytest.param("$'it\\'s/b'", "it's/b", id="an-escaped-quote"),
        pytest.param("$'a\\x2fb'", "a/b", id="an-escape"),
    ],
)
def test_quotes_are_the_shells_and_not_the_values(value, model):
    assert read_command(f"{SERVER} --model-path {value}").arguments.model_path == model


def test_a_variables_quoted_default_is_its_value():
    assert read_command(f'M=${{MODEL:-"a/b"}}\n{SERVER} --model-path $M').arguments.model_path == "a/b"
