from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_toolkit.errors import RecipeError, Verdict
from spec_toolkit.recipe.pods import read_manifest

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: v3, namespace: serving}
spec:
  replicas: 2
  strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 25%, maxSurge: 1}}
  template:
    metadata: {labels: {app: v3}}
    spec:
      terminationGracePeriodSeconds: 60
      nodeSelector: {nvidia.com/gpu.product: NVIDIA-H200}
      containers:
      - name: exporter
        image: exporter:1
        command: [exporter]
      - name: engine
        image: lmsysorg/sglang:v0.5.23-cu130
        command: [python3, -m, sglang.launch_server]
        args:
        - --model-path=$(MODEL)
        - --tp
        - "8"
        env:
        - {name: MODEL, value: deepseek-ai/DeepSeek-V3}
        - {name: HF_TOKEN, value: hf_aaaaaaaaaaaa}
        - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
        resources:
          limits: {nvidia.com/gpu: "8", memory: 1Ti}
          requests: {memory: 512Gi}
        startupProbe: {httpGet: {path: /health, port: 30000}, periodSeconds: 10, failureThreshold: 120}
        livenessProbe: {exec: {command: [curl, localhost]}, timeoutSeconds: 5}
        lifecycle: {preStop: {exec: {command: [sh, -c, sleep 15]}}}
        volumeMounts:
        - {name: shm, mountPath: /dev/shm/}
        - {name: gone, mountPath: /x}
      volumes:
      - name: shm
        emptyDir: {medium: Memory, sizeLimit: 32Gi}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: v3, namespace: serving}
spec: {minAvailable: 2, selector: {matchLabels: {app: v3}}}
---
kind: PodDisruptionBudget
metadata: {name: other}
spec: {maxUnavailable: 1, selector: {matchExpressions: [{key: app, operator: NotIn, values: [v3]}]}}
"""


def only(text: str):
    (pod,) = read_manifest(text.encode(), "x.yaml")
    return pod


def wrapped(kind: str, spec: str) -> str:
    return f"kind: {kind}\nmetadata: {{name: n}}\nspec:\n{spec}"


def test_what_surrounds_a_launch_is_read_with_its_lines():
    pod = only(DEPLOYMENT)
    assert (pod.object_kind, pod.object_name, pod.container, pod.template) == ("Deployment", "v3", "engine", "spec.template")  # fmt: skip
    assert (pod.launch.arguments.model_path, pod.launch.arguments.tp_size) == ("deepseek-ai/DeepSeek-V3", 8)
    assert (pod.image, pod.launch.sglang) == ("lmsysorg/sglang:v0.5.23-cu130", "0.5.23")
    assert (pod.replicas, pod.group_size, pod.grace_seconds, pod.gpus) == (2, 1, 60, 8)
    assert pod.memory_limit_bytes == 2**40
    assert pod.environment == {"MODEL": "deepseek-ai/DeepSeek-V3", "HF_TOKEN": "***"}
    assert pod.node_labels == {"nvidia.com/gpu.product": "NVIDIA-H200"}
    assert pod.at("--tp") == "x.yaml:21"
    assert pod.at("env.MODEL") == "x.yaml:24"
    assert pod.at("replicas") == "x.yaml:5"
    assert pod.at("nothing of the kind") == pod.where == "x.yaml:16"


def test_probes_have_kubernetes_own_defaults():
    pod = only(DEPLOYMENT)
    assert (pod.startup.path, pod.startup.port, pod.startup.tolerance_seconds) == ("/health", "30000", 1200)
    assert (pod.liveness.kind, pod.liveness.period_seconds, pod.liveness.failure_threshold) == ("exec", 10, 3)
    assert (pod.liveness.timeout_seconds, pod.liveness.stall_seconds) == (5, 30)
    assert pod.readiness is None


def test_mounts_are_matched_to_volumes():
    shm, gone = only(DEPLOYMENT).mounts
    assert (shm.kind, shm.medium, shm.size_limit_bytes) == ("emptyDir", "Memory", 32 * 2**30)
    assert only(DEPLOYMENT).shared_memory == shm
    assert gone.kind == "missing"


def test_ending_and_rollout():
    pod = only(DEPLOYMENT)
    assert (pod.pre_stop.kind, pod.pre_stop.seconds) == ("exec", 15)
    assert (pod.rollout.kind, pod.rollout.max_unavailable) == ("RollingUpdate", "25%")


def test_a_budget_belongs_to_the_pods_it_selects():
    (budget,) = only(DEPLOYMENT).budgets
    assert (budget.name, budget.min_available) == ("v3", 2)


@pytest.mark.parametrize(
    ("before", "after", "count"),
    [
        pytest.param("{app: v3}}}\n---\nkind", "{app: v4}}}\n---\nkind", 0, id="other-labels"),
        pytest.param("name: v3, namespace: serving}\nspec: {min", "name: v3, namespace: other}\nspec: {min", 0, id="other-namespace"),
        pytest.param("selector: {matchLabels: {app: v3}}", "selector: {}", 1, id="everything"),
        pytest.param(", selector: {matchLabels: {app: v3}}", "", 0, id="no-selector"),
        pytest.param("operator: NotIn", "operator: In", 2, id="by-expression"),
    ],
)  # fmt: skip
def test_selectors(before, after, count):
    assert before in DEPLOYMENT
    assert len(only(DEPLOYMENT.replace(before, after)).budgets) == count


SCRIPT = """\
command: ["/bin/bash", "-c"]
args:
- |
  set -ex
  export SGLANG_X=1
  exec python3 -m sglang.launch_server --model-path $MODEL \\
    --tp $TP --host $POD_IP
