"""Finds the runs in folders and at addresses, and gives them short, unique names."""

from pathlib import Path

from lockstep.errors import LockstepError

REMEDY = "Give the folder of a run, or a folder that contains runs; `lockstep runs FOLDER` lists them."


def name_runs(places: list[str]) -> dict[str, str]:
    """Finds runs, each once, by the shortest end of its path that is unique. A folder of runs stands for all its runs."""
    runs = list(dict.fromkeys(run for place in places for run in find_runs(place)))
    parts = [_split(run) for run in runs]
    names: list[str] = []
    for mine in parts:
        length = 1
        while length < len(mine) and sum(other[-length:] == mine[-length:] for other in parts) > 1:
            length += 1
        names.append("/".join(mine[-length:]))
    return dict(zip(names, runs, strict=True))


def _split(run: str) -> list[str]:
    path = run.partition("://")[2] if "://" in run else str(Path(run).absolute())
    return [part for part in path.split("/") if part]


def find_runs(place: str) -> list[str]:
    """The run in a folder or at an address; if there is none, the runs below it."""
    from lockstep.remote.place import is_remote

    runs = _find_at_address(place) if is_remote(place) else _find_in_folder(Path(place))
    if not runs:
        raise LockstepError(f"There is no run in {place}.", REMEDY, code=2)
    return runs


def _find_in_folder(folder: Path) -> list[str]:
    if not folder.is_dir():
        raise LockstepError(f"There is no folder {folder}.", REMEDY, code=2)
    runs = [path.parent for path in sorted(folder.glob("**/config.yaml")) if (path.parent / "journal").is_dir()]
    return [str(folder)] if folder in runs else [str(run) for run in runs]


def _find_at_address(url: str) -> list[str]:
    from lockstep.remote.fetch_run import list_run_names
    from lockstep.remote.store import Store

    names = list_run_names(Store(url))
    return [url] if "" in names else [f"{url.rstrip('/')}/{name}" for name in names]


def open_run(place: str) -> Path:
    """Returns the folder of a run; for an address, a folder with its current small files and journal."""
    from lockstep.remote.fetch_run import fetch_run
    from lockstep.remote.place import is_remote

    folder = fetch_run(place) if is_remote(place) else Path(place)
    if not (folder / "config.yaml").is_file() or not (folder / "journal").is_dir():
        what = f"{place} is not a run." if is_remote(place) or folder.exists() else f"There is no folder {place}."
        raise LockstepError(what, REMEDY, code=2)
    return folder
