"""Writes the YAML of a platform with comments, and the shell command that containers run."""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from lockstep.errors import LockstepError
from lockstep.jobs.job import Job

CONFIG_VARIABLE = "TRAINING_CONFIG"
CONFIG_PATH = '"${TMPDIR:-/tmp}/lockstep.yaml"'


class _ManifestDumper(yaml.SafeDumper):
    """Writes texts of several lines as they are, and lists indented below their key."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_ManifestDumper.add_representer(str, _represent_text)


def write_manifest(head: str, documents: Sequence[Mapping[str, object]], comments: Mapping[str, str]) -> str:
    """Returns the documents below a head of comments. Each of `comments` is put above the first line with its key."""
    texts = [
        yaml.dump(document, Dumper=_ManifestDumper, sort_keys=False, width=1000, allow_unicode=True)
        for document in documents
    ]
    text = "---\n".join(texts)
    for key, comment in comments.items():
        lines = "".join(f"\\1# {line}\n" for line in comment.replace("\\", "\\\\").splitlines())
        text = re.sub(rf"^( *)((?:- )?{re.escape(key)}:)", rf"{lines}\1\2", text, count=1, flags=re.MULTILINE)
    return "".join(f"# {line}".rstrip() + "\n" for line in head.splitlines()) + text


def read_config_text(job: Job) -> str:
    """Returns the text of the config file, which travels in the manifest."""
    try:
        text = Path(job.config).read_text(encoding="utf-8")
    except OSError as error:
        raise LockstepError(f"{job.config} cannot be read: {error.strerror}.", "Name a config file.", code=2) from None
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def quote_train_words(job: Job) -> str:
    """Returns what follows `lockstep` in a shell command of a container, where the config is written to CONFIG_PATH."""
    command, _, *rest = job.train_words
    return f"{command} {CONFIG_PATH} {shlex.join(rest)}"


def write_config_command() -> str:
    """Returns the shell command that writes the config, which travels as a variable, to CONFIG_PATH."""
    return f'printf %s "${CONFIG_VARIABLE}" > {CONFIG_PATH}'


def read_documents(text: str) -> list[dict[str, object]]:
    """Returns the documents of a YAML text."""
    try:
        documents = [document for document in yaml.safe_load_all(text) if document is not None]
    except yaml.YAMLError as error:
        raise LockstepError(f"The text is not YAML: {error}.", "Print it again with --print.", code=2) from None
    if not all(isinstance(document, dict) for document in documents):
        raise LockstepError("A document of the text is no mapping.", "Print it again with --print.", code=2)
    return documents
