"""Stand-ins for a GPU. Tensors on the device `meta` have shapes and no values, and take the branches of a GPU."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

META = torch.device("meta")
READS = ("nonzero", "masked_select", "_unique2", "unique_dim", "equal", "repeat_interleave")
"""Operators whose result has a shape, or is a number, that depends on values: the host waits for the device."""
WITHOUT_META = ("_fused_adamw_", "_fused_sgd_")
"""Operators that change tensors in place and do not know `meta`."""


class Waits(TorchDispatchMode):
    """Counts for what the host waits in a program on `meta`, and answers with ones: single values and copies that it reads,
    and copies to the device from memory that is not pinned."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.waits: list[str] = []
        self.events = 0  # recorded so far
        self.reached = 0  # of them, those that the device is known to have reached

    def add(self, what: str) -> None:
        self.waits.append(what)
        self.reached = self.events

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, function.overloadpacket.__name__
        if name == "_local_scalar_dense" and args[0].is_meta:
            self.add(name)
            return 1.0
        if name in READS and any(isinstance(value, Tensor) and value.is_meta for value in args):
            self.add(name)
        if name == "_to_copy" and args[0].is_meta and kwargs.get("device", META).type == "cpu":
            self.add("copy to the host")
            return torch.ones(args[0].shape, dtype=kwargs.get("dtype", args[0].dtype))
        if name == "copy_" and args[1].is_meta and not args[0].is_meta:
            self.add("copy to the host")
            return args[0]
        if name in ("_to_copy", "copy_") and not _is_asynchronous(args, kwargs) and _reaches_meta(name, args, kwargs):
            self.add("copy to the device")
        return None if name in WITHOUT_META else function(*args, **kwargs)


def _reaches_meta(name: str, args: Any, kwargs: Any) -> bool:
    if name == "copy_":
        return bool(args[0].is_meta and not args[1].is_meta)
    return bool(not args[0].is_meta and kwargs.get("device", args[0].device).type == "meta")


def _is_asynchronous(args: Any, kwargs: Any) -> bool:
    return bool(kwargs.get("non_blocking", False)) or (len(args) > 2 and bool(args[2]))


def _teach_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch has no automatic precision for `meta`: there it is off."""
    is_enabled, autocast = torch.is_autocast_enabled, torch.autocast
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind: kind != "meta" and is_enabled(kind))
    monkeypatch.setattr(
        torch,
        "autocast",
        lambda kind, *args, **kwargs: nullcontext() if kind == "meta" else autocast(kind, *args, **kwargs),
    )


@contextmanager
def counting_waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[Waits]:
    """Counts waits, also those for events: one that the device has not reached cannot be read, as with torch's own."""
    counted, make_tensor = Waits(), torch.tensor

    def copy_to_tensor(*args: Any, **kwargs: Any) -> Tensor:
        """torch shows this copy to nobody."""
        result = make_tensor(*args, **kwargs)
        if result.is_meta:
            counted.add("copy to the device")
        return result

    monkeypatch.setattr(torch, "tensor", copy_to_tensor)

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            self.number = 0

        def record(self, stream: object) -> None:
            counted.events += 1
            self.number = counted.events

        def query(self) -> bool:
            return 0 < self.number <= counted.reached

        def synchronize(self) -> None:
            counted.add("event")

        def elapsed_time(self, end: "Event") -> float:
            assert self.query(), "an event is read that the device has not reached"
            assert end.query(), "an event is read that the device has not reached"
            return float(end.number - self.number)

    _teach_autocast(monkeypatch)
    monkeypatch.setattr(Tensor, "pin_memory", lambda tensor: tensor)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    with counted:
        yield counted
