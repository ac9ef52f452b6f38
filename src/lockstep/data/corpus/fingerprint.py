"""The provenance of a corpus: settings, text files, versions. The same provenance gives the same corpus."""

import hashlib
import json
from pathlib import Path
from typing import TypedDict

from pydantic import JsonValue

from lockstep.data.corpus.binary_corpus import FORMAT, CorpusFacts
from lockstep.data.corpus.vocabulary import Vocabulary
from lockstep.data.data_settings import DataSettings
from lockstep.data.text.find_files import SETS, TextFile, describe_files
from lockstep.errors import LockstepError
from lockstep.files import sha256
from lockstep.settings import flat


class Provenance(TypedDict):
    """Everything that determines the content of a corpus, as `corpus.json` records it."""

    settings: dict[str, JsonValue]
    files: list[TextFile]
    grammar_version: int | None


def describe_provenance(settings: DataSettings) -> Provenance:
    """Returns the provenance of a corpus that would be made now."""
    version = None
    if settings.grammar:
        from lockstep import demo_corpus

        version = demo_corpus.VERSION
    return {"settings": _dump(settings), "files": describe_files(settings), "grammar_version": version}


def compute_fingerprint(settings: DataSettings) -> str:
    """Returns a hash of the provenance of a corpus that would be made now."""
    content = {"format": FORMAT, **describe_provenance(settings)}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def find_differences(facts: CorpusFacts, settings: DataSettings) -> list[str]:
    """Compares what a corpus was made from with what the settings ask for; returns lines like `data.max_words 200 -> 50`.

    Text files that were moved or touched are compared by content. Text that is not on this machine is not compared.
    """
    old, new = flat(facts["settings"]), flat(_dump(settings, facts))
    if "cleaning" not in old or "cleaning" not in new:
        shared = old.keys() & new.keys()
        old, new = (
            {"cleaning": 1} | {key: one[key] for key in one if key in shared or key == "cleaning"} for one in (old, new)
        )
    keys = [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]
    differences = [f"data.{key} {old.get(key)} -> {new.get(key)}" for key in keys]
    try:
        current = describe_provenance(settings)
    except LockstepError:
        return differences
    if facts["grammar_version"] != current["grammar_version"]:
        differences.append(f"version of the grammar {facts['grammar_version']} -> {current['grammar_version']}")
    if set(keys).isdisjoint({"languages", "grammar", *SETS}):
        for before, now in zip(facts["files"], current["files"], strict=False):
            if before["bytes"] != now["bytes"]:
                differences.append(f"{now['path']} {before['bytes']} bytes -> {now['bytes']} bytes")
            elif {**before, **now} != before and sha256(Path(now["path"])) != before["sha256"]:
                differences.append(f"{now['path']} has other content")
    return differences


def _dump(settings: DataSettings, facts: CorpusFacts | None = None) -> dict[str, JsonValue]:
    """Returns the settings that change the content of a corpus. `folder` does not: the files are compared themselves. With
    the cleaning of Lockstep 0.1.0 they are those of 0.1.0, so that its corpora keep their names and are used again.

    A given vocabulary is described by its content. If its file is gone, it is taken to be the one in `facts`."""
    exclude = {"corpus", "folder", "processes", "images", "hold_out", "augment"}
    if settings.cleaning == 1:
        exclude |= {"cleaning", "split", "bad_lines", "max_characters", "check_languages"}
    dump = settings.model_dump(mode="json", exclude=exclude)
    model = dump["vocabulary"].pop("model")
    if model is None:
        return dump
    if facts is not None and not Path(model).is_file():
        return dump | {"vocabulary": facts["settings"]["vocabulary"]}
    return dump | {"vocabulary": {"model": Vocabulary.load(Path(model)).digest}}
