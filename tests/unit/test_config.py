import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

from lockstep.config import (
    VARIANTS,
    RunConfig,
    apply_override,
    build,
    describe,
    differences,
    find_nearest,
    list_fields,
    load,
    read_yaml,
)
from lockstep.errors import LockstepError
from lockstep.models.model_settings import LstmSettings, TransformerSettings
from lockstep.run.directory import RunDirectory

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))
MINIMAL: dict[str, Any] = {"data": {"grammar": {}}, "batch": {"words": 1000}}


def config(*overrides: str, tree: dict[str, Any] | None = None) -> RunConfig:
    settings = yaml.safe_load(yaml.safe_dump(MINIMAL if tree is None else tree))
    for override in overrides:
        apply_override(settings, override)
    return build(settings, "test.yaml", overrides)


def refused(*overrides: str, tree: dict[str, Any] | None = None) -> str:
    """The error message for these settings."""
    with pytest.raises(LockstepError) as caught:
        config(*overrides, tree=tree)
    assert caught.value.code == 2
    return caught.value.message


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_every_file_in_configs_loads(path: Path) -> None:
    assert load(path, []).train.steps >= 1


def test_there_are_configs_to_load() -> None:
    assert {"demo.yaml", "multi30k.yaml"} <= {path.name for path in CONFIGS}


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("train.step", "train.steps"),
        ("batch.word", "batch.words"),
        ("model.layers", "model.encoder_layers"),
        ("trian.steps", "train.steps"),
        ("data.vocabulary.sizes", "data.vocabulary.size"),
        ("data.grammar.sead", "data.grammar.seed"),
        ("beam", "search.beam"),
        ("model.label_smoothing", "train.label_smoothing"),
    ],
)
def test_an_unknown_setting_is_refused_with_the_nearest_one(key: str, near: str) -> None:
    assert find_nearest(key) == near
    if key != "trian.steps":  # there the group is what is unknown
        assert refused(f"{key}=1") == f"unknown setting {key} (did you mean {near}?)."


def test_an_unknown_group_is_refused_by_name() -> None:
    assert "unknown setting trian" in refused("trian.steps=1")


