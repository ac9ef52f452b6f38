"""DDP and FSDP2 without importing torch's compiler.

Both import `torch._dynamo` only to ask for a few settings and to mark functions as not to be compiled. The import takes one
to two seconds of every worker's start. We compile nothing, so a small stand-in answers while a model is wrapped. Without
effect where the compiler is already imported.
"""

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import ParamSpec, TypeVar

import torch
from torch.nn.parallel import DistributedDataParallel

COMPILER = "torch._dynamo"
SKIP = True
"""The switch: with False torch imports its compiler."""
P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def ddp_without_compiler() -> Iterator[None]:
    """Wraps the construction of DistributedDataParallel."""
    if not SKIP or COMPILER in sys.modules:
        yield
        return
    plain = inspect.unwrap(DistributedDataParallel._inside_ddp_forward)
    setattr(plain, "__dynamo_disable", plain)  # noqa: B010
    # As an attribute of torch: asking for the missing one would import it.
    vars(torch)["_dynamo"] = SimpleNamespace(utils=SimpleNamespace(get_optimize_ddp_mode=lambda: "no_optimization"))
    try:
        yield
    finally:
        del vars(torch)["_dynamo"]


class _CompilerStandIn(ModuleType):
    """Has the compiler's settings as a submodule, and returns every function unchanged."""

    __path__ = [str(Path(torch.__file__).parent / "_dynamo")]

    @staticmethod
    def disable(function: Callable[P, R], *_: object, **__: object) -> Callable[P, R]:
        return function


@contextmanager
def fsdp_without_compiler() -> Iterator[None]:
    """Wraps the calls of `fully_shard`. What is asked inside is answered for good; later questions import the real
    compiler."""
    if not SKIP or COMPILER in sys.modules:
        yield
        return
    from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
    from torch.distributed.fsdp._fully_shard._fsdp_state import FSDPState

    hooks = (  # these ask at every call
        (FSDPState, ("_pre_forward", "_post_forward", "_pre_backward", "_root_post_backward_final_callback")),
        (FSDPParamGroup, ("pre_backward", "post_backward")),
    )
    for owner, names in hooks:
        for name in names:
            setattr(owner, name, inspect.unwrap(getattr(owner, name)))
    sys.modules[COMPILER] = vars(torch)["_dynamo"] = _CompilerStandIn(COMPILER)
    try:
        importlib.import_module(f"{COMPILER}.config")
        yield
    finally:
        del sys.modules[COMPILER], sys.modules[f"{COMPILER}.config"], vars(torch)["_dynamo"]
