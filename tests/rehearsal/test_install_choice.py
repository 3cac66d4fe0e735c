import importlib.util
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).resolve().parents[2] / "spec_toolkit" / "rehearsal" / "install" / "choice.py"
spec = importlib.util.spec_from_file_location("install_choice", FILE)
choice = sys.modules["install_choice"] = importlib.util.module_from_spec(spec)  # dataclasses look their module up
spec.loader.exec_module(choice)

TORCH = "2.13.0"
INDEX = "http://index.test/whl/cpu"
WHEEL = "torch-2.13.0%2Bcpu-cp311-cp311-manylinux_2_28_x86_64.whl"
GOOD_MACHINE = {"system": "Linux", "machine": "x86_64", "libc": "glibc 2.36", "python": (3, 11), "free_gb": 60.0}


def report(version: str, *requires: str) -> dict:
    """What `pip install --report` writes, as far as it is read."""
    url = f"file:///disk/torch-{version}-cp311-cp311-linux_x86_64.whl"
    return {
        "install": [{"download_info": {"url": url}, "metadata": {"version": version, "requires_dist": [*requires]}}]
    }


def listing(*files: str) -> str:
    return "".join(f'<a href="/whl/cpu/{file}#sha256=00">{file}</a><br>\n' for file in files)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        pytest.param({"system": "Darwin"}, "install.machine", id="not-linux"),
        pytest.param({"machine": "aarch64"}, "install.machine", id="not-x86"),
        pytest.param({"libc": "glibc 2.33"}, "install.glibc", id="old-glibc"),
        pytest.param({"libc": "glibc 2.9"}, "install.glibc", id="numbers-not-strings"),
        pytest.param({"libc": None}, "install.glibc", id="another-c-library"),
        pytest.param({"python": (3, 10)}, "install.python", id="old-python"),
        pytest.param({"free_gb": 2.4}, "install.disk", id="full-disk"),
    ],
)
def test_a_machine_that_cannot_is_told_why(change, rule):
    (complaint,) = choice.machine_complaints(**GOOD_MACHINE | change)
    assert complaint.endswith(f"[{rule}]")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({}, id="debian-12"),
        pytest.param({"libc": "glibc 2.34"}, id="near-miss-the-oldest-glibc"),
        pytest.param({"libc": "glibc 3.0"}, id="near-miss-a-newer-major"),
        pytest.param({"python": (3, 14)}, id="near-miss-a-newer-python"),
        pytest.param({"free_gb": 2.5}, id="near-miss-just-enough-disk"),
    ],
)
def test_a_machine_that_can_is_not_bothered(change):
    assert not list(choice.machine_complaints(**GOOD_MACHINE | change))


def test_all_complaints_are_made_at_once():
    complaints = list(choice.machine_complaints(**GOOD_MACHINE | {"libc": None, "python": (3, 9), "free_gb": 0.1}))
    assert len(complaints) == 3


@pytest.mark.parametrize(
    ("version", "requires", "cpu"),
    [
        pytest.param("2.13.0+cpu", ["sympy"], True, id="labelled"),
        pytest.param("2.13.0+cpu.cxx11.abi", ["sympy"], True, id="labelled-with-its-abi"),
        pytest.param("2.13.0", ["sympy", "jinja2"], True, id="no-label-no-gpu-library"),
        pytest.param("2.13.0", ['nvidia-x; extra == "gpu"'], True, id="near-miss-only-an-extra"),
        pytest.param("2.13.0", ["cudatoolkitless", "tritonclient"], True, id="near-miss-a-longer-name"),
        pytest.param("2.13.0+cu130", ["sympy"], False, id="cuda-label-without-requirements"),
        pytest.param("2.13.0+rocm7.1", ["sympy"], False, id="rocm-label"),
        pytest.param("2.13.0+cpux", ["sympy"], False, id="near-miss-another-label"),
        pytest.param("2.13.0", ['nvidia-cudnn-cu13==9.1; platform_system == "Linux"'], False, id="nvidia"),
        pytest.param("2.13.0", ["cuda-toolkit[cublas]==13.0"], False, id="cuda-toolkit"),
        pytest.param("2.13.0", ["triton==3.6.0"], False, id="triton"),
    ],
)
def test_a_cpu_build_is_told_from_a_gpu_build_before_it_is_fetched(version, requires, cpu):
    source = choice.judge_wheel(report(version, *requires), TORCH)
    assert source.usable is cpu
    assert choice.is_cpu_build(version, requires) is cpu


@pytest.mark.parametrize("empty", [None, {"install": []}])
def test_a_pip_that_finds_nothing_offers_no_wheel(empty):
    assert not choice.judge_wheel(empty, TORCH).usable


