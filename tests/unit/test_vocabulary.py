import io
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.data.corpus.vocabulary import ALL_CORES, Vocabulary, choose_sample, train, train_to_fit
from lockstep.data.data_settings import VocabularySettings
from lockstep.errors import LockstepError

SYLLABLES = ["ba", "der", "ein", "go", "hund", "käse", "lauf", "mo", "straße", "the", "über", "wal"]


def sentences(count: int = 400) -> list[str]:
    draw = random.Random(1)
    return [
        " ".join("".join(draw.choices(SYLLABLES, k=draw.randint(1, 3))) for _ in range(6)) + "." for _ in range(count)
    ]


MODEL = train(VocabularySettings(size=340), sentences())
VOCABULARY = Vocabulary(MODEL)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_training_twice_gives_the_same_bytes(kind: str) -> None:
    wanted = VocabularySettings.model_validate({"size": 340, "kind": kind})
    assert train(wanted, sentences()) == train(wanted, iter(sentences()))


def test_special_tokens_and_size_are_fixed() -> None:
    assert (VOCABULARY.pad, VOCABULARY.bos, VOCABULARY.eos, VOCABULARY.size) == (0, 2, 3, 340)
    assert VOCABULARY.decode([[0, 2, 3], []]) == ["", ""]
    assert VOCABULARY.decode([]) == []
    assert VOCABULARY.encode([]) == []


def test_encoding_adds_no_special_tokens() -> None:
    [ids] = VOCABULARY.encode(["derhund einkäse"])
    assert 0 < len(ids) < len("derhund einkäse")
    assert min(ids) > 3


@settings(deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="▁"), max_size=30), max_size=4))
def test_decoding_gives_back_the_text_with_single_spaces(texts: list[str]) -> None:
    assert VOCABULARY.decode(VOCABULARY.encode(texts)) == [" ".join(text.split()) for text in texts]


@pytest.mark.parametrize("text", ["漢字 😀 ½ … ﬁ e\u0301 é", "<s> </s> <unk> <0x41> ⁇", "12 345,6", "a\x00b"])
def test_characters_unseen_in_training_survive_unchanged(text: str) -> None:
    assert VOCABULARY.decode(VOCABULARY.encode([text])) == [text]


def test_threads_do_not_change_the_ids() -> None:
    assert VOCABULARY.encode(sentences(), ALL_CORES) == VOCABULARY.encode(sentences(), 1)


def test_flat_encoding_ends_every_sentence_with_eos() -> None:
    ids, lengths = VOCABULARY.encode_flat(sentences(3))
    expected = [[*sentence, VOCABULARY.eos] for sentence in VOCABULARY.encode(sentences(3))]
    assert ids.tolist() == sum(expected, [])
    assert lengths.tolist() == list(map(len, expected))
    assert [array.size for array in VOCABULARY.encode_flat([])] == [0, 0]


def test_a_loaded_vocabulary_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "vocabulary.model").write_bytes(MODEL)
    loaded = Vocabulary.load(tmp_path / "vocabulary.model")
    assert loaded.digest == VOCABULARY.digest
    assert loaded.encode(sentences(3)) == VOCABULARY.encode(sentences(3))


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_vocabulary_that_is_too_large_names_the_largest_possible(kind: str) -> None:
    with pytest.raises(LockstepError, match="too small for a vocabulary of 9000 pieces") as caught:
        train(VocabularySettings.model_validate({"size": 9000, "kind": kind}), sentences(50))
    size = int(caught.value.remedy.split(" or less")[0].split()[-1])
    model = train(VocabularySettings.model_validate({"size": size, "kind": kind}), sentences(50))
    assert Vocabulary(model).size == size


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize("count", [1, 3, 50])
def test_text_with_too_few_pieces_gives_as_many_as_it_has(kind: str, count: int) -> None:
    wanted = VocabularySettings.model_validate({"size": 9000, "kind": kind})
    models = [train_to_fit(wanted, lambda: sentences(count)) for _ in range(2)]
    assert models[0] == models[1]
    assert 260 < Vocabulary(models[0]).size < 9000
    enough = wanted.model_copy(update={"size": 340})
    assert train_to_fit(enough, sentences) == train(enough, sentences())


def test_a_vocabulary_that_is_too_small_names_the_smallest_possible() -> None:
    with pytest.raises(LockstepError, match="no room for every character") as caught:
        train(VocabularySettings(size=262), sentences(50))
    size = int(caught.value.remedy.split(" or more")[0].split()[-1])
    assert Vocabulary(train(VocabularySettings(size=size), sentences(50))).size == size


def test_errors_of_the_text_stream_are_raised() -> None:
    def broken() -> Iterator[str]:
        yield "one"
        raise LockstepError("The file broke.")

    with pytest.raises(LockstepError, match=r"The file broke\."):
        train(VocabularySettings(size=340), broken())


def test_training_on_nothing_is_an_error() -> None:
    with pytest.raises(LockstepError, match="could not train the vocabulary"):
        train(VocabularySettings(size=340), [""])


@pytest.mark.parametrize("content", [b"", b"garbage", MODEL[:-1000]])
def test_a_file_that_is_no_vocabulary_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "vocabulary.model"
    path.write_bytes(content)
    with pytest.raises(LockstepError, match=r"vocabulary\.model is not a SentencePiece model"):
        Vocabulary.load(path)


def test_a_vocabulary_with_other_special_tokens_is_refused() -> None:
    from sentencepiece import SentencePieceTrainer

    model = io.BytesIO()
    SentencePieceTrainer.train(sentence_iterator=iter(sentences()), model_writer=model, vocab_size=60, minloglevel=2)
    with pytest.raises(LockstepError, match="other special tokens"):
        Vocabulary(model.getvalue())


def test_a_missing_vocabulary_is_named(tmp_path: Path) -> None:
    with pytest.raises(LockstepError, match="nowhere cannot be read"):
        Vocabulary.load(tmp_path / "nowhere")


@settings(deadline=None)
@given(st.integers(1, 200), st.integers(1, 500))
def test_a_sample_has_the_wanted_size_and_even_gaps(count: int, wanted: int) -> None:
    chosen = choose_sample(count, wanted).tolist()
    assert 0 <= chosen[0] <= chosen[-1] < count
    assert len(chosen) == min(count, max(1, wanted // 2))
    gaps = {later - earlier for earlier, later in zip(chosen, chosen[1:], strict=False)}
    assert not gaps or max(gaps) - min(gaps) <= 1