def test_no_similar_setting_is_proposed_if_there_is_none() -> None:
    assert refused("xyzzy=1") == "unknown setting xyzzy."


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("train.steps=many", "train.steps='many' is wrong: it must be a whole number"),
        ("train.steps=1.5", "train.steps=1.5 is wrong: it must be a whole number"),
        ("train.steps=0", "train.steps=0 is wrong: it must be at least 1"),
        ("batch.words=true", "batch.words=true is wrong: it must be a whole number or null"),
        ("schedule.warmup=no", "schedule.warmup=false is wrong: it must be a whole number"),
        ("model.dropout=yes", "model.dropout=true is wrong: it must be a number"),
        ("optimizer.betas=[true, 0.9]", "item 1 of optimizer.betas, true, is wrong: it must be a number"),
        ("schedule.drops=[3, true]", "item 2 of schedule.drops, true, is wrong: it must be a whole number"),
        ("train.steps=[1]", "train.steps=[1] is wrong: it must be a whole number"),
        ("model.dropout=1", "model.dropout=1 is wrong: it must be less than 1"),
        ("model.norm=middle", "model.norm='middle' is wrong: it must be 'pre' or 'post'"),
        ("batch.bucket=perhaps", "batch.bucket='perhaps' is wrong: it must be true or false"),
        ("model.name=gru", "model.name='gru' is wrong: it must be 'transformer' or 'lstm'"),
        ("model=5", "model=5 is wrong: model is a group of settings, not a value"),
        ("data.languages=[en]", "data.languages=[en] is wrong: it must be a list of two texts, as in [en, de]"),
        ("data.languages=en", "data.languages='en' is wrong: it must be a list of two texts, as in [en, de]"),
        ("data.languages=[a, b, c]", "data.languages=[a, b, c] is wrong: it must be a list of two texts"),
        ("data.languages=[en, 5]", "item 2 of data.languages, 5, is wrong: it must be text"),
        ("data.train=5", "data.train=5 is wrong: it must be a list of texts or lists of two texts, as in [a, b]"),
        ("data.train=[a, [b]]", "item 2 of data.train, [b], is wrong: it must be text"),
        ("data.folder=2016-01-02", "data.folder=2016-01-02 is wrong: it must be a path or an address"),
        ("data.corpus=[x]", "data.corpus=[x] is wrong: it must be a path or an address or null"),
        ("optimizer.betas=0.9", "optimizer.betas=0.9 is wrong: it must be a list of two numbers, as in [0.9, 0.98]"),
        ("optimizer.betas=[0.9, 2]", "item 2 of optimizer.betas, 2, is wrong: it must be less than 1"),
        ("schedule.drops=[10, 0]", "item 2 of schedule.drops, 0, is wrong: it must be at least 1"),
        ("train.steps=null", "train.steps=null is wrong: it must be a whole number"),
        ("train.clip=yes please", "train.clip='yes please' is wrong: it must be a number or null"),
        ("train.steps={a: 1}", "train.steps={a: 1} is wrong: it must be a whole number"),
        ("data.grammar=5", "data.grammar=5 is wrong: data.grammar is a group of settings, not a value"),
        ("model.name=5", "model.name=5 is wrong: it must be 'transformer' or 'lstm' or 'resnet'"),
        ("model.name=[lstm]", "model.name=[lstm] is wrong: it must be 'transformer' or 'lstm' or 'resnet'"),
        ("model.name=null", "model.name=null is wrong: it must be 'transformer' or 'lstm' or 'resnet'"),
        ("model=null", "model=null is wrong: model is a group of settings, not a value"),
        ("batch=[5]", "batch=[5] is wrong: batch is a group of settings, not a value"),
        ("own={1: 2}", "the name 1 in own is wrong: names are text"),
        ("train={1: 2}", "the name 1 in train is wrong: names are text"),
        ("train=5", "train=5 is wrong: train is a group of settings, not a value"),
    ],
)
def test_a_wrong_value_is_refused_with_key_value_and_expectation(override: str, sentence: str) -> None:
    assert sentence in refused(override)


def test_one_error_lists_all_mistakes() -> None:
    message = refused("train.steps=x", "search.beam=0", "model.wdith=3")
    assert "train.steps='x'" in message
    assert "search.beam=0" in message
    assert "did you mean model.width?" in message


def test_the_file_is_named_only_for_mistakes_that_are_in_it() -> None:
    tree = {"data": {"grammar": {}}, "batch": {"words": 0}}
    message = refused("train.steps=0", "data.languages=[en]", tree=tree)
    assert "; test.yaml: batch.words=0 is wrong" in message
    assert message.count("test.yaml") == 1


def test_the_remedy_names_the_setting_to_look_up() -> None:
    for override, key in (("train.stpes=1", " train.steps"), ("model.heads=7", " model"), ("xyzzy=1", "")):
        with pytest.raises(LockstepError) as caught:
            config(override)
        assert caught.value.remedy.startswith(f"`lockstep config explain{key}` explains")


WRONG_VALUES = [
    "some text",
    "",
    -5,
    1.5,
    10**400,
    float("inf"),
    float("nan"),
    None,
    True,
    [],
    [1],
    ["a"],
    [[]],
    {"a": 1},
]
WRONG_VALUES += [{1: 2}, {}, date(2016, 1, 2), b"x", [None, None, None], [{}, {}]]
RAW_PHRASES = (
    r"[Ii]nput|\bvalid\b|pydantic|required|unable|instance|tuple|dictionary|datetime|Extra|Keys|finite_|None|True"
)


def places() -> list[tuple[str, str | None]]:
    """Every setting, with the model or strategy that has it."""
    plain = [(name, None) for name, _ in list_fields() if name.partition(".")[0] not in VARIANTS]
    return plain + [
        (f"{group}.{setting}", name)
        for group, variants in VARIANTS.items()
        for name, settings in variants.items()
        for setting in settings.model_fields
        if setting != "name"
    ]


def complain(tree: dict[str, Any]) -> str:
    """The error message for a config; empty if it is accepted."""
    try:
        build(tree, "test.yaml")
    except LockstepError as error:
        return error.message
    return ""


