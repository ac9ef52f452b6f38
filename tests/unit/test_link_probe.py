"""The interface over which workers exchange gradients, and the matmul peak. Real runs test the probe itself."""

import itertools
import math
import socket

import pytest
import torch

from lockstep.team import Team
from lockstep.watch.link_probe import _find_interface_of, _find_source_address, _resolve, find_interface
from lockstep.watch.peak import measure_matmul_peak


class TwoHostTeam(Team):
    """A team whose other workers are on another host."""

    def gather(self, value):  # type: ignore[no-untyped-def]
        return [value, ("far-away", "192.0.2.7")]


def test_workers_on_one_host_use_the_loopback_interface() -> None:
    assert find_interface(Team(0, 1, torch.device("cpu"))) == "lo"


def test_the_interface_named_in_the_environment_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "ib0,eth1")
    assert find_interface(TwoHostTeam(0, 2, torch.device("cpu"))) == "ib0"
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "=ens5")
    assert find_interface(TwoHostTeam(0, 2, torch.device("cuda", 0))) == "ens5"


def test_without_a_named_interface_the_route_to_another_host_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")  # this host: no route to another one
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "^docker")
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    address = _find_source_address("192.0.2.7")
    for device in (torch.device("cpu"), torch.device("cuda", 0)):
        assert find_interface(TwoHostTeam(0, 2, device)) == (None if address is None else _find_interface_of(address))


def test_an_address_belongs_to_an_interface() -> None:
    assert _find_source_address("127.0.0.1") == "127.0.0.1"
    assert _find_interface_of("127.0.0.1") == "lo"
    assert _find_interface_of("192.0.2.1") is None
    assert "lo" in [name for _, name in socket.if_nameindex()]


def test_a_name_that_cannot_be_resolved_has_no_address() -> None:
    assert _resolve("") == _resolve("no-such-host.invalid") == []
    assert _find_source_address("no-such-host.invalid") is None


def test_a_delayed_product_does_not_lower_the_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second product of each size takes a millisecond, the others ten times the time budget."""
    turns = itertools.count()
    monkeypatch.setattr("lockstep.watch.peak._time_product", lambda *_: 0.001 if next(turns) % 3 == 1 else 0.4)
    assert measure_matmul_peak(torch.device("cpu"), torch.float32, 0.04) >= 2 * 512**3 / 0.001


def test_the_peak_is_finite_for_every_time_budget() -> None:
    for seconds in (1e-6, 0.01):
        peak = measure_matmul_peak(torch.device("cpu"), torch.float32, seconds)
        assert 0 < peak < math.inf
