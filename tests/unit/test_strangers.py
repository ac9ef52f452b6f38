"""What a process outside a job can do in the rendezvous store and in a process group: it is never believed."""

import os
import pickle
import struct
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch.distributed as dist

from lockstep import messages
from lockstep.challenge import CLAIM_BYTES, NONCE_BYTES, Stranger, check_members, describe_strangers, sign_in
from lockstep.errors import LockstepError
from lockstep.job_secret import make_secret_environment, read_secret
from lockstep.messages import exchange_bytes, gather
from lockstep.signed_store import ForeignEntry, SignedStore

SECRET, OTHER = b"the secret of this job", b"the secret of another job"
TIMEOUT = timedelta(seconds=20)
Member = Callable[[dist.ProcessGroup], object]


def make_group(store: dist.Store, rank: int, size: int) -> dist.ProcessGroup:
    """A real Gloo group; its sockets are on the loopback."""
    return cast(dist.ProcessGroup, dist.ProcessGroupGloo(store, rank, size, TIMEOUT))


def run_members(*members: Member) -> list[object]:
    """Runs each member of a group in a thread; returns what it returns or raises."""
    store, results = dist.HashStore(), [None] * len(members)

    def run(rank: int) -> None:
        try:
            results[rank] = members[rank](make_group(store, rank, len(members)))  # type: ignore[call-overload]
        except Exception as error:
            results[rank] = error  # type: ignore[call-overload]

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(members))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return list(results)


@pytest.fixture(autouse=True)
def _loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")