@pytest.mark.parametrize(("key", "chosen"), places())
def test_no_wrong_value_of_any_setting_is_refused_in_the_words_of_the_library(key: str, chosen: str | None) -> None:
    *groups, name = key.split(".")
    messages = []
    for value in WRONG_VALUES:
        tree: dict[str, Any] = {"data": {"grammar": {}}}
        node = tree
        for group in groups:
            node = node.setdefault(group, {})
        node |= {name: value} if chosen is None else {"name": chosen, name: value}
        messages.append(complain(tree))
    assert any(messages)
    assert [message for message in messages if re.search(RAW_PHRASES, message)] == []
    assert [message for message in messages if message and name not in message and groups[0] not in message] == []


def test_a_config_needs_to_name_only_its_text() -> None:
    settings = config(tree={"data": {"train": ["a"], "validation": ["b"]}})
    assert settings.batch.words == 4096
    assert build(yaml.safe_load(settings.to_yaml()), "again") == settings
    assert config(tree={"data": {"grammar": {}}, "batch": None}).batch.words == 4096
    assert config("batch.bucket=true", tree={"data": {"grammar": {}}}).batch.words == 4096
    assert config("batch.sentences=7", tree={"data": {"grammar": {}}}).batch.words is None


def test_a_config_needs_to_name_only_its_images() -> None:
    settings = config(tree={"data": {"images": "here"}})
    assert (settings.batch.images, settings.batch.words, settings.model.name) == (128, None, "resnet")
    assert build(yaml.safe_load(settings.to_yaml()), "again") == settings


def test_an_empty_config_asks_for_text() -> None:
    assert "name the training text in data.train" in refused(tree={})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "data: {grammar: {}}\ntrain:\n  steps: 5\n  seed: 1\n  steps: 6\n",
            "train.steps twice: in line 3 and in line 5.",
        ),
        ("data: {grammar: {}}\nbatch: {words: 5}\ndata:\n  folder: x\n", "has data twice: in line 1 and in line 3."),
        (
            "data:\n  vocabulary: {size: 300, kind: bpe, size: 400}\n",
            "data.vocabulary.size twice: in line 2 and in line 2.",
        ),
    ],
)
def test_a_setting_that_is_twice_in_a_file_is_refused_with_both_lines(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    assert sentence in unreadable(path).message


def test_a_file_with_anchors_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("data: {grammar: {}}\nown: {first: &own {more: 1}, again: [*own], more: *own}\n")
    assert read_yaml(path)["own"]["more"]["more"] == 1


def test_a_batch_needs_exactly_one_size() -> None:
    assert "give either batch.words or batch.sentences" in refused("batch.sentences=10")
    assert "give either batch.words or batch.sentences" in refused("batch.words=null")
    assert config("batch.words=null", "batch.sentences=10").batch.sentences == 10


IMAGES = ("data.grammar=null", "data.images=here", "batch.words=null", "batch.images=128", "model.name=resnet")


def test_images_make_it_a_classification() -> None:
    settings = config(*IMAGES, "model.depth=56")
    assert settings.task_name == "classification"
    assert settings.model.model_dump() == {"name": "resnet", "depth": 56, "channels": None}
    assert build(yaml.safe_load(settings.to_yaml()), "again") == settings
    assert config().task_name == "translation"
    assert config("task=mine:make").task_name == "mine:make"


def test_errors_name_the_setting_of_the_model_that_was_chosen() -> None:
    assert "model.heads is not for model.name=resnet; transformer has it" in refused(*IMAGES, "model.heads=8")
    assert "model.depth=3 is wrong" in refused(*IMAGES, "model.depth=3")
    known = "'transformer' or 'lstm' or 'resnet'"
    assert f"model.name='perceptron' is wrong: it must be {known}" in refused("model.name=perceptron")
    assert "data.images and text" in refused("data.images=here")


def test_heads_must_divide_the_width() -> None:
    assert "model.width 512 is not a multiple of model.heads 7" in refused("model.heads=7")


def test_the_width_must_be_even() -> None:
    assert "model.width" in refused("model.width=9", "model.heads=3")


def test_betas_outside_of_zero_to_one_are_refused() -> None:
    assert "optimizer.betas" in refused("optimizer.betas=[0.9, 1.5]")
    assert "optimizer.betas" in refused("optimizer.betas=[-0.1, 0.9]")


@pytest.mark.parametrize("key", ["schedule.peak", "train.clip", "train.timeout_seconds", "search.max_ratio"])
def test_infinite_numbers_are_refused(key: str) -> None:
    assert f"{key}=inf is wrong" in refused(f"{key}=.inf")


def test_a_seed_must_fit_into_64_bits() -> None:
    assert "train.seed" in refused(f"train.seed={2**64}")


def test_training_text_must_be_named() -> None:
    assert "data.train" in refused("data.grammar=null")
    assert "data.validation" in refused("data.grammar=null", "data.train=[a]", "data.cleaning=1")
    config("data.grammar=null", "data.train=[a]")
    assert "set data.languages to en and de" in refused("data.languages=[en, fr]")


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("train.steps=2000", "train.steps", 2000),
        ("train.clip=0.5", "train.clip", 0.5),
        ("train.clip=1", "train.clip", 1.0),
        ("schedule.peak=1e-3", "schedule.peak", 1e-3),
        ("schedule.peak=1.5e-3", "schedule.peak", 1.5e-3),
        ("optimizer.betas=[0.9, 0.999]", "optimizer.betas", (0.9, 0.999)),
        ("data.train=[a, b]", "data.train", ["a", "b"]),
        ("data.corpus=null", "data.corpus", None),
        ("data.corpus=some where/x=1", "data.corpus", Path("some where/x=1")),
        ("data.folder={a", "data.folder", Path("{a")),
        ("batch.bucket=false", "batch.bucket", False),
        ("data.grammar.seed=7", "data.grammar.seed", 7),
        ("data.vocabulary.size=300", "data.vocabulary.size", 300),
        ("train.patience=3", "train.patience", 3),
        (" train.steps =5", "train.steps", 5),
    ],
)
def test_an_override_is_read_as_yaml(override: str, key: str, value: object) -> None:
    setting: Any = config(override)
    for part in key.split("."):
        setting = getattr(setting, part)
    assert setting == value
    assert type(setting) is type(value)


