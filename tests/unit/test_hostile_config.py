"""Whatever stands in a config file or an override, the answer is a config or one sentence."""

import random
from pathlib import Path

import pytest

from lockstep.cli.common import read_config
from lockstep.config import build, list_fields
from lockstep.errors import LockstepError

FILE = "data: {grammar: 1}\nbatch: {words: 100}\n"
OWN = "task: a:b\nown: {x: 1}\nbatch: {words: 100}\n"
TEXT = r"""
1|-1|0|1e400|.nan|.inf|-.inf|true|no|null|~|''|x|[]|{}|[1, 2]|[[1], [2]]|{a: 1}|{name: lstm}|{name: [1]}
{name: null}|2020-01-01|2020-13-45|2020-01-01T00:00:00Z|!!timestamp x|!!int x|!!float x|!!bool x|!!null x
!!str 1|!!binary x|!!binary /w==|!!set {a, b}|!!omap [a: 1]|!!pairs [a: 1]|!!python/object:os.system x|!x
!!merge <<|!!value =|&a [*a]|&a {b: *a}|*a|1:30:00|1_000|0o17|1e-400|123456789012345678901234567890|-0|"a\0b"
"\ud800"|"\e[31m"|'|"|? a|- 1|{[1]: 2}|{1: 2}|{null: 1}|{2020-01-01: 1}|{!!binary aGk=: 1}|<<: 1|{<<: {a: 1}}
{<<: 1}|s4://a/b|a:b|../x|/dev/null|[a, null]|[1, x, 2.5]|[true]|[.nan]
"""
VALUES = [value for line in TEXT.strip().splitlines() for value in line.split("|")]
LONG_VALUES = [
    "[" * 3000,
    "{a: " * 2000,
    "9" * 5000,
    "0x" + "f" * 5000,
    "[" * 50 + "]" * 50,
    "\u202ex",
    "a\nb",
    "\udcff",
]
ODD_KEYS = [
    "own.x",
    "own.x.y",
    "own",
    "model",
    "strategy",
    "data.train",
    "task",
    "",
    ".",
    "a..b",
    "\0",
    "\x1b[31m",
    "x y",
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(FILE)
    return path


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("train.steps=!!timestamp x", "train.steps='!!timestamp x' is wrong: it must be a whole number"),
        (f"train.steps={'[' * 3000}", "is wrong: it must be a whole number"),
        (f"train.steps=0x{'f' * 5000}", "is wrong: it must be a whole number"),
        ("train.steps=&a [*a]", "is wrong: it must be a whole number"),
        ("data.folder=a\0b", "data.folder: a text has the character U+0000"),
        ("data.folder=a\udcff", "data.folder: a text has the character U+DCFF"),
    ],
)
def test_an_override_that_yaml_cannot_read(file: Path, override: str, sentence: str) -> None:
    with pytest.raises(LockstepError) as caught:
        read_config([str(file), override])
    assert sentence in caught.value.message
    assert caught.value.code == 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("data: " + "[" * 5000, "nested too deeply"),
        ("data: " + "{a: " * 5000, "nested too deeply"),
        ("data: &a {b: *a}", "nested too deeply"),
        ("\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9 if n else '1')}]" for n in range(12)), "more than"),
        ("train: {steps: !!timestamp x}", "not what its form or its tag says"),
        ("train: {steps: !!int x}", "not what its form or its tag says"),
        ('data: {folder: "a\\0b"}', "data.folder: a text has the character U+0000"),
        ('data: {train: ["a\\0b"]}', "data.train: a text has the character U+0000"),
        ("own: {x: !!binary /w==}", "own.x is binary data"),
    ],
)
def test_a_file_that_yaml_cannot_read(file: Path, text: str, sentence: str) -> None:
    file.write_text(text)
    with pytest.raises(LockstepError) as caught:
        read_config([str(file)])
    assert sentence in caught.value.message
    assert caught.value.code == 2


def test_a_path_with_nul_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(LockstepError):
        read_config([str(tmp_path / "a\0b.yaml")])


def test_a_wrong_value_of_any_type_can_be_shown() -> None:
    with pytest.raises(LockstepError, match="train.steps='x' is wrong"):
        build({"train": {"steps": Path("x")}}, "here")


def make_key(chance: random.Random, names: list[str]) -> str:
    """A setting, a part of one, or something that is none."""
    key = chance.choice(names)
    return chance.choice([key] * 6 + [f"{key}.x", key.rpartition(".")[0], key[:-1], chance.choice(ODD_KEYS)])


@pytest.mark.slow
@pytest.mark.parametrize("text", [FILE, OWN])
def test_random_settings_end_in_a_config_or_a_sentence(file: Path, text: str) -> None:
    file.write_text(text)
    chance, names = random.Random(text), sorted({name for name, _ in list_fields()})
    for _ in range(5000):
        values = LONG_VALUES if chance.random() < 0.02 else VALUES
        count = chance.choice([1, 1, 1, 2, 3])
        overrides = [f"{make_key(chance, names)}={chance.choice(values)}" for _ in range(count)]
        try:
            config = read_config([str(file), *overrides])
            config.to_yaml()
            config.model_dump_json()
        except LockstepError:
            continue
        except Exception as error:
            pytest.fail(f"{[one[:200] for one in overrides]}: {error!r}")
