"""The rendezvous store of a launch, in which every value carries a digest made with the job's secret.

torch's store has no authentication, and torch reads what others wrote there in C++ that a wrong value can crash. This
store hands on only values that were written with the secret. Counters cannot be signed: who reaches the store can change
them, or delete keys, and so disturb a job, but cannot make it believe anything else. Without a secret the digest only
keeps out what another program writes by mistake.
"""

from datetime import timedelta

import torch.distributed as dist

from lockstep.job_secret import is_signed, sign

DIGEST_BYTES = 32


class ForeignEntry(Exception):
    """A value in the store was not written with the secret of this job."""


class SignedStore(dist.Store):
    """`store`, as torch.distributed uses it. torch calls these methods from C++ too."""

    def __init__(self, store: dist.Store, secret: bytes) -> None:
        super().__init__()
        self.store, self._secret = store, secret

    def set(self, key: str, value: str | bytes) -> None:
        content = value.encode() if isinstance(value, str) else bytes(value)
        self.store.set(key, sign(self._secret, f"store {key}", content) + content)  # type: ignore[arg-type]

    def get(self, key: str) -> bytes:
        value = bytes(self.store.get(key))
        digest, content = value[:DIGEST_BYTES], value[DIGEST_BYTES:]
        if not is_signed(self._secret, f"store {key}", content, digest):
            raise ForeignEntry(key)
        return content

    def add(self, key: str, value: int) -> int:
        return self.store.add(key, value)

    def check(self, keys: list[str]) -> bool:
        return self.store.check(keys)

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        if timeout is None:
            self.store.wait(keys)
        else:
            self.store.wait(keys, timeout)

    def delete_key(self, key: str) -> bool:
        return self.store.delete_key(key)

    def num_keys(self) -> int:
        return self.store.num_keys()

    deleteKey, getNumKeys = delete_key, num_keys
    """The names under which torch's C++ looks for these two."""

    def set_timeout(self, timeout: timedelta) -> None:
        self.store.set_timeout(timeout)

    def clone(self) -> "SignedStore":
        return SignedStore(self.store.clone(), self._secret)  # type: ignore[attr-defined]
