"""Lockstep trains sequence-to-sequence models in parallel and explains every run.

`load` opens a trained model, `runs` lists runs, and `report` explains one. docs/use/python.md has examples. Importing
this package imports nothing large: torch and the others are imported when they are first needed.
"""

from typing import TYPE_CHECKING

from lockstep.errors import LockstepError

if TYPE_CHECKING:
    from lockstep.api import Candidate, Guess, Model, ModelInfo, TextScores, load
    from lockstep.api_report import ReportAnswer, RunReport, report
    from lockstep.api_runs import Run, Runs, runs

__version__ = "0.1.0"
__all__ = [
    "Candidate",
    "Guess",
    "LockstepError",
    "Model",
    "ModelInfo",
    "ReportAnswer",
    "Run",
    "RunReport",
    "Runs",
    "TextScores",
    "__version__",
    "load",
    "report",
    "runs",
]

if not TYPE_CHECKING:  # a type checker would take every name for an attribute of this module

    def __getattr__(name: str) -> object:
        """Imports a part of the interface when it is first used."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        for module in ("lockstep.api_runs", "lockstep.api_report", "lockstep.api"):
            if name in (names := vars(import_module(module))):
                globals()[name] = names[name]
                return names[name]
        raise AttributeError(name)


def __dir__() -> list[str]:
    return sorted(__all__)