env: [{name: MODEL, value: a/b}]
"""


def indented(text: str, by: int) -> str:
    return "".join(" " * by + line for line in text.splitlines(keepends=True))


def container(by: int, words: str = SCRIPT) -> str:
    return indented("containers:\n- name: engine\n" + indented(words, 2), by)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(wrapped("Pod", container(2)), (1, 1, None, "spec"), id="pod"),
        pytest.param(wrapped("Job", "  template:\n    spec:\n" + container(6)), (1, 1, None, "spec.template"), id="job"),
        pytest.param(
            wrapped("LeaderWorkerSet", "  replicas: 3\n  leaderWorkerTemplate:\n    size: 2\n    workerTemplate:\n      spec:\n" + container(8)),
            (3, 2, "worker", "spec.leaderWorkerTemplate.workerTemplate"),
            id="workers",
        ),
        pytest.param(
            wrapped("RoleBasedGroup", "  roles:\n  - name: prefill\n    replicas: 4\n    template:\n      spec:\n" + container(8)),
            (4, 1, "prefill", "spec.roles[0].template"),
            id="role",
        ),
        pytest.param(
            wrapped("SomebodysOwn", "  deep:\n    down:\n      replicas: 5\n      podTemplate:\n        spec:\n" + container(10)),
            (5, 1, None, "spec.deep.down.podTemplate"),
            id="custom-resource",
        ),
        pytest.param("kind: List\nitems:\n- " + indented(wrapped("Pod", container(2)), 2).lstrip(), (1, 1, None, "spec"), id="list"),
        pytest.param(
            wrapped("Graph", "  services:\n    Decode:\n      replicas: 2\n      extraPodSpec:\n        mainContainer:\n" + indented(SCRIPT, 10)),
            (2, 1, None, "spec.services.Decode.extraPodSpec"),
            id="main-container",
        ),
    ],
)  # fmt: skip
def test_a_template_is_found_wherever_it_stands(text, expected):
    pod = only(text)
    assert (pod.replicas, pod.group_size, pod.role, pod.template) == expected
    assert pod.launch.arguments.model_path == "a/b"
    assert pod.launch.environment == {"MODEL": "a/b", "SGLANG_X": "1"}
    assert [(finding.rule, finding.where) for finding in pod.launch.findings] == [("command.variable", "--tp-size")]


def test_coordinated_roles_know_their_skew_and_a_spread_over_zones_is_none():
    roles = "".join(f"  - name: {name}\n    template:\n      spec:\n" + container(8) for name in ("prefill", "decode"))
    spread = "        topologySpreadConstraints: [{maxSkew: 1}]\n"
    text = wrapped("RoleBasedGroup", "  roles:\n" + roles + spread)
    assert [pod.rollout for pod in read_manifest(text.encode())] == [None, None]
    policy = "---\nkind: CoordinatedPolicy\nspec: {policies: [{strategy: {rollingUpdate: {maxSkew: 10%}}}]}\n"
    assert [pod.rollout.max_skew for pod in read_manifest((text + policy).encode())] == ["10%", "10%"]


def test_a_shell_variable_without_a_shell_is_refused():
    words = "command: [python3, -m, sglang.launch_server, --model-path, $MODEL, --tp, '8']\nenv: [{name: MODEL, value: a/b}]\n"
    (finding,) = only(wrapped("Pod", container(2, words))).launch.findings
    assert (finding.rule, finding.verdict) == ("manifest.no-shell", Verdict.REFUSE)
    assert "$(MODEL)" in finding.remedy
    assert not only(wrapped("Pod", container(2, words.replace("$MODEL", "$(MODEL)")))).launch.findings


@pytest.mark.parametrize(
    ("before", "refused"),
    [
        pytest.param("bash, -c", False, id="first"),
        pytest.param("tini, -g, --, /bin/bash, -c", False, id="behind-an-init"),
        pytest.param("numactl, -N, '0', -m, '0', bash, -lc", False, id="behind-a-pinning"),
        pytest.param("/opt/sglang/tini, --, sh, -c", False, id="near-miss-a-path-of-the-engines"),
        pytest.param("tini, -g, --", True, id="near-miss-no-shell"),
    ],
)
def test_a_shell_is_seen_wherever_it_stands_before_the_launch(before, refused):
    words = f"command: [{before}]\nargs: ['python3 -m sglang.launch_server --model-path $MODEL --tp 8']\nenv: [{{name: MODEL, value: a/b}}]\n"
    found = [finding.rule for finding in only(wrapped("Pod", container(2, words))).launch.findings]
    assert ("manifest.no-shell" in found) is refused


def test_a_shells_name_behind_the_launch_is_no_shell():
    words = "command: [python3, -m, sglang.launch_server, --model-path, $M, --served-model-name, bash]\n"
    found = [finding.rule for finding in only(wrapped("Pod", container(2, words))).launch.findings]
    assert "manifest.no-shell" in found


def test_no_secret_is_kept():
    words = "command: [python3, -m, sglang.launch_server, --model-path, a/b, --api-key, $(KEY)]\nenv: [{name: KEY, value: sk-aaaaaaaaaaaaaaa}]\n"
    assert "aaaaaa" not in repr(only(wrapped("Pod", container(2, words))))
    assert "aaaaaa" not in repr(only(DEPLOYMENT))


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        pytest.param("", "manifest.no-launch", id="empty"),
        pytest.param("kind: Service\n", "manifest.no-launch", id="no-pod"),
        pytest.param(wrapped("Pod", container(2, "command: [vllm, serve]\n")), "manifest.no-launch", id="another-server"),
        pytest.param("spec: {{ .Values.x }\n", "manifest.syntax", id="template"),
        pytest.param("a: &a [*a]\n", "manifest.form", id="refers-to-itself"),
        pytest.param("a: *b\n", "manifest.form", id="refers-to-nothing"),
        pytest.param("a: &a [1,1,1,1,1,1,1,1]\n" + "".join(f"{chr(c)}: &{chr(c)} [{','.join([f'*{chr(c - 1)}'] * 8)}]\n" for c in range(98, 115)), "manifest.form", id="bomb"),
        pytest.param("- " * 100 + "x", "manifest.form", id="deep"),
        pytest.param("x" * (256 * 1024 + 1), "manifest.size", id="large"),
        pytest.param("\x00", "recipe.encoding", id="no-text"),
    ],
)  # fmt: skip
def test_what_is_no_manifest_is_refused(text, rule):
    with pytest.raises(RecipeError) as caught:
        read_manifest(text.encode(), "x.yaml")
    assert [finding.rule for finding in caught.value.findings] == [rule]


def test_merges_and_anchors_are_followed():
    text = "x: &c {name: engine, command: [sglang, serve, a/b]}\nspec: {containers: [{<<: *c, name: other}]}\n"
    assert only(text).container == "other"


@given(st.text(st.sampled_from("containers:[]{}&*a-,sglang serve command\n\t '\"|>$()!<x0"), max_size=200))
def test_any_text_is_a_manifest_or_refused(text):
    with suppress(RecipeError):
        read_manifest(text.encode())
