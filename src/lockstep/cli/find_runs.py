"""The runs that a person means by naming folders or addresses, and short names to tell them apart."""

from pathlib import Path

from lockstep.errors import LockstepError


def named_runs(places: list[str]) -> dict[str, str]:
    """Each run once, by the shortest end of its path that no other has. A folder of runs stands for all of them."""
    found = list(dict.fromkeys(run for place in places for run in runs_at(place)))
    parts = [_parts(run) for run in found]
    names: list[str] = []
    for mine in parts:
        length = 1
        while length < len(mine) and sum(other[-length:] == mine[-length:] for other in parts) > 1:
            length += 1
        names.append("/".join(mine[-length:]))
    return dict(zip(names, found, strict=True))


def _parts(run: str) -> list[str]:
    path = run.partition("://")[2] if "://" in run else str(Path(run).absolute())
    return [part for part in path.split("/") if part]


def runs_at(place: str) -> list[str]:
    """The run at a folder or address, else those below it."""
    from lockstep.remote.place import is_remote

    found = _at_address(place) if is_remote(place) else _in_folder(Path(place))
    if not found:
        raise LockstepError(f"There is no run in {place}.", "Name a run's folder, or one that holds runs.", code=2)
    return found


def _in_folder(folder: Path) -> list[str]:
    if not folder.is_dir():
        raise LockstepError(f"There is no folder {folder}.", "Name a run's folder, or one that holds runs.", code=2)
    runs = [path.parent for path in sorted(folder.glob("**/config.yaml")) if (path.parent / "journal").is_dir()]
    return [str(folder)] if folder in runs else [str(run) for run in runs]


def _at_address(url: str) -> list[str]:
    from lockstep.remote.fetch_run import list_run_names
    from lockstep.remote.store import Store

    names = list_run_names(Store(url))
    return [url] if "" in names else [f"{url.rstrip('/')}/{name}" for name in names]
