"""Which machines a launch may use."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.errors import LockstepError
from lockstep.hosts.hosts_file import Host, read_hosts


def test_a_file_names_hosts_with_slots_ports_users_and_addresses(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("# all\nnode1 slots=2\n\nnode2 port=4444 user=me address=10.0.0.2 # the other one\n")
    assert read_hosts(str(path)) == [Host("node1", 2), Host("node2", 1, 4444, "me", "10.0.0.2")]
    assert read_hosts(str(path))[1].place == "me@node2"
    assert read_hosts(str(path))[1].public_name == "10.0.0.2"


def test_a_list_is_that_of_mpirun() -> None:
    assert read_hosts("node1:2,node2") == [Host("node1", 2), Host("node2", 1)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("node1 slots=0", "line 1: slots is '0', not a number from 1 to 10,000"),
        ("node1 port=x", "line 1: port is 'x'"),
        ("node1\nnode2 slot=2", "line 2: 'slot=2' is not understood"),
        ("node1 slots=1 slots=2", "slots is there twice"),
        ("node1\nnode1", "names node1 twice"),
        ("-oProxyCommand=x", "'-oProxyCommand=x' is not the name of a host"),
        ("node1 user=-x", "'-x' is not the name of a host or user"),
        ("# nobody", "names no host"),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "hosts"
    path.write_text(text)
    with pytest.raises(LockstepError) as caught:
        read_hosts(str(path))
    assert says in caught.value.message
    assert caught.value.remedy


def test_a_file_that_is_missing_is_not_taken_for_a_host(tmp_path: Path) -> None:
    with pytest.raises(LockstepError, match="There is no hosts file"):
        read_hosts(str(tmp_path / "hosts"))


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        hosts = read_hosts(text.replace("\0", "") or "x")
    except (LockstepError, OSError):
        return
    assert all(host.slots >= 1 and not host.name.startswith("-") for host in hosts)
