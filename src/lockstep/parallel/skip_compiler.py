"""FSDP2 without torch's compiler.

DTensor and FSDP2 ask the compiler only for some of its settings and to keep out of their functions, but importing it for
that takes a second of every worker's start. We compile nothing, so something smaller can answer while a model is sharded.
"""

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
from torch.distributed.fsdp._fully_shard._fsdp_state import FSDPState

COMPILER = "torch._dynamo"
HOOKS = (
    (FSDPState, ("_pre_forward", "_post_forward", "_pre_backward", "_root_post_backward_final_callback")),
    (FSDPParamGroup, ("pre_backward", "post_backward")),
)
"""They ask at every call."""


class _StandIn(ModuleType):
    """Has the compiler's settings as a submodule, and leaves every function as it is."""

    __path__ = [str(Path(torch.__file__).parent / "_dynamo")]

    @staticmethod
    def disable(function: Callable[..., Any], *_: Any, **__: Any) -> Callable[..., Any]:
        return function


@contextmanager
def compiler_left_out() -> Iterator[None]:
    """What is asked within is answered for good; who asks something new later gets the real compiler."""
    if COMPILER in sys.modules:
        yield
        return
    for owner, names in HOOKS:
        for name in names:
            setattr(owner, name, inspect.unwrap(getattr(owner, name)))
    sys.modules[COMPILER] = vars(torch)["_dynamo"] = _StandIn(COMPILER)
    try:
        importlib.import_module(f"{COMPILER}.config")
        yield
    finally:
        del sys.modules[COMPILER], sys.modules[f"{COMPILER}.config"], vars(torch)["_dynamo"]
