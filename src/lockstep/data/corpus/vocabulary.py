"""The joint SentencePiece vocabulary: trained once, then text to ids and back.

Decoding gives back the text that was encoded, except that every run of blanks becomes one space: there is no Unicode
normalisation, because references are compared with what the model writes, and a folded "½" or "…" would count as an
error. Characters without a piece are spelt in bytes, so nothing is unknown.
"""

import hashlib
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from lockstep.data.data_settings import VocabularySettings
from lockstep.errors import LockstepError

PAD, UNK, BOS, EOS = range(4)
TRAINER_THREADS = 16
"""Part of the result, because the trainer adds up floats per thread: never taken from the machine."""
ALL_CORES = -1


def train(settings: VocabularySettings, sentences: Iterable[str]) -> bytes:
    """A SentencePiece model of these sentences; the same sentences in the same order give the same bytes."""
    from sentencepiece import SentencePieceTrainer

    model = io.BytesIO()
    failures: list[BaseException] = []
    try:
        SentencePieceTrainer.train(
            sentence_iterator=_guarded(sentences, failures),
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
    except RuntimeError as error:
        raise (failures[0] if failures else _explain(settings, str(error))) from None
    if failures:
        raise failures[0]
    return model.getvalue()


def sample(count: int, sentences: int) -> npt.NDArray[np.int64]:
    """Places of at most `sentences // 2` of `count` pairs, evenly spread over all of them."""
    wanted = min(count, max(1, sentences // 2))
    return -(-np.arange(1, wanted + 1) * count // wanted) - 1


class Vocabulary:
    """Text to piece ids and back. `Vocabulary(model)` takes the bytes of a model that `train` made."""

    pad, bos, eos = PAD, BOS, EOS

    def __init__(self, model: bytes, name: str = "the vocabulary") -> None:
        from sentencepiece import SentencePieceProcessor

        remedy = "Use the vocabulary.model of a corpus made by `lockstep prepare`."
        try:
            if not model:
                raise RuntimeError("it is empty")
            self._processor = SentencePieceProcessor(model_proto=model)
        except RuntimeError:
            raise LockstepError(f"{name} is not a SentencePiece model.", remedy) from None
        marks = self._processor
        if (marks.pad_id(), marks.unk_id(), marks.bos_id(), marks.eos_id()) != (PAD, UNK, BOS, EOS):
            raise LockstepError(f"{name} has other special marks than Lockstep's models.", remedy)
        self.model = model

    @classmethod
    def load(cls, path: Path) -> Self:
        try:
            return cls(path.read_bytes(), str(path))
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

    def encode(self, texts: Sequence[str], threads: int = 1) -> list[list[int]]:
        """Piece ids of each text, without begin and end marks; `threads` changes the time only."""
        one_space = [" ".join(text.split()) for text in texts]
        encoded: list[list[int]] = self._processor.encode(one_space, out_type=int, num_threads=threads)
        return encoded

    def encode_row(self, texts: Sequence[str]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Ids of all texts in one row, each with its end mark, and the length of each; for text with single blanks."""
        encoded: list[list[int]] = self._processor.encode(texts, out_type=int, add_eos=True, num_threads=1)
        lengths = np.fromiter(map(len, encoded), np.int32, len(encoded))
        return np.fromiter(chain.from_iterable(encoded), np.int32, int(lengths.sum())), lengths

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """The text of each list of piece ids; special marks are left out."""
        texts: list[str] = self._processor.decode([list(sentence) for sentence in ids]) if ids else []
        return texts


def _guarded(sentences: Iterable[str], failures: list[BaseException]) -> Iterator[str]:
    """Ends the stream at an exception and keeps it: the trainer would pass on its text alone."""
    try:
        for text in sentences:
            yield " ".join(text.split())
    except BaseException as error:
        failures.append(error)


def _explain(settings: VocabularySettings, message: str) -> Exception:
    """The trainer's complaint in the words of the settings."""
    if largest := re.search(r"too high .*<= (\d+)", message):
        return LockstepError(
            f"The training text is too small for a vocabulary of {settings.size} pieces.",
            f"Set data.vocabulary.size to {largest[1]} or less.",
            code=2,
        )
    if smallest := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        return LockstepError(
            f"A vocabulary of {settings.size} pieces has no room for every character of the training text.",
            f"Set data.vocabulary.size to {smallest[1]} or more, or lower data.vocabulary.coverage.",
            code=2,
        )
    return LockstepError(f"SentencePiece could not train the vocabulary: {message.strip()}", "Check the training text.")
