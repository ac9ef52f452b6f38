"""What a corpus is made from: settings, text files, versions. Two equal recipes make the same corpus."""

import hashlib
import json
from pathlib import Path
from typing import Any

from lockstep.data.corpus.binary_corpus import FORMAT
from lockstep.data.data_settings import DataSettings
from lockstep.data.text import parallel_text
from lockstep.errors import LockstepError
from lockstep.files import sha256


def recipe(settings: DataSettings) -> dict[str, Any]:
    """What decides the content of a corpus, as it is recorded in it."""
    version = None
    if settings.grammar:
        from lockstep import demo_corpus

        version = demo_corpus.VERSION
    return {"settings": _dump(settings), "files": parallel_text.sources(settings), "grammar_version": version}


def fingerprint(settings: DataSettings) -> str:
    """A short name of everything the corpus is made from: settings, text files as they are now, versions."""
    whole = {"format": FORMAT, **recipe(settings)}
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:16]


def differences(facts: dict[str, Any], settings: DataSettings) -> list[str]:
    """What a corpus was made from -> what is asked for now.

    Text that moved or was merely touched is compared by content; text that is not on this machine is not missed.
    """
    old, new = _flat(facts["settings"]), _flat(_dump(settings))
    keys = [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]
    found = [f"data.{key} {old.get(key)} -> {new.get(key)}" for key in keys]
    try:
        now_made_from = recipe(settings)
    except LockstepError:
        return found
    if facts["grammar_version"] != now_made_from["grammar_version"]:
        found.append(f"version of the grammar {facts['grammar_version']} -> {now_made_from['grammar_version']}")
    if set(keys).isdisjoint({"languages", "grammar", *parallel_text.SETS}):
        for before, now in zip(facts["files"], now_made_from["files"], strict=False):
            if before["bytes"] != now["bytes"]:
                found.append(f"{now['path']} {before['bytes']} bytes -> {now['bytes']} bytes")
            elif {**before, **now} != before and sha256(Path(now["path"])) != before["sha256"]:
                found.append(f"{now['path']} has other content")
    return found


def _dump(settings: DataSettings) -> dict[str, Any]:
    """The settings without places and means: where the text lies is told by its files."""
    return settings.model_dump(mode="json", exclude={"corpus", "folder", "processes", "images", "hold_out", "augment"})


def _flat(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat
