"""Validation and test text that is split off the training text, and training text without held-out sentences."""

import random
from pathlib import Path
from typing import Any

import pytest

from lockstep.config import build
from lockstep.data.corpus import prepare as prepare_module
from lockstep.data.corpus.binary_corpus import Corpus
from lockstep.data.corpus.prepare import prepare
from lockstep.data.data_settings import DataSettings
from lockstep.errors import LockstepError
from lockstep.train.resume import keep_behaviour

Pair = tuple[str, str]


def make_pairs(count: int, seed: int = 1) -> list[Pair]:
    """Different sentences of a few made-up words, with a translation each."""
    draw, chosen = random.Random(seed), dict[str, str]()
    while len(chosen) < count:
        numbers = draw.choices(range(30), k=draw.randint(2, 4))
        words = [f"{n:05b}".translate({48: "a", 49: "b"}) for n in numbers]
        chosen[" ".join(words)] = " ".join(word[::-1] + "b" for word in words)
    return list(chosen.items())


def prepare_pairs(folder: Path, pairs: list[Pair], name: str = "c", **more: Any) -> Corpus:
    folder.mkdir(exist_ok=True)
    for side, language in enumerate(("en", "de")):
        (folder / f"train.{language}").write_text("".join(f"{pair[side]}\n" for pair in pairs))
    values = {"folder": folder, "train": ["train"], "corpus": folder / name, "vocabulary": {"size": 266}, **more}
    return prepare(DataSettings.model_validate(values))


def read_pairs(corpus: Corpus, name: str) -> list[Pair]:
    return list(zip(*corpus.texts(name), strict=True))


def read_training_sources(corpus: Corpus) -> list[str]:
    source = corpus.set("train").source
    return corpus.vocabulary.decode(
        [source.ids[a : b - 1].tolist() for a, b in zip(source.offsets, source.offsets[1:], strict=False)]
    )


def test_without_validation_text_two_sets_are_split_off(tmp_path: Path) -> None:
    pairs = make_pairs(400)
    corpus = prepare_pairs(tmp_path, pairs, split={"share": 0.1})
    sets = {name: [pair[0] for pair in read_pairs(corpus, name)] for name in ("validation", "test")}
    sets["train"] = read_training_sources(corpus)
    assert sorted(sum(sets.values(), [])) == sorted(source for source, _ in pairs)
    assert all(20 <= len(sets[name]) <= 60 for name in ("validation", "test"))
    assert set(read_pairs(corpus, "test")) <= set(pairs)
    facts = corpus.facts["sets"]
    assert facts["train"]["read"] == 400 == sum(one["lines"] for one in facts.values())


def test_more_text_only_adds_sentences_to_the_sets(tmp_path: Path) -> None:
    pairs = make_pairs(500)
    few, many = (prepare_pairs(tmp_path / str(count), pairs[:count], split={"share": 0.1}) for count in (200, 500))
    for name in ("validation", "test"):
        assert set(read_pairs(few, name)) < set(read_pairs(many, name))
    assert set(read_pairs(many, "validation")).isdisjoint(read_pairs(many, "test"))


def test_a_full_set_never_gives_a_sentence_to_the_other(tmp_path: Path) -> None:
    pairs = make_pairs(500)
    sets = {"validation": set[Pair](), "test": set[Pair]()}
    for count in (30, 100, 250, 500):
        corpus = prepare_pairs(tmp_path / str(count), pairs[:count], split={"share": 0.2, "most": 7})
        for name, earlier in sets.items():
            now = read_pairs(corpus, name)
            assert 1 <= len(now) <= 7
            earlier.update(now)
    assert sets["validation"].isdisjoint(sets["test"])


def test_all_pairs_of_a_source_go_the_same_way_and_it_is_held_out_once(tmp_path: Path) -> None:
    pairs = [(source, f"{target} {again}") for again in ("a", "b") for source, target in make_pairs(200)]
    corpus = prepare_pairs(tmp_path, pairs, split={"share": 0.1})
    held_out = [source for name in ("validation", "test") for source, _ in read_pairs(corpus, name)]
    assert len(held_out) == len(set(held_out))
    assert set(held_out).isdisjoint(read_training_sources(corpus))
    assert corpus.facts["sets"]["train"]["removed"] == {"held_out": len(held_out)}


def test_only_validation_text_is_split_off_when_test_text_is_named(tmp_path: Path) -> None:
    pairs = make_pairs(200)
    for side, language in enumerate(("en", "de")):
        (tmp_path / f"test.{language}").write_text("".join(f"{pair[side]}\n" for pair in pairs[:10]))
    corpus = prepare_pairs(tmp_path, pairs, test=["test"], split={"share": 0.1})
    assert read_pairs(corpus, "test") == pairs[:10]
    assert set(read_pairs(corpus, "validation")).isdisjoint(pairs[:10])
    assert corpus.facts["sets"]["train"]["removed"] == {"held_out": 10}


