"""The joint SentencePiece vocabulary: training it, encoding text to piece ids, decoding ids to text.

Decoding returns the text that was encoded, except that every run of whitespace becomes one space. SentencePiece does not
normalize: references are compared with the output of the model, and a normalized "½" or "…" would count as an error.
`encode` normalizes input as preparation does, unless the model was trained with the cleaning of Lockstep 0.1.0.
Characters without a piece are encoded as bytes, so no text is unknown.
"""

import hashlib
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from lockstep.data.data_settings import VocabularySettings
from lockstep.data.text.normalize import normalize_text
from lockstep.errors import LockstepError

PAD, UNK, BOS, EOS = range(4)
TRAINER_THREADS = 16
"""A constant, because the trained model depends on it: the trainer sums floats per thread."""
ALL_CORES = -1
_TOO_HIGH = re.compile(r"too high .*<= (\d+)")


class TooFewPieces(LockstepError):
    """The text has fewer pieces than wanted, at most `largest`."""

    def __init__(self, wanted: int, largest: int) -> None:
        super().__init__(
            f"The training text is too small for a vocabulary of {wanted} pieces.",
            f"Set data.vocabulary.size to {largest} or less.",
            code=2,
        )
        self.largest = largest


def train(settings: VocabularySettings, sentences: Iterable[str]) -> bytes:
    """Trains a SentencePiece model. The same sentences in the same order give the same bytes."""
    failures: list[BaseException] = []
    try:
        model = _run_trainer(settings, _guard(sentences, failures))
    except RuntimeError as error:
        raise (failures[0] if failures else _training_error(settings, str(error))) from None
    if failures:
        raise failures[0]
    return model


def train_to_fit(settings: VocabularySettings, read_sentences: Callable[[], Iterable[str]]) -> bytes:
    """Trains a SentencePiece model. If the text has fewer pieces than `settings.size`, it has as many as there are."""
    while True:
        try:
            return train(settings, read_sentences())
        except TooFewPieces as error:
            settings = settings.model_copy(update={"size": min(error.largest, settings.size - 1)})


def find_largest_size(settings: VocabularySettings, sentences: Iterable[str]) -> int | None:
    """Returns the most pieces that the trainer finds in these sentences; None if it finds `settings.size`."""
    try:
        _run_trainer(settings, iter(sentences))
    except RuntimeError as error:
        largest = _TOO_HIGH.search(str(error))
        return int(largest[1]) if largest else None
    return None


def count_pieces(settings: VocabularySettings, sample: Sequence[str], sentences: Sequence[str]) -> float | None:
    """Returns the mean number of pieces of these sentences, with a vocabulary trained on the sample; None if none can be
    trained. It uses `bpe`, which takes a tenth of the time of `unigram` and cuts text into nearly as many pieces."""
    try:
        pieces = Vocabulary(_run_trainer(settings.model_copy(update={"kind": "bpe"}), iter(sample)))
    except RuntimeError:  # the text is too small for this vocabulary size
        return None
    return float(np.mean([len(ids) for ids in pieces.encode(sentences, threads=ALL_CORES)]))


def _run_trainer(settings: VocabularySettings, sentences: Iterator[str]) -> bytes:
    from sentencepiece import SentencePieceTrainer

    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=sentences,
        model_writer=model,
        model_type=settings.kind,
        vocab_size=settings.size,
        character_coverage=settings.coverage,
        normalization_rule_name="identity",
        byte_fallback=True,
        split_digits=True,
        max_sentence_length=1 << 16,
        pad_id=PAD,
        unk_id=UNK,
        bos_id=BOS,
        eos_id=EOS,
        num_threads=TRAINER_THREADS,
        minloglevel=2,
    )
    return model.getvalue()