def test_an_override_can_set_a_member_of_a_group_that_is_absent_or_null() -> None:
    tree = {"data": {"grammar": None}, "batch": {"words": 1000}}
    assert config("data.grammar.train=5", tree=tree).data.grammar is not None
    assert config("model.width=64").model == TransformerSettings(width=64)


def test_an_override_that_yaml_takes_for_an_impossible_date_is_text() -> None:
    assert config("data.corpus=2016-13-45").data.corpus == Path("2016-13-45")


def test_the_last_override_of_a_setting_wins() -> None:
    assert config("train.steps=1", "train.steps=2").train.steps == 2


@pytest.mark.parametrize("override", ["train.steps", "=5", ""])
def test_an_override_without_key_or_value_is_refused_with_an_example(override: str) -> None:
    with pytest.raises(LockstepError) as caught:
        config(override)
    assert repr(override) in caught.value.message
    assert "train.steps=2000" in caught.value.remedy


def test_a_member_of_a_value_cannot_be_set() -> None:
    assert refused("batch.words.more=5") == "batch.words.more cannot be set: words is a value, not a group."


def unreadable(path: Path) -> LockstepError:
    with pytest.raises(LockstepError) as caught:
        load(path, [])
    assert caught.value.code == 2
    assert str(path) in caught.value.message
    return caught.value


