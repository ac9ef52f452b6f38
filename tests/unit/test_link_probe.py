"""Which interface the workers' traffic leaves by. The probe itself is tried by real runs."""

import itertools
import math
import socket

import pytest
import torch

from lockstep.team import Team
from lockstep.watch.link_probe import _addresses, _holder, _own_address, interface
from lockstep.watch.peak import product_peak


class Hosts(Team):
    """A team whose other workers are on another host."""

    def gather(self, value):  # type: ignore[no-untyped-def]
        return [value, ("far-away", "192.0.2.7")]


def test_workers_on_one_host_talk_over_the_loopback() -> None:
    assert interface(Team(0, 1, torch.device("cpu"))) == "lo"


def test_the_interface_that_torch_was_told_to_use_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "ib0,eth1")
    assert interface(Hosts(0, 2, torch.device("cpu"))) == "ib0"
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "=ens5")
    assert interface(Hosts(0, 2, torch.device("cuda", 0))) == "ens5"


def test_the_way_to_another_host_decides_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")  # this host: says nothing of the way to others
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "^docker")
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    own = _own_address("192.0.2.7")
    for device in (torch.device("cpu"), torch.device("cuda", 0)):
        assert interface(Hosts(0, 2, device)) == (None if own is None else _holder(own))


def test_an_address_belongs_to_an_interface() -> None:
    assert _own_address("127.0.0.1") == "127.0.0.1"
    assert _holder("127.0.0.1") == "lo"
    assert _holder("192.0.2.1") is None
    assert "lo" in [name for _, name in socket.if_nameindex()]


def test_a_name_that_cannot_be_resolved_has_no_address() -> None:
    assert _addresses("") == _addresses("no-such-host.invalid") == []
    assert _own_address("no-such-host.invalid") is None


def test_one_product_that_was_held_up_does_not_make_the_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each size the second takes a millisecond and the others ten times the time that all may take."""
    turns = itertools.count()
    monkeypatch.setattr("lockstep.watch.peak._timed", lambda a, b: 0.001 if next(turns) % 3 == 1 else 0.4)
    assert product_peak(torch.device("cpu"), torch.float32, 0.04) >= 2 * 512**3 / 0.001


def test_the_peak_is_a_rate_whatever_time_is_given() -> None:
    for seconds in (1e-6, 0.01):
        peak = product_peak(torch.device("cpu"), torch.float32, seconds)
        assert 0 < peak < math.inf
