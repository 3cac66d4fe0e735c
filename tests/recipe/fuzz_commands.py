"""Feeds the readers of commands and manifests what no person wrote: `python tests/recipe/fuzz_commands.py 5000 [seed]`.

Half are command lines, half manifests. Each must end in launches or in a RecipeError with findings, soon; every rule is asked about what
comes of it, and it must become a recipe or a RecipeError; no message may hold what a terminal would obey, or the secret that every text carries. Some go
through the verbs too, which must end with 0, 1 or 2. Prints what happened; ends with 1 after anything else.
"""

# ruff: noqa: T201 - a command that prints what it found

import contextlib
import io
import json
import random
import re
import resource
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from spec_toolkit.cli.main import main
from spec_toolkit.engine.command_line.retired import RETIRED
from spec_toolkit.engine.command_line.table import flag_table
from spec_toolkit.errors import RecipeError
from spec_toolkit.facts.known import load_tables
from spec_toolkit.launch.asked import Given, check_commands, check_pods
from spec_toolkit.recipe.command import CommandLaunch, read_commands
from spec_toolkit.recipe.from_command import Defaults, Machines, to_recipe
from spec_toolkit.recipe.load import parse_recipe
from spec_toolkit.recipe.pods import read_manifest
from spec_toolkit.recipe.render import recipe_text

