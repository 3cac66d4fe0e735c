"""Ports of this machine: an engine's come in a family, and all of it must be free."""

import socket
from pathlib import Path

import pytest

from spec_toolkit.engine.ports import ports_taken
from spec_toolkit.errors import FactsError
from spec_toolkit.launch import ports


def test_free_ports_differ_and_are_free() -> None:
    found = ports.free_ports(8)
    assert len(set(found)) == 8
    for port in found:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))


def test_an_engines_ports_are_all_free_and_none_is_one_the_system_hands_out() -> None:
    first_ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for _ in range(50):
        family = ports_taken(ports.free_engine_port())
        assert max(family) < first_ephemeral or first_ephemeral <= 16_024  # no room below it
        for port in family:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))


def test_a_port_is_passed_over_when_one_that_the_engine_counts_off_from_it_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    good = ports.free_engine_port()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        bad = taken.getsockname()[1] - 234  # its port_base, the one that was lost to a neighbour's connection
        chosen = iter([bad, good])
        monkeypatch.setattr(ports.random, "randint", lambda *_: next(chosen))
        assert ports.free_engine_port() == good


def test_nothing_free_is_said() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ports, "_all_free", lambda _: False)
        with pytest.raises(FactsError, match=r"200 engine ports were tried .* \[deploy\.ports\]"):
            ports.free_engine_port()
