# ruff: noqa: S104 - wildcard addresses are what is tested
"""Where clients come in: told before others may, refused where nobody can listen."""

import socket

import pytest

from spec_toolkit.errors import FactsError, Verdict
from spec_toolkit.launch.door import Door
from spec_toolkit.launch.record import Front


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_this_machine_alone_is_nothing_to_warn_of(host: str) -> None:
    assert Door(host=host).findings() == ()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "models.example.org"])
def test_a_door_that_others_can_reach_is_warned_of(host: str) -> None:
    [finding] = Door(host=host).findings()
    assert (finding.rule, finding.verdict) == ("deploy.open-host", Verdict.WARN)
    assert "neither TLS nor accounts" in finding.sentence()


def test_a_free_port_is_found_and_a_chosen_one_kept() -> None:
    host, port = Door().take()
    assert host == "127.0.0.1"
    assert Door(port=port).take() == ("127.0.0.1", port)
    assert Door(host="0.0.0.0").take()[1] > 0


def test_a_port_that_somebody_listens_on_is_refused_before_anything_starts() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(FactsError, match=r"nobody can listen on 127\.0\.0\.1"):
            Door(port=taken.getsockname()[1]).take()


def test_a_host_that_is_not_of_this_machine_is_refused() -> None:
    with pytest.raises(FactsError, match=r"nobody can listen on 192\.0\.2\.1, port any"):
        Door(host="192.0.2.1").take()


@pytest.mark.parametrize("host", ["nonsense..host", f"{'a' * 64}.example", "\udcff"])
def test_what_cannot_be_a_host_name_is_refused_too(host: str) -> None:
    with pytest.raises(FactsError, match=r"port any: no host can be called that\. .*\[deploy\.port\]"):
        Door(host=host).take()


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "http://127.0.0.1:8"),
        ("0.0.0.0", "http://127.0.0.1:8"),
        ("::", "http://[::1]:8"),
        ("10.0.0.7", "http://10.0.0.7:8"),
    ],
)
def test_an_address_is_one_that_can_be_gone_to(host: str, address: str) -> None:
    front = Front(
        host=host,
        port=8,
        max_running_requests=1,
        max_waiting_requests=1,
        resume_deadline_seconds=1.0,
        context_tokens=4096,
    )
    assert front.address == address