@pytest.mark.parametrize("text", ["the house\t%s das Haus\n", "%d files\t%d Dateien\n", "the house\n"])
def test_text_in_place_of_a_config_is_led_to_init(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text(text)
    with pytest.raises(LockstepError) as caught:
        load(path, [])
    assert caught.value.remedy == f"If it is text to train on: `lockstep init {path}` writes a config for it."


def test_a_misspelt_group_on_the_command_line_is_not_blamed_on_the_file() -> None:
    assert refused("trian.steps=3") == "unknown setting trian (did you mean train?)."


def test_broken_yaml_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("data:\n  train: [a\nbatch:\n  words: 3\n")
    assert ", line 3: " in unreadable(path).message
    path.write_text("data:\n\ttrain: a\n")
    assert ", line 2: " in unreadable(path).message


def test_a_missing_file_is_refused_with_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text("")
    error = unreadable(tmp_path / "smal.yaml")
    assert "does not exist" in error.message
    assert "small.yaml" in error.remedy
    assert unreadable(tmp_path / "nowhere" / "c.yaml").remedy == "Check the path."


def test_a_folder_is_refused_as_a_config(tmp_path: Path) -> None:
    assert "is a folder" in unreadable(tmp_path).message


def test_a_path_through_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("")
    unreadable(tmp_path / "c.yaml" / "d.yaml")


def test_a_file_in_another_encoding_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes("# gr\u00fcn".encode("latin-1"))
    assert "not UTF-8" in unreadable(path).message


@pytest.mark.parametrize("text", ["- a\n- b\n", "just words\n", "5\n"])
def test_a_file_without_settings_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    assert "has no settings" in unreadable(path).message


def test_an_empty_file_can_be_completed_by_overrides(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("# nothing yet\n")
    assert load(path, ["data.grammar.train=5", "batch.sentences=2"]).batch.sentences == 2


def test_a_config_survives_writing_and_reading() -> None:
    full = config("data.corpus=a/b", "train.clip=0.1", "optimizer.betas=[0.8, 0.9]", "data.grammar.seed=3")
    assert RunConfig.model_validate(yaml.safe_load(full.to_yaml())) == full


def test_a_resumed_run_must_keep_fixed_settings_and_may_change_free_ones() -> None:
    new = config("model.width=256", "batch.words=10", "train.seed=2", "train.steps=5", "search.beam=2", "data.corpus=x")
    fixed, free = differences(config(), new)
    assert fixed == {"batch.words": (1000, 10), "model.width": (512, 256), "train.seed": (1, 2)}
    assert free == {"data.corpus": (None, "x"), "search.beam": (4, 2), "train.steps": (100_000, 5)}
    assert differences(config(), config()) == ({}, {})


def test_a_user_s_task_has_its_own_settings() -> None:
    """It does not need any text."""
    tree = {"task": "mine:make", "data": {}, "batch": {"words": 10}, "own": {"kernel": 3, "head": {"width": 8}}}
    old, new = config(tree=tree), config("own.kernel=5", "own.head.width=9", "own.more=1", tree=tree)
    assert new.own == {"kernel": 5, "head": {"width": 9}, "more": 1}
    fixed, free = differences(old, new)
    assert fixed == {"own.kernel": (3, 5), "own.head.width": (8, 9), "own.more": (None, 1)}
    assert free == {}
    assert refused("own.kernel=5") == "test.yaml: own.kernel is only for your own task, and task is auto."


def test_patience_without_evaluations_is_refused() -> None:
    assert config("train.evaluate_every=null").train.evaluate_every is None
    assert "makes none" in refused("train.evaluate_every=null", "train.patience=3")


def test_adding_or_removing_the_grammar_is_a_fixed_difference() -> None:
    files = config("data.grammar=null", "data.train=[a]", "data.validation=[b]")
    fixed, _ = differences(files, config())
    assert "data.grammar.train" in fixed


@pytest.mark.parametrize(
    ("key", "fixed"),
    [
        ("batch.words", True),
        ("batch.sentences", True),
        ("batch.per", True),
        ("batch.bucket", True),
        ("batch.balance", False),
        ("batch.micro_words", False),
        ("data.grammar.train", True),
        ("data.languages", True),
        ("data.max_pieces", True),
        ("data.vocabulary.coverage", True),
        ("data.folder", False),
        ("model.encoder_layers", True),
        ("model.norm", True),
        ("model.dropout", False),
        ("train.seed", True),
        ("train.steps", False),
        ("schedule.peak", False),
    ],
)
def test_settings_on_which_the_state_depends_are_fixed(key: str, fixed: bool) -> None:
    (setting,) = describe(key)
    assert setting["fixed"] is fixed


def test_a_setting_is_described_by_type_default_and_meaning() -> None:
    assert describe("batch.words") == [
        {
            "key": "batch.words",
            "type": "whole number | null",
            "default": None,
            "text": "Target words per step, all workers together. Pieces and end-of-sentence tokens count as words, "
            "padding does not. If no size is named, a step has 4096 words.",
            "fixed": True,
        }
    ]
    assert describe("model.norm")[0]["type"] == "pre | post"
    assert describe("data.folder")[0]["default"] == "."
    assert describe("data.train")[0]["type"] == "list of text"


def test_a_group_is_described_by_its_members() -> None:
    keys = [setting["key"] for setting in describe("data.vocabulary")]
    assert keys == [f"data.vocabulary.{name}" for name in ("size", "kind", "coverage", "sample", "model")]
    assert len(describe()) == len({setting["key"] for setting in describe()}) > 50


def test_an_unknown_setting_cannot_be_described() -> None:
    with pytest.raises(LockstepError, match=r"There is no setting batch\.wrds\. Did you mean batch\.words\?"):
        describe("batch.wrds")


def test_every_setting_has_an_explanation() -> None:
    assert [name for name, info in list_fields() if not (info.description or "").strip()] == []


def leaves(schema: dict[str, Any], node: dict[str, Any], name: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the properties of a JSON schema that are not groups, with their dotted names."""
    for key, value in node["properties"].items():
        parts = (value, *value.get("anyOf", ()), *value.get("oneOf", ()))
        groups = [part["$ref"] for part in parts if "$ref" in part]
        for group in groups:
            yield from leaves(schema, schema["$defs"][group.rsplit("/", 1)[-1]], f"{name}{key}.")
        if not groups:
            yield name + key, value


def test_the_json_schema_describes_every_setting() -> None:
    schema = RunConfig.model_json_schema()
    described = dict(leaves(schema, schema))
    assert sorted(described) == sorted(setting["key"] for setting in describe())
    assert [name for name, value in described.items() if not value.get("description")] == []


def test_a_section_without_a_name_is_valid_for_one_class_of_the_json_schema() -> None:
    """`oneOf` refuses what is valid for several classes, so only the default class may have no name."""
    schema = RunConfig.model_json_schema()
    for group in ("model", "strategy"):
        classes = [part["$ref"].rsplit("/", 1)[-1] for part in schema["properties"][group]["oneOf"]]
        unnamed = [name for name in classes if "name" not in schema["$defs"][name].get("required", [])]
        assert unnamed == classes[:1]


def test_a_model_is_chosen_by_its_name_alone() -> None:
    assert config().model == TransformerSettings()
    assert config("model.name=lstm").model == LstmSettings()
    assert build(yaml.safe_load(config("model.name=lstm").to_yaml()), "again").model == LstmSettings()


def test_overriding_the_model_drops_the_model_settings_of_the_file() -> None:
    """The order of overrides does not matter: all others are for the model that is named."""
    multi30k = next(path for path in CONFIGS if path.name == "multi30k.yaml")
    assert load(multi30k, ["model.width=64", "model.name=lstm"]).model == LstmSettings(width=64)
    model = load(multi30k, ["model.name=transformer"]).model
    assert model == load(multi30k, []).model
    assert isinstance(model, TransformerSettings)
    assert model.width != TransformerSettings().width


def test_the_settings_of_one_model_are_refused_for_another() -> None:
    assert refused("model.name=lstm", "model.heads=4") == "model.heads is not for model.name=lstm; transformer has it."
    assert "unknown setting model.widht (did you mean model.width?)" in refused("model.name=lstm", "model.widht=4")
    assert "model.decoder_layers=1 is wrong" in refused("model.name=lstm", "model.decoder_layers=1")


@pytest.mark.parametrize(
    ("name", "setting", "sentence"),
    [
        ("server", "gradients=bf16", "strategy.gradients is not for strategy.name=server; allreduce, sharded, local "),
        ("allreduce", "mode=async", "strategy.mode is not for strategy.name=allreduce; server has it."),
        ("allreduce", "staleness=3", "strategy.staleness is not for strategy.name=allreduce; server has it."),
        ("allreduce", "every=5", "strategy.every is not for strategy.name=allreduce; local has it."),
        ("auto", "every=5", "strategy.every is not for strategy.name=auto; local has it."),
        ("replicas", "gradients=powersgd", "strategy.gradients is not for strategy.name=replicas; allreduce, sharded"),
        ("local", "keep_gathered=true", "strategy.keep_gathered is not for strategy.name=local; sharded has it."),
        ("resilient", "parameters=device", "strategy.parameters is not for strategy.name=resilient; server has it."),
        (
            "sharded",
            "bucket_mb=5",
            "strategy.bucket_mb is not for strategy.name=sharded; allreduce, server, local and ",
        ),
        ("single", "bucket_mb=5", "strategy.bucket_mb is not for strategy.name=single; allreduce, server, local and "),
        ("sharded", "powersgd_rank=4", "strategy.powersgd_rank is not for strategy.name=sharded; allreduce has it."),
        (
            "resilient",
            "gradients=powersgd",
            "strategy.gradients=powersgd is not for strategy.name=resilient; allreduce ",
        ),
        (
            "local",
            "gradients=powersgd",
            "strategy.gradients=powersgd is not for strategy.name=local; allreduce has it.",
        ),
        ("auto", "servers=1", "strategy.servers is not for strategy.name=auto; server has it."),
    ],
)
def test_a_setting_of_another_strategy_is_refused_with_those_that_have_it(
    name: str, setting: str, sentence: str
) -> None:
    assert refused(f"strategy.name={name}", f"strategy.{setting}").startswith(sentence)
    key, _, value = setting.partition("=")
    tree = MINIMAL | {"strategy": {"name": name, key: yaml.safe_load(value)}}
    assert refused(tree=tree).startswith(f"test.yaml: {sentence}")


def test_settings_of_several_models_are_described_once_with_all_defaults() -> None:
    (name,), (layers,), (width,) = (describe(f"model.{key}") for key in ("name", "encoder_layers", "width"))
    assert (name["type"], name["default"]) == ("transformer | lstm | resnet", "transformer")
    assert layers["default"] == "6; lstm: 2"
    assert width["default"] == 512


def test_a_run_folder_is_not_a_config_file(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.choices.write_text("{}")
    with pytest.raises(LockstepError, match="is a folder, not a config file") as caught:
        load(tmp_path, [])
    assert caught.value.remedy == f"`lockstep train --run {tmp_path}` continues this run."


def test_no_number_takes_a_boolean() -> None:
    """Every setting that is a number, alone or in a list, and is not also true or false."""
    for name, info in list_fields():
        kind = str(info.annotation)
        if info.annotation in (int, float) or re.fullmatch(r"(int|float) \| None", kind):
            group, _, setting = name.rpartition(".")
            variants = VARIANTS.get(group, {}).items()
            owner = next((f"{group}.name={one}" for one, cls in variants if setting in cls.model_fields), "")
            message = refused(*filter(None, [owner]), f"{name}=true")
            assert f"{name}=true is wrong: it must be a" in message, message


def test_a_warmup_that_does_not_end_is_noticed() -> None:
    notice = config("schedule.warmup=7200", "train.steps=6").warmup_notice
    assert notice is not None
    assert "schedule.warmup=7200" in notice
    assert "train.steps=6" in notice
    assert config("schedule.warmup=6", "train.steps=6").warmup_notice is None


@pytest.mark.filterwarnings("error")
def test_two_named_files_are_written_without_warnings() -> None:
    config = build({"data": {"train": [["english.txt", "german.txt"], "news"]}}, "test")
    copied = config.model_copy(update={"data": config.data.model_copy(update={"processes": 1})})
    for one in (config, copied, build(copied.model_dump(mode="json"), "test")):
        assert one.model_dump(mode="json")["data"]["train"] == [["english.txt", "german.txt"], "news"]
        assert one.data.train == [("english.txt", "german.txt"), "news"]
        assert "english.txt" in one.model_dump_json()


def test_a_language_is_not_translated_into_itself() -> None:
    with pytest.raises(LockstepError, match="names en twice"):
        build({"data": {"train": ["a"], "languages": ["en", "en"]}}, "test")