class Payload:
    """A pickle that creates a file in the process that reads it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.path),)


def test_values_arrive_as_they_were_sent() -> None:
    values: list[object] = [
        {"a": [1, 2.5, None, True, "ä\ud800"], "b": {"c": []}},
        [float("inf"), -0.0, 1e-320, 2**70, "x" * 100_000],
    ]
    assert run_members(*(lambda group, value=value: gather(value, group) for value in values)) == [values, values]


@pytest.mark.parametrize("value", [(1, 2), {1: 2}, Path("x"), np.float64(1.0), np.int64(1), {"a": [{1, 2}]}, b"x"])
def test_a_value_that_is_not_plain_raises_on_all_members(value: object) -> None:
    results = run_members(lambda group: gather(value, group), lambda group: gather(1, group))
    assert [type(result) for result in results] == [TypeError, TypeError]
    assert "worker 0" in str(results[1])


@pytest.mark.parametrize("length", [2**60, -1, 0, messages.MOST_BYTES + 1])
def test_a_length_that_cannot_be_right_is_not_believed(length: int) -> None:
    def stranger(group: dist.ProcessGroup) -> object:
        return exchange_bytes(struct.pack("<?q", True, length), group)

    result, _ = run_members(lambda group: gather("fine", group), stranger)
    assert isinstance(result, LockstepError)
    assert "Worker 1 announced a message" in result.message


def test_a_pickle_is_not_read(tmp_path: Path) -> None:
    content = pickle.dumps(Payload(tmp_path / "made-by-a-stranger"))

    def stranger(group: dist.ProcessGroup) -> object:
        exchange_bytes(struct.pack("<?q", True, len(content)), group)
        return exchange_bytes(content, group)

    result, _ = run_members(lambda group: gather("x", group), stranger)
    assert isinstance(result, LockstepError)
    assert "is not JSON" in result.message
    assert not any(tmp_path.iterdir())


def test_members_with_the_same_secret_pass() -> None:
    assert run_members(*[lambda group: check_members("all", group, SECRET)] * 3) == [None, None, None]


def test_a_member_with_another_secret_is_named_by_all() -> None:
    def check(secret: bytes) -> Member:
        return lambda group: check_members("all", group, secret)

    results = run_members(check(SECRET), check(OTHER), check(SECRET))
    for result in (results[0], results[2]):
        assert isinstance(result, Stranger)
        assert result.message.startswith("Worker 1, which says that it runs on ")
        assert "127.0.0.1" in result.message
    assert isinstance(results[1], Stranger)


@pytest.mark.parametrize("copied", [0, 1])
def test_a_proof_cannot_be_copied_from_another_member(copied: int) -> None:
    """A stranger that sends back what it has received, in the same exchange or in the next one, proves nothing."""

    def stranger(group: dist.ProcessGroup) -> None:
        heads = exchange_bytes(bytes(NONCE_BYTES + CLAIM_BYTES), group)
        exchange_bytes([bytes(32), heads[0][:32]][copied], group)

    result, _ = run_members(lambda group: check_members("all", group, SECRET), stranger)
    assert isinstance(result, Stranger)


def test_the_proof_of_one_group_is_none_in_another() -> None:
    results = run_members(*[lambda group, name=name: check_members(name, group, SECRET) for name in ("all", "facts")])
    assert all(isinstance(result, Stranger) for result in results)


def test_the_sentence_names_the_address_that_no_member_explains() -> None:
    claims = {0: "one 10.0.0.1", 1: "evil\x1b[2J 10.0.0.2 10.0.0.1", 2: "three 10.0.0.3"}
    sentence = describe_strangers(0, [1], claims, ["10.0.0.1", "10.0.0.3", "10.0.0.66"])
    assert "evil??2J" in sentence
    assert sentence.endswith("It connects from 10.0.0.66.")
    assert describe_strangers(0, [1], claims, ["10.0.0.3"]).endswith("from the machine of another worker (10.0.0.3).")


def test_the_store_hands_on_only_what_was_written_with_the_secret() -> None:
    plain = dist.HashStore()
    store, same, other = SignedStore(plain, SECRET), SignedStore(plain, SECRET), SignedStore(plain, OTHER)
    store.set("a", "value")  # and below a copy of it, under another key
    assert same.get("a") == b"value"
    plain.set("b", plain.get("a"))  # type: ignore[arg-type]
    plain.set("c", "garbage")
    for key, reader in (("a", other), ("b", same), ("c", same)):
        with pytest.raises(ForeignEntry):
            reader.get(key)


def test_torch_reaches_every_method_of_the_store_from_its_own_code() -> None:
    store = SignedStore(dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False), SECRET)
    prefixed = dist.PrefixStore("queue", store)  # it is C++, and calls the Python methods
    prefixed.set("a", "1")
    prefixed.wait(["a"])
    prefixed.wait(["a"], TIMEOUT)
    assert prefixed.get("a") == store.get("queue/a") == b"1"
    assert (prefixed.add("count", 2), prefixed.add("count", 0)) == (2, 2)
    assert prefixed.check(["a", "count"])
    assert prefixed.num_keys() >= 2
    assert prefixed.delete_key("a")
    assert not prefixed.check(["a"])


@pytest.mark.parametrize("garbage", ["", "\x01", "\x7f" * 170, "a" * 10_000_000])
def test_garbage_in_the_store_is_never_read_by_torch(garbage: str) -> None:
    """If torch read it, some would be a MemoryError, and some would end the process with a segmentation fault."""
    plain = dist.HashStore()
    plain.set("0/1", garbage)
    store = SignedStore(plain, SECRET)
    with pytest.raises(ForeignEntry):
        make_group(store, 0, 2)


def test_signing_in_names_a_worker_with_another_secret() -> None:
    plain = dist.HashStore()
    SignedStore(plain, OTHER).set("member/1", "host-b 10.0.0.2")
    with pytest.raises(
        Stranger,
        match=r"Worker 1, which says that it runs on .*host-b 10\.0\.0\.2, does not know the secret that worker 0 has",
    ):
        sign_in(SignedStore(plain, SECRET), 1, 0, 2)


def test_a_secret_file_that_others_can_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret"
    path.write_text("0123456789abcdef\n")
    monkeypatch.setenv("LOCKSTEP_SECRET_FILE", str(path))
    path.chmod(0o600)
    assert read_secret() == b"0123456789abcdef"
    for mode in (0o604, 0o640, 0o620):
        path.chmod(mode)
        with pytest.raises(LockstepError, match="Others than its owner"):
            read_secret()


@pytest.mark.parametrize(("text", "message"), [("", "is empty"), ("short", "shorter than 16")])
def test_a_weak_secret_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str) -> None:
    path = tmp_path / "secret"
    path.write_text(text)
    path.chmod(0o600)
    monkeypatch.setenv("LOCKSTEP_SECRET_FILE", str(path))
    with pytest.raises(LockstepError, match=message):
        read_secret()
    monkeypatch.setenv("LOCKSTEP_SECRET_FILE", str(tmp_path / "nowhere"))
    with pytest.raises(LockstepError, match="No such file"):
        read_secret()


def test_every_launch_has_another_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = make_secret_environment(), make_secret_environment()
    assert first != second
    for name, value in first.items():
        monkeypatch.setenv(name, value)
    assert len(read_secret()) == 64