MOST_BYTES = 2**31  # of memory; a text that asks for more makes a MemoryError, not a slow machine
LONGEST_SECONDS = 2.0  # of processor time for one text; the usual is a thousandth of it
VERB_EACH = 3  # one text in so many goes through a verb as well
SECRET = "hf_averysecretvalueaverysecretvalue12"  # noqa: S105 - made up: nobody may repeat it
COMMANDS = [
    f"HF_TOKEN={SECRET} python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3-0324 --tp 8 --api-key {SECRET} --speculative-algorithm EAGLE \\\n  --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --cuda-graph-max-bs 64 --trust-remote-code",
    f"docker run --gpus all --shm-size 32g -e HF_TOKEN={SECRET} --ipc=host lmsysorg/sglang:v0.5.23 bash -c 'exec sglang serve zai-org/GLM-5.2-FP8 --tp 8 --nsa-prefill-backend fa3 --json-model-override-args \"{{\\\"a\\\": 1}}\"'",
    f'export HF_TOKEN={SECRET}\nMODEL=google/gemma-4-31B-it\nARGS=(--tp ${{TP:-2}} --mem-fraction-static 0.85)\n# start\nnohup sglang serve $MODEL "${{ARGS[@]}}" --speculative-draft-model-path $MODEL-assistant --config x.yaml > log 2>&1 &',
    f"cat > run.sh <<'EOF'\nexport HF_TOKEN={SECRET}\npython -m sglang.launch_server --model-path /models/V3 --disaggregation-mode prefill --cuda-graph-bs 1 2 4 $EXTRA\nEOF",
]  # fmt: skip
MANIFEST = f"""\
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {{name: v3, labels: &labels {{app: v3}}}}
spec:
  replicas: 1
  leaderWorkerTemplate:
    size: 2
    workerTemplate:
      metadata: {{labels: *labels}}
      spec:
        terminationGracePeriodSeconds: 60
        nodeSelector: {{nvidia.com/gpu.product: NVIDIA-H200}}
        containers:
        - name: engine
          image: lmsysorg/sglang:v0.5.23
          command: [bash, -c]
          args:
          - |
            exec python3 -m sglang.launch_server --model-path $MODEL --tp 16 --nnodes 2 --node-rank $LWS_WORKER_INDEX
          env:
          - {{name: MODEL, value: deepseek-ai/DeepSeek-V3}}
          - {{name: HF_TOKEN, value: {SECRET}}}
          - {{name: IP, valueFrom: {{fieldRef: {{fieldPath: status.podIP}}}}}}
          resources: {{limits: {{nvidia.com/gpu: "8", memory: 1Ti}}}}
          livenessProbe: {{httpGet: {{path: /health, port: 30000}}, initialDelaySeconds: 300}}
          lifecycle: {{preStop: {{exec: {{command: [sh, -c, sleep 15]}}}}}}
          volumeMounts: [{{name: shm, mountPath: /dev/shm}}]
        volumes: [{{name: shm, emptyDir: {{medium: Memory, sizeLimit: 32Gi}}}}]
---
kind: PodDisruptionBudget
metadata: {{name: b}}
spec: {{minAvailable: 1, selector: {{matchLabels: {{app: v3}}, matchExpressions: [{{key: app, operator: In, values: [v3]}}]}}}}
"""
NUMBERS = ["0", "-1", "1", "3", "7", "16", "1024", "9999999999", "0.0", "1.0", "-0.5", "100", "nan", "inf"]
NASTY = [
    "'", '"', "\\", "\\\n", "\\ \n", "\n", "`", "$(", "${", "$((", ")", "}", "$'\\x41'", "$X", "${X:-", "${X[@]}", "$@", "(", "A=(", "A=$A$A$A", "&&", "||", "|&", ";", "&", ">", "<", "<<EOF", "2>&1", "<model>", "#", "--", "-", "-x", "--=", "--tp=", "--tp", "--cuda-graph",
    "--config", "--config=", "--help", "=", "==", "é", "💥", "\x00", "\x1b[2J", "\u202e", "\ufeff", "\x85", "\r", "\t", "9" * 5000, "1e999", "-1", "nan", "0x10", "1_000", "16k", "1.5Ki", "{}", "[" * 3000, '{"a":' * 500, "../../../etc/passwd", "/dev/zero", "a" * 3000,
    "{{ .Values.x }}", "*a", "&a x", "<<: *labels", "!!python/object:os.system", "yes", "null", "~", "1:30", "2024-01-01", "- ", "? ", ": ", "|-\n  a", "---", "...", "containers:", "mainContainer:", "spec:", "roles:", "- name: engine", "items:", "$(MODEL)", "$$(MODEL)", "$(IP)",
    "docker run", "-e", "bash -c", "eval", "export", "sglang serve", "python3 -m sglang.launch_server", "env", "--env", "--shm-size", "99999999999999999999g", "--gpus", "0",
]  # fmt: skip
BOMBS = [
    "A=xxxxxxxxxxxxxxxx\n" + "A=$A$A$A$A\n" * 200 + "sglang serve $A", "A=(x x x x)\n" + 'A=("${A[@]}" "${A[@]}")\n' * 40 + 'sglang serve "${A[@]}"', "sglang serve " + "$(" * 30_000, "sglang serve " + "${" * 30_000,
    "sglang serve " + "--tp 8 " * 9_000, "sglang serve " + "--x " * 15_000, "sglang serve " + "x " * 30_000, "sglang serve " + "--tp=" + "[" * 60_000, "sglang serve --extra-metric-labels " + "[" * 60_000, "bash -c 'bash -c \"bash -c sglang\"' " * 2_000, "x\n--a\n" * 10_000,
    "sglang serve a/b\n" * 3_500, "sglang serve a/b " + "$X " * 15_000, "export A=1\n" * 5_000 + "sglang serve a/b", "'" * 60_001, '"' * 60_001, "\\" * 60_001, "\\ \n" * 20_000, "(" * 60_000, "A=(" * 20_000, "<" * 60_000, "<a>" * 20_000, "#" * 60_000, "`" * 60_001, "\n" * 60_000, "=" * 60_000,
]  # fmt: skip
YAML_BOMBS = [
    "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(f"{chr(c + 1)}: &{chr(c + 1)} [{','.join([f'*{chr(c)}'] * 9)}]\n" for c in range(97, 112)), "[" * 60_000, "{" * 60_000, "{a: " * 15_000, "- " * 30_000, "a: " * 20_000, "? [" * 20_000, "&a " * 20_000, "a: &a [*a]\n",
    "".join(" " * n + "a:\n" for n in range(900)), "---\n" * 100_000, "- 1\n" * 120_000, "containers:\n" + "- {command: [sglang, serve, a/b]}\n" * 12_000, "kind: List\nitems:\n" + "- {spec: {containers: [{command: [sglang, serve, a/b]}]}}\n" * 8_000, "spec: {containers: [{command: [sglang, serve, a/b], env: [" + "{name: A, value: $(A)$(A)}," * 12_000 + "]}]}",
    "spec: {containers: [{command: [sglang, serve, a/b], volumeMounts: [" + "{name: a, mountPath: /b}," * 15_000 + "]}]}", "a: '" + "x\n" * 200_000 + "'", "a: |\n" + " x\n" * 150_000, "#" * 500_000, "x" * 600_000, "\xff\xfe" + "a\0" * 1000, "".join(f"k{n}: v\n" for n in range(60_000)),
]  # fmt: skip


def spoiled(text: str, dice: random.Random, words: list[str]) -> str:
    """One to eight places changed: a word put in, a piece cut out, doubled or moved, a character replaced."""
    for _ in range(dice.randint(1, 8)):
        place = dice.randrange(len(text) + 1)
        end = min(len(text), place + dice.randint(1, 40))
        match dice.randrange(6):
            case 0 | 1:
                text = f"{text[:place]} {dice.choice(words)} {text[place:]}"
            case 2:
                text = text[:place] + dice.choice(words) + text[place:]
            case 3:
                text = text[:place] + text[end:]
            case 4:
                text = text[:place] + text[place:end] * dice.randint(2, 4) + text[end:]
            case _:
                text = text[:place] + chr(dice.choice([*range(1, 127), 0xE9, 0x2028, 0xFFFD])) + text[place + 1 :]
    return text


def revalued(text: str, dice: random.Random, words: list[str]) -> str:
    """One to four values replaced, mostly in quotes, which keeps a manifest YAML more often than not."""
    for _ in range(dice.randint(1, 4)):
        match = dice.choice(list(re.finditer(r"(?<=: )[\w./$()-]+", text)))
        word = dice.choice(words)
        text = text[: match.start()] + (json.dumps(word) if dice.random() < 0.8 else word) + text[match.end() :]
    return text


def texts(count: int, seed: int) -> Iterator[tuple[str, str]]:
    """Pairs of what it is and the text."""
    dice = random.Random(seed)  # noqa: S311 - it makes texts, not secrets
    words = [
        *NASTY,
        *flag_table().by_name,
        *RETIRED,
        *(word for row in flag_table().by_name.values() for word in row.choices),
    ]
    bombs = [("command", text) for text in BOMBS] + [("manifest", text) for text in YAML_BOMBS]
    yield from bombs[:count]
    for number in range(count - len(bombs)):
        if number % 2:
            yield "manifest", dice.choice([spoiled, revalued])(MANIFEST, dice, words)
        else:
            yield "command", spoiled(dice.choice(COMMANDS), dice, words)


TABLES = load_tables()


def config(_name: str) -> bytes:
    return f"tp-size: 8\napi-key: {SECRET}\n".encode()


def read(kind: str, text: str) -> tuple[str, str]:
    """What came of it, and everything that was said or kept."""
    try:
        if kind == "command":
            launches, pods = list(read_commands(text, open_file=config)), ()
            kept = repr(launches)
        else:
            pods = read_manifest(text.encode("utf-8", "surrogatepass"), "fuzz.yaml")
            launches, kept = [pod.launch for pod in pods], repr(pods)
    except RecipeError as error:
        return f"{kind} refused", str(error)
    given = Given(gpu="h200", count=8)
    found = check_commands(launches[:3], given, TABLES) if kind == "command" else check_pods(pods[:3], given, TABLES)
    said = "\n".join(finding.sentence() for each in found for finding in each.findings)
    drawn = [draw(launch) for launch in launches[:3]]
    return f"{kind} read", said + "\n".join(drawn) + ("\n" + SECRET if SECRET in kept else "")


def draw(launch: CommandLaunch) -> str:
    """The recipe that a launch stands for, as text that is read again, or why there is none."""
    defaults = Defaults(sglang="0.5.23", max_running_requests=48, context_tokens=4096, steps_topk_width=(3, 1, 4))
    try:
        recipe = to_recipe(launch, Machines(gpu="h200", count=8), defaults).recipe
        text = recipe_text(recipe)
        assert parse_recipe(text.encode(), Path("recipe.yaml")).recipe == recipe
    except RecipeError as error:
        return str(error)
    return text


def through_a_verb(kind: str, text: str, dice: random.Random) -> tuple[str, str]:
    """What a verb made of it, given as an argument or by standard input, as a shell or another program would."""
    word, stdin = ("-", text) if kind == "manifest" or dice.random() < 0.3 else (text, "")
    verb, gpu = (
        dice.choice(["check", "check", "init"]),
        dice.choice(["h200", "h200", "", "\udcff", "nothing", "\x1b[2J"]),
    )
    arguments = [verb, f"--{kind}", word, "--gpu", gpu, *dice.choice([[], ["--count", "8"], ["--nodes", "2"]])]
    said = io.StringIO()
    kept = sys.argv, sys.stdin
    sys.argv, sys.stdin = ["spec-toolkit", *arguments], io.TextIOWrapper(io.BytesIO(stdin.encode("utf-8", "replace")))
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            main()
    except SystemExit as ended:
        assert ended.code in {0, 1, 2}, (arguments[0], ended.code, said.getvalue()[-500:])  # noqa: PT017 - it always ends so
    finally:
        sys.argv, sys.stdin = kept
    return f"{kind} through {verb}", said.getvalue()


def run(count: int, seed: int) -> int:
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    outcomes: Counter[str] = Counter()
    slowest = (0.0, "none", "")
    dice = random.Random(seed)  # noqa: S311 - it makes texts, not secrets
    for number, (kind, text) in enumerate(texts(count, seed)):
        began = time.process_time()
        try:
            outcome, said = read(kind, text)
            if number % VERB_EACH == 0:
                outcome, more = through_a_verb(kind, text, dice)
                said += "\n" + more
        except BaseException:  # noqa: BLE001 - whatever it is, it is what we look for
            outcome, said = "TRACEBACK", "-"
            print(f"{kind}: {text[:600]!r}\n{traceback.format_exc()}", file=sys.stderr)
        seconds = time.process_time() - began
        slowest = max(slowest, (seconds, kind, text[:40]))
        if seconds > LONGEST_SECONDS:
            outcome = "TOO SLOW"
            print(f"{seconds:.1f} s, {kind}: {text[:200]!r}", file=sys.stderr)
        elif "refused" in outcome and not said:
            outcome = "REFUSED WITHOUT A WORD"
        elif SECRET in said:
            outcome = "A SECRET WAS KEPT"
            print(f"{kind}: {text!r}\n{said}", file=sys.stderr)
        elif any(not character.isprintable() and character != "\n" for character in said):
            outcome = "UNPRINTABLE MESSAGE"
            print(f"{kind}: {text!r}\n{said!r}", file=sys.stderr)
        outcomes[outcome] += 1
    print(
        f"{count:,} texts, seed {seed}: "
        + ", ".join(f"{number:,} {outcome}" for outcome, number in outcomes.most_common())
    )
    print(
        f"tracebacks {outcomes['TRACEBACK']}; slowest {slowest[0] * 1000:.0f} ms of processor time ({slowest[1]}, {slowest[2]!r})"
    )
    return int(any(outcome.isupper() for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(run(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
