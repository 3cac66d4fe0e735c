import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_toolkit.facts import packages
from spec_toolkit.facts.packages import Installed, parse_requirement, required_by, torch_cuda


@pytest.mark.parametrize(
    ("text", "name", "spelled", "marker"),
    [
        pytest.param("torch==2.14.1", "torch", "==2.14.1", "", id="exact"),
        pytest.param("flashinfer_python[cu13]==0.7.2", "flashinfer-python", "==0.7.2", "", id="extras"),
        pytest.param("kernels<0.15,>=0.14.1", "kernels", "<0.15,>=0.14.1", "", id="a-range"),
        pytest.param("ninja", "ninja", "any version", "", id="any"),
        pytest.param("x (>=1.0)", "x", ">=1.0", "", id="in-brackets"),
        pytest.param(
            'nvidia-nccl-cu13==2.29.3; platform_system == "Linux"',
            "nvidia-nccl-cu13",
            "==2.29.3",
            'platform_system == "Linux"',
            id="a-marker",
        ),
    ],
)
def test_a_requirement_is_read(text: str, name: str, spelled: str, marker: str) -> None:
    requirement = parse_requirement(text)
    assert requirement is not None
    assert (requirement.name, requirement.spelled, requirement.marker) == (name, spelled, marker)
    assert requirement.readable


@pytest.mark.parametrize(
    ("text", "version", "fits"),
    [
        pytest.param("a==1.2.0", "1.2", True, id="a-release-without-its-zero"),
        pytest.param("a==1.2.0", "1.2.1", False, id="near-miss-a-patch"),
        pytest.param("a==2.14.1", "2.14.1+cu130", True, id="a-builds-own-part"),
        pytest.param("a==2.14.1+cu130", "2.14.1+cpu", False, id="near-miss-another-build"),
        pytest.param("a==0.2.3.post2", "0.2.3", False, id="near-miss-before-a-post-release"),
        pytest.param("a<0.15,>=0.14.1", "0.14.10", True, id="numbers-not-letters"),
        pytest.param("a<0.15,>=0.14.1", "0.15.0", False, id="near-miss-the-bound"),
        pytest.param("a!=1.0", "1.0", False, id="not-this-one"),
        pytest.param("a", "0.0.1", True, id="any"),
        pytest.param("a==1.0", None, False, id="not-installed"),
        pytest.param("a~=1.0", "1.4", None, id="a-form-that-is-not-read"),
        pytest.param("a==1.0", "unknown", None, id="a-version-that-is-none"),
    ],
)
def test_an_installed_version_is_compared(text: str, version: str | None, fits: bool | None) -> None:
    requirement = parse_requirement(text)
    assert requirement is not None
    assert Installed(requirement, version).fits is fits


@given(st.text(max_size=80))
def test_any_text_is_a_requirement_or_none(text: str) -> None:
    requirement = parse_requirement(text)
    if requirement is not None:
        assert Installed(requirement, "1.0").fits in {True, False, None}


def test_what_a_package_requires_on_one_platform_or_for_an_extra_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["msgspec", 'av==16.1.0; sys_platform == "win32"', 'ray; extra == "ray"', "no-such-package==1"]
    monkeypatch.setattr(packages.metadata, "requires", lambda _: texts)
    found = required_by("anything")
    assert found is not None
    assert [(each.requirement.name, each.version is None) for each in found] == [
        ("msgspec", False),
        ("no-such-package", True),
    ]


def test_a_package_that_is_not_installed_requires_nothing_known() -> None:
    assert required_by("no-such-package-anywhere") is None


@pytest.mark.parametrize(
    ("source", "cuda"),
    [
        pytest.param("cuda: Optional[str] = '13.0'\n", "13.0", id="annotated"),
        pytest.param('cuda = "12.8"\n', "12.8", id="plain"),
        pytest.param("cuda: Optional[str] = None\n", "", id="a-build-for-cpus"),
        pytest.param("hip = '6.4'\n", None, id="not-said"),
        pytest.param(None, None, id="no-file"),
    ],
)
def test_the_cuda_of_torch_is_read_without_importing_it(
    tmp_path, monkeypatch: pytest.MonkeyPatch, source: str | None, cuda: str | None
) -> None:
    class Torch:
        def locate_file(self, name: str):
            return tmp_path / name

    (tmp_path / "torch").mkdir()
    if source is not None:
        (tmp_path / "torch/version.py").write_text(source)
    monkeypatch.setattr(packages.metadata, "distribution", lambda _: Torch())
    assert torch_cuda() == cuda
