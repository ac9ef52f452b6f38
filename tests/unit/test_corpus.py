import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lockstep.data.corpus.binary_corpus import Corpus, EncodedSentences, LanguageSide, SetWriter, id_type, seal
from lockstep.errors import LockstepError

FACTS: dict[str, Any] = {"settings": {}, "files": [], "grammar_version": None}


def encoded(text: str, *sentences: list[int]) -> EncodedSentences:
    ids = np.array(sum(sentences, []), np.int32)
    lengths = np.array([len(sentence) for sentence in sentences], np.int32)
    return EncodedSentences(ids, lengths, len(text.encode()), len(text.split()), text.encode())


def make(folder: Path, size: int = 300) -> Corpus:
    folder.mkdir()
    (folder / "vocabulary.model").write_bytes(b"model")
    sets = {}
    for name in ("train", "validation"):
        with SetWriter(folder, name, size) as writer:
            writer.append(encoded("a\nbb\n", [5, 6, 3], [size - 1, 3]), encoded("A\nB\u2028B\n", [7, 3], [3]))
            writer.append(encoded(""), encoded(""))
            writer.append(encoded(" c\n", [8, 3]), encoded("C\n", [9, 10, 11, 3]))
        sets[name] = writer.count()
    seal(folder, {**FACTS, "id_type": id_type(size), "sets": sets})
    return Corpus.open(folder)


def error(folder: Path) -> LockstepError:
    with pytest.raises(LockstepError) as caught:
        Corpus.open(folder)
    assert "lockstep prepare" in caught.value.remedy
    return caught.value


@pytest.mark.parametrize(("size", "dtype"), [(65535, np.uint16), (65536, np.uint32), (100_000, np.uint32)])
def test_appended_sentences_are_read_back(tmp_path: Path, size: int, dtype: type) -> None:
    train = make(tmp_path / "c", size).set("train")
    assert len(train) == 3
    assert train.source.ids.dtype == dtype
    assert train.source.ids.tolist() == [5, 6, 3, size - 1, 3, 8, 3]
    assert train.target.lengths.tolist() == [2, 1, 4]
    assert train.target.lengths.dtype == np.int32
    ids, lengths = train.target.gather(np.array([2, 0]))
    assert ids.dtype == np.int64
    assert (ids.tolist(), lengths.tolist()) == ([9, 10, 11, 3, 7, 3], [4, 2])


def test_the_index_counts_lines_words_and_bytes(tmp_path: Path) -> None:
    facts = make(tmp_path / "c").facts["sets"]["train"]
    assert facts == {
        "lines": 3,
        "source_words": 7,
        "target_words": 7,
        "source_plain_words": 3,
        "target_plain_words": 4,
        "source_longest": 3,
        "target_longest": 4,
        "source_lengths": [3],
        "target_lengths": [3],
        "length_step": 5,
        "text_bytes": len("a\nbb\n c\nA\nB\u2028B\nC\n".encode()),
    }


def test_the_last_bin_of_the_length_histogram_is_open(tmp_path: Path) -> None:
    with SetWriter(tmp_path, "train", 300) as writer:
        writer.append(encoded("", *([4] * n for n in (1, 5, 6, 11, 499, 500, 9000))), encoded("", *[[4]] * 7))
    counts = writer.count()["source_lengths"]
    assert (counts[:3], counts[-1], len(counts), sum(counts)) == ([2, 1, 1], 3, 100, 7)
    assert writer.count()["target_lengths"] == [7]


def test_texts_are_kept_for_evaluation_sets_only(tmp_path: Path) -> None:
    corpus = make(tmp_path / "c")
    assert corpus.texts("validation") == (["a", "bb", " c"], ["A", "B\u2028B", "C"])
    assert not (tmp_path / "c" / "train.source.txt").exists()
    assert corpus.has("validation")
    assert not corpus.has("test")


def test_the_digest_depends_on_the_content(tmp_path: Path) -> None:
    first, second, third = make(tmp_path / "a"), make(tmp_path / "b"), make(tmp_path / "c", 301)
    assert first.digest == second.digest != third.digest


lengths_and_indices = st.lists(st.integers(1, 6), min_size=1, max_size=20).flatmap(
    lambda lengths: st.tuples(
        st.just(lengths), hnp.arrays(np.int64, st.integers(0, 30), elements=st.integers(0, len(lengths) - 1))
    )
)


@settings(deadline=None)
@given(lengths_and_indices)
def test_gather_concatenates_the_sentences(case: tuple[list[int], np.ndarray]) -> None:
    lengths, indices = case
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ids = np.arange(offsets[-1]).astype(np.uint16)
    expected = [word for index in indices for word in ids[offsets[index] : offsets[index + 1]].tolist()]
    gathered, gathered_lengths = LanguageSide(ids, offsets).gather(indices)
    assert gathered.tolist() == expected
    assert gathered_lengths.tolist() == [lengths[index] for index in indices]


def test_a_missing_corpus_is_named(tmp_path: Path) -> None:
    assert error(tmp_path / "nowhere").message == f"There is no corpus in {tmp_path / 'nowhere'}."


@pytest.mark.parametrize("name", ["vocabulary.model", "train.source.ids", "validation.target.txt"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    make(tmp_path / "c")
    (tmp_path / "c" / name).unlink()
    assert f"is damaged: {name} is missing" in error(tmp_path / "c").message


def test_a_file_of_another_size_is_named(tmp_path: Path) -> None:
    make(tmp_path / "c")
    (tmp_path / "c" / "train.target.offsets").write_bytes(b"short")
    assert "train.target.offsets has 5 bytes instead of 32" in error(tmp_path / "c").message


def test_a_corpus_of_another_format_is_refused(tmp_path: Path) -> None:
    make(tmp_path / "c")
    index = tmp_path / "c" / "corpus.json"
    index.write_text(json.dumps(json.loads(index.read_text()) | {"format": 99}))
    assert "has format 99" in error(tmp_path / "c").message


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"format": 2}', '{"format": 2, "content": {}}', "\x00"])
def test_an_invalid_index_is_named(tmp_path: Path, content: str) -> None:
    make(tmp_path / "c")
    (tmp_path / "c" / "corpus.json").write_text(content)
    assert "corpus.json cannot be understood" in error(tmp_path / "c").message


def test_text_cut_to_a_fixed_length_has_the_same_words_in_equal_sequences(tmp_path: Path) -> None:
    train = make(tmp_path / "c").set("train")  # 7 source and 7 target words
    equal = train.cut(3)
    assert len(equal) == 2
    for full, cut in ((train.source, equal.source), (train.target, equal.target)):
        ids, lengths = cut.gather(np.array([0, 1]))
        assert ids.tolist() == full.ids[:6].tolist()
        assert lengths.tolist() == [3, 3]
    with pytest.raises(LockstepError, match="too short for sequences of 8 words"):
        train.cut(8)
