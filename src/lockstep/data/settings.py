"""Settings of everything between text files and global batches."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from lockstep.settings import FIXED, Place, Settings


class GrammarSettings(Settings):
    """A corpus made by the built-in English-German grammar instead of read from files."""

    train: Annotated[int, FIXED] = Field(100_000, ge=1)
    """Sentence pairs to make for training."""
    validation: Annotated[int, FIXED] = Field(500, ge=1)
    """Held-out pairs for evaluation during training."""
    test: Annotated[int, FIXED] = Field(500, ge=1)
    """Held-out pairs for the final test."""
    seed: Annotated[int, FIXED] = 1
    """The same seed makes the same corpus."""


class VocabularySettings(Settings):
    """The joint SentencePiece vocabulary of both languages."""

    size: Annotated[int, FIXED] = Field(8000, ge=261)
    """Pieces in the vocabulary, including 4 special marks and 256 single bytes."""
    kind: Annotated[Literal["unigram", "bpe"], FIXED] = "unigram"
    """SentencePiece model type."""
    coverage: Annotated[float, FIXED] = Field(1.0, gt=0.9, le=1.0)
    """Share of the characters that get a piece of their own; the rest is spelt in bytes."""
    sample: Annotated[int, FIXED] = Field(2_000_000, ge=1)
    """At most this many sentences (both sides counted) are read to train the vocabulary."""


class DataSettings(Settings):
    """What text is learned from and how it is prepared."""

    languages: Annotated[tuple[str, str], FIXED] = ("en", "de")
    """Source and target language: also the endings of the text files."""
    folder: Place = Path()
    """The folder that the names in train, validation and test start from; also an address such as s3://bucket/text."""
    train: list[str] = []
    """Training text: `news` means news.en and news.de (also .gz, .xz, .zst); `pairs.tsv` has both in columns."""
    validation: list[str] = []
    """Text for evaluation during training."""
    test: list[str] = []
    """Text for the final test."""
    grammar: GrammarSettings | None = None
    """Make the text with the built-in grammar instead of reading files."""
    corpus: Place | None = None
    """Folder or address of the prepared corpus; when not given, a folder under `corpora/` named after these settings."""
    max_words: Annotated[int, FIXED] = Field(200, ge=1)
    """Training pairs with more words (separated by spaces) on a side are left out."""
    max_ratio: Annotated[float, FIXED] = Field(4.0, ge=1.0)
    """Training pairs whose sides differ in length by more than this factor (plus three words) are left out."""
    max_pieces: Annotated[int, FIXED] = Field(250, ge=8)
    """Training pairs with more pieces on a side are left out."""
    vocabulary: VocabularySettings = VocabularySettings()
    """The joint vocabulary."""

    @model_validator(mode="after")
    def _has_text(self) -> Self:
        if self.grammar is None and not self.train:
            raise ValueError("name the training text in data.train, or set data.grammar to use the built-in grammar")
        if self.grammar is None and not self.validation:
            raise ValueError("name the validation text in data.validation")
        if self.grammar is not None and sorted(self.languages) != ["de", "en"]:
            raise ValueError("the built-in grammar knows English and German: set data.languages to en and de")
        return self


class BatchSettings(Settings):
    """How sentences are put together into the global batch of a step."""

    words: Annotated[int | None, Field(ge=1), FIXED] = None
    """Target words (pieces and end marks, no padding) in a step, all workers together."""
    sentences: Annotated[int | None, Field(ge=1), FIXED] = None
    """Sentence pairs in a step; give this or `words`."""
    per: Annotated[Literal["global", "worker"], FIXED] = "global"
    """`worker`: the number above is one worker's; it is multiplied by the workers of the first launch and then kept."""
    bucket: Annotated[bool, FIXED] = True
    """Put sentences of similar length together, so that nothing waits for padding."""
    balance: bool = True
    """Deal the sentences of a step so that every worker gets the same work; false splits them by count only."""
    micro_words: int | None = Field(None, ge=1)
    """Cut a share into pieces of at most this many target words when memory is short; the update is the same."""

    @model_validator(mode="after")
    def _one_budget(self) -> Self:
        if (self.words is None) == (self.sentences is None):
            raise ValueError("give either batch.words or batch.sentences")
        return self