def choose_sample(count: int, sentences: int) -> npt.NDArray[np.int64]:
    """Returns the indices of at most `sentences // 2` of `count` pairs, at even distances."""
    wanted = min(count, max(1, sentences // 2))
    return -(-np.arange(1, wanted + 1) * count // wanted) - 1


class Vocabulary:
    """Encodes text to piece ids and decodes ids to text. `model` is the bytes of a model that `train` returned. If it
    `normalizes`, `encode` normalizes text first."""

    pad, bos, eos = PAD, BOS, EOS

    def __init__(self, model: bytes, name: str = "the vocabulary", normalizes: bool = False) -> None:
        from sentencepiece import SentencePieceProcessor

        remedy = "Use the vocabulary.model of a corpus made by `lockstep prepare`."
        try:
            if not model:
                raise RuntimeError("it is empty")
            self._processor = SentencePieceProcessor(model_proto=model)
        except RuntimeError:
            raise LockstepError(f"{name} is not a SentencePiece model.", remedy) from None
        tokens = self._processor
        if (tokens.pad_id(), tokens.unk_id(), tokens.bos_id(), tokens.eos_id()) != (PAD, UNK, BOS, EOS):
            raise LockstepError(f"{name} has other special tokens than Lockstep's models.", remedy)
        self.model = model
        self.normalizes = normalizes

    @classmethod
    def load(cls, path: Path, normalizes: bool = False) -> Self:
        try:
            return cls(path.read_bytes(), str(path), normalizes)
        except OSError as error:
            raise LockstepError(
                f"The vocabulary {path} cannot be read: {error.strerror}.", "Prepare the corpus again."
            ) from None

    @property
    def size(self) -> int:
        return int(self._processor.get_piece_size())

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.model).hexdigest()

    @cached_property
    def pieces(self) -> list[str]:
        """The text of every piece, by its id."""
        return [str(self._processor.id_to_piece(i)) for i in range(self.size)]

    def to_pieces(self, ids: Sequence[int]) -> list[str]:
        return [self.pieces[i] for i in ids]

    def encode(self, texts: Sequence[str], threads: int = 1) -> list[list[int]]:
        """Returns the piece ids of each text, without special tokens. `threads` does not change the result."""
        clean = [normalize_text(text) if self.normalizes else " ".join(text.split()) for text in texts]
        encoded: list[list[int]] = self._processor.encode(clean, out_type=int, num_threads=threads)
        return encoded

    def encode_flat(self, texts: Sequence[str]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Returns the ids of all texts in one array, `[words]`, and the length of each text, `[texts]`.

        Each text ends with the end-of-sentence token. Words in `texts` must be separated by single spaces.
        """
        encoded: list[list[int]] = self._processor.encode(texts, out_type=int, add_eos=True, num_threads=1)
        lengths = np.fromiter(map(len, encoded), np.int32, len(encoded))
        return np.fromiter(chain.from_iterable(encoded), np.int32, int(lengths.sum())), lengths

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Returns the text of each list of piece ids, without special tokens."""
        texts: list[str] = self._processor.decode([list(sentence) for sentence in ids]) if ids else []
        return texts


def _guard(sentences: Iterable[str], failures: list[BaseException]) -> Iterator[str]:
    """Stores an exception in `failures` and ends the stream: the trainer would report only its message."""
    try:
        for text in sentences:
            yield " ".join(text.split())
    except BaseException as error:
        failures.append(error)


def _training_error(settings: VocabularySettings, message: str) -> LockstepError:
    """Translates an error message of the trainer into one that names the setting to change."""
    if largest := _TOO_HIGH.search(message):
        return TooFewPieces(settings.size, int(largest[1]))
    if smallest := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        return LockstepError(
            f"A vocabulary of {settings.size} pieces has no room for every character of the training text.",
            f"Set data.vocabulary.size to {smallest[1]} or more, or lower data.vocabulary.coverage.",
            code=2,
        )
    return LockstepError(f"SentencePiece could not train the vocabulary: {message.strip()}", "Check the training text.")
