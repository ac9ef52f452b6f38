"""Put on PYTHONPATH by a test: in every Python that then starts, torch cannot exchange Python objects between processes.

Such an exchange is a pickle, and who can send one runs code in the receiver. torch is patched when it is imported, so that
processes without torch stay without it.
"""

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

GUARDED = "torch.distributed.distributed_c10d"


class GuardedLoader(Loader):
    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)

        def refuse(*_: object, **__: object) -> None:
            raise AssertionError("a Python object was exchanged between processes")

        for name in ("_object_to_tensor", "_tensor_to_object"):
            assert hasattr(module, name), f"torch has no {name} any more"
            setattr(module, name, refuse)


class GuardFinder(MetaPathFinder):
    def find_spec(self, fullname: str, path: object, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != GUARDED:
            return None
        spec = PathFinder.find_spec(fullname, path)  # type: ignore[arg-type]
        assert spec is not None
        assert spec.loader is not None
        spec.loader = GuardedLoader(spec.loader)
        return spec


sys.meta_path.insert(0, GuardFinder())