@pytest.mark.parametrize(
    ("link", "file"),
    [
        pytest.param(f"/whl/cpu/{WHEEL}#sha256=0a", f"http://index.test/whl/cpu/{WHEEL}#sha256=0a", id="of-the-host"),
        pytest.param(WHEEL, f"{INDEX}/torch/{WHEEL}", id="beside-the-page"),
        pytest.param(f"../../f/{WHEEL}", f"http://index.test/whl/f/{WHEEL}", id="relative"),
        pytest.param(f"https://files.test/{WHEEL}", f"https://files.test/{WHEEL}", id="on-another-host"),
        pytest.param(WHEEL.replace("%2B", "+"), f"{INDEX}/torch/{WHEEL.replace('%2B', '+')}", id="plain-plus"),
        pytest.param(WHEEL.replace("%2B", "%2b"), f"{INDEX}/torch/{WHEEL.replace('%2B', '%2b')}", id="small-letters"),
    ],
)
def test_an_index_with_the_right_wheel_is_used(link, file):
    page = listing("torch-2.12.0%2Bcpu-cp311-cp311-linux_x86_64.whl") + f'<a data-x="1" href="{link}">torch</a>'
    source = choice.judge_index(INDEX + "/", page, TORCH, (3, 11))
    assert source.usable
    assert source.arguments == ("--no-deps", f"torch @ {file}")


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(OSError("timed out"), id="no-answer"),
        pytest.param("", id="empty"),
        pytest.param(listing("torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl"), id="no-label"),
        pytest.param(listing("torch-2.13.0%2Bcu130-cp311-cp311-manylinux_2_28_x86_64.whl"), id="a-cuda-index"),
        pytest.param(listing("torch-2.13.0%2Bcpu-cp312-cp312-manylinux_2_28_x86_64.whl"), id="another-python"),
        pytest.param(listing("torch-2.13.0%2Bcpu-cp311-cp311-manylinux_2_28_aarch64.whl"), id="another-machine"),
        pytest.param(listing("torch-2.13.01%2Bcpu-cp311-cp311-linux_x86_64.whl"), id="another-version"),
        pytest.param(listing("nottorch-2.13.0%2Bcpu-cp311-cp311-linux_x86_64.whl"), id="another-name"),
        pytest.param("<p>torch-2.13.0%2Bcpu-cp311-cp311-linux_x86_64.whl</p>", id="no-link"),
        pytest.param(listing("torch-2x13.0%2Bcpu-cp311-cp311-linux_x86_64.whl"), id="a-dot-is-a-dot"),
        pytest.param(
            listing("torch-2.13.0%2Bcpu-cp311-cp311-win_amd64.whl", "torch-2.12.0-cp311-cp311-linux_x86_64.whl"),
            id="two-halves-of-a-match",
        ),
    ],
)
def test_an_index_without_it_is_passed_over(page):
    assert not choice.judge_index(INDEX, page, TORCH, (3, 11)).usable


def test_the_registry_is_asked_for_the_build_with_its_libraries():
    source = choice.judge_registry(Path("cpu.lock"), TORCH, 80.0)
    assert "--no-deps" not in source.arguments
    assert source.arguments[-1] == "torch==2.13.0,!=2.13.0+cpu"


def test_three_gigabytes_are_not_begun_on_a_full_disk():
    assert not choice.judge_registry(Path("cpu.lock"), TORCH, 9.9).usable


def test_the_first_usable_source_is_taken_and_no_later_one_is_looked_at():
    looked, said = [], []

    def probe(name, usable):
        def look():
            looked.append(name)
            return choice.Source(name, usable=usable, says="seen")

        return look

    probes = {"wheel": probe("wheel", False), "index": probe("index", True), "registry": probe("registry", True)}
    assert choice.choose(probes, "", said.append).name == "index"
    assert looked == ["wheel", "index"]
    assert said == ["torch from the wheel: seen; not used", "torch from the index: seen"]
    assert choice.choose(probes, "registry", said.append).name == "registry"
    assert looked == ["wheel", "index", "registry"]
    with pytest.raises(choice.Refused, match="no place"):
        choice.choose(probes, "wheel", said.append)
    with pytest.raises(choice.Refused, match="TORCH_SOURCE: is 'weel'"):
        choice.choose(probes, "weel", said.append)


def test_only_the_difference_to_the_lock_is_missing():
    lock = choice.read_lock("# why\n\ntorch==2.13.0\nJinja2==3.1.6\nruamel.yaml==0.18.1\nmypy-extensions==1.2.0\n")
    present = {"torch": "2.13.0+cpu", "jinja2": "3.1.6", "ruamel_yaml": "0.18.10"}
    assert choice.missing(lock, present) == ["ruamel_yaml==0.18.1", "mypy_extensions==1.2.0"]


def test_megabytes_are_read_from_what_pip_and_uv_print():
    pip = "Collecting a\n  Downloading a-1-py3-none-any.whl (1.5 MB)\n  Downloading b.whl.metadata (500 kB)\n"
    uv = "Downloading sglang (37.0MiB)\n Downloaded sglang\n"
    assert choice.downloaded_mb(pip) == pytest.approx(2.0)
    assert choice.downloaded_mb(uv) == pytest.approx(38.8, abs=0.01)
    assert choice.downloaded_mb("Using cached a-1-py3-none-any.whl (1.5 MB)\nProcessing /disk/b.whl\n") == 0