def test_training_pairs_with_a_held_out_source_or_target_are_removed(tmp_path: Path) -> None:
    pairs = make_pairs(60)
    (tmp_path / "val.en").write_text(f"{pairs[0][0]}\naba&nbsp;ba\n")
    (tmp_path / "val.de").write_text(f"ba ba ba ba ba\n{pairs[1][1]}\n")
    added = [("aba  ba", "ab")]
    corpus = prepare_pairs(tmp_path, pairs + added, validation=["val"])
    assert corpus.facts["sets"]["train"]["removed"] == {"held_out": 3}
    assert read_training_sources(corpus) == [source for source, _ in pairs[2:]]
    assert corpus.texts("validation")[0][1] == "aba&nbsp;ba"
    assert not corpus.has("test")


def test_the_split_does_not_depend_on_shards_and_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = make_pairs(300)
    single = prepare_pairs(tmp_path, pairs, processes=1)
    monkeypatch.setattr(prepare_module, "SHARD_LINES", 37)
    for processes in (1, 2):
        cut = prepare_pairs(tmp_path, pairs, name=f"c{processes}", processes=processes)
        assert cut.digest == single.digest
        assert cut.facts["sets"] == single.facts["sets"]


def test_held_out_sets_have_only_clean_pairs(tmp_path: Path) -> None:
    pairs = [(source, target if n % 2 else "") for n, (source, target) in enumerate(make_pairs(200))]
    corpus = prepare_pairs(tmp_path, pairs, split={"share": 0.3}, max_pieces=20)
    for name in ("validation", "test"):
        assert all(target for _, target in read_pairs(corpus, name))
        assert corpus.facts["sets"][name]["target_longest"] <= 21
    total = sum(one["lines"] + sum(one["removed"].values()) for one in corpus.facts["sets"].values())
    assert total == 200


@pytest.mark.parametrize("count", [3, 4, 10, 50])
def test_small_text_still_gives_validation_and_test_pairs(tmp_path: Path, count: int) -> None:
    corpus = prepare_pairs(tmp_path, make_pairs(count))
    assert all(corpus.facts["sets"][name]["lines"] >= 1 for name in ("train", "validation", "test"))


def test_too_little_text_to_split_is_said(tmp_path: Path) -> None:
    with pytest.raises(LockstepError, match="only 2 different source sentences after cleaning"):
        prepare_pairs(tmp_path, make_pairs(2) * 3)


def test_the_cleaning_of_0_1_0_splits_nothing_and_keeps_held_out_sentences(tmp_path: Path) -> None:
    pairs = make_pairs(60)
    (tmp_path / "val.en").write_text(f"{pairs[0][0]}\n")
    (tmp_path / "val.de").write_text(f"{pairs[0][1]}\n")
    corpus = prepare_pairs(tmp_path, pairs, validation=["val"], cleaning=1)
    assert corpus.facts["sets"]["train"]["lines"] == 60
    with pytest.raises(ValueError, match=r"data\.validation"):
        DataSettings(train=["train"], cleaning=1).check_input()
    DataSettings(train=["train"]).check_input()


def test_settings_of_0_1_0_name_the_same_corpus_and_differ_in_cleaning_only(tmp_path: Path) -> None:
    pairs = make_pairs(60)
    corpus = prepare_pairs(tmp_path, pairs, validation=["train"], cleaning=1)
    new = {"cleaning", "split", "bad_lines", "max_characters", "check_languages"}
    assert new.isdisjoint(corpus.facts["settings"])
    with pytest.raises(LockstepError, match=r"other settings or text: data\.cleaning 1 -> 2\.") as caught:
        prepare_pairs(tmp_path, pairs, validation=["train"])
    assert "data.cleaning=1" in caught.value.remedy
    assert prepare_pairs(tmp_path, pairs, validation=["train"], cleaning=1).digest == corpus.digest


def test_a_config_without_cleaning_takes_that_of_the_run_it_continues() -> None:
    config = build({"data": {"train": ["a"]}, "batch": {"words": 100}}, "a config")
    explicit = build({"data": {"train": ["a"], "cleaning": 2}, "batch": {"words": 100}}, "a config")
    earlier = b"data: {train: [a]}"
    assert keep_behaviour(config, earlier).data.cleaning == 1
    assert keep_behaviour(explicit, earlier).data.cleaning == 2
    assert keep_behaviour(config, b"data: {cleaning: 2}").data.cleaning == 2
    assert keep_behaviour(config, b"data: {train: [a]}\nsearch: {beam: 4}").search.normalise == "gnmt"
    assert keep_behaviour(config, b"data: {train: [a]}\nsearch: {normalise: length}").search.normalise == "length"
    assert keep_behaviour(config, b"not: [yaml").data.cleaning == keep_behaviour(config, None).data.cleaning == 2
