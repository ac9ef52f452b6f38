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
    sample: Annotated[int, FIXED] = Field(500_000, ge=1)
    """At most this many sentences (both sides counted, evenly spread over the text) train the vocabulary; a million short
    ones take about a gigabyte of memory while it is trained."""


class AugmentSettings(Settings):
    """How training images are changed, anew in every pass."""

    pad: int = Field(4, ge=0)
    """Shift by up to this many points: a window on the image with a frame of so many points. 0: off."""
    flip: bool = True
    """Mirror half of the images."""
    cutout: int = Field(0, ge=0)
    """Cover a square of so many points. 0: off."""


class DataSettings(Settings):
    """What text is learned from and how it is prepared."""

    languages: Annotated[tuple[str, str], FIXED] = ("en", "de")
    """Source and target language: also the endings of the text files."""
    folder: Place = Path()
    """The folder that the names in train, validation and test start from; also an address such as s3://bucket/text."""
    train: list[str] = []
    """Training text: `news` means news.en and news.de; pairs.tsv, memory.tmx, app.po and app.mo hold both languages. Any of
    them may be compressed (.gz, .xz, .zst, .bz2)."""
    validation: list[str] = []
    """Text for evaluation during training."""
    test: list[str] = []
    """Text for the final test."""
    grammar: GrammarSettings | None = None
    """Make the text with the built-in grammar instead of reading files."""
    images: Place | None = None
    """Folder or address of images with labels instead of text, as `lockstep data get cifar10` (or fashion-mnist) makes
    it."""
    hold_out: Annotated[int, Field(ge=0), FIXED] = 0
    """images: training images (the last ones) kept back for evaluation during training. With 0, as is usual for CIFAR-10,
    the test images are used, and no choice may be made by that score."""
    augment: AugmentSettings = AugmentSettings()
    """images: how they are changed in training."""
    corpus: Place | None = None
    """Folder or address of the prepared corpus; when not given, a folder under `corpora/` named after these settings."""
    processes: int | None = Field(None, ge=1)
    """Processes that prepare the text; when not given, one per core. The corpus is the same with any number."""
    max_words: Annotated[int | None, Field(ge=1), FIXED] = 200
    """Training pairs with more words (separated by blanks; two characters in a language without blanks) on a side are left
    out; null keeps them."""
    max_ratio: Annotated[float | None, Field(ge=1.0), FIXED] = 4.0
    """Training pairs whose sides differ in words by more than this factor (plus three words) are left out; null keeps
    them."""
    max_pieces: Annotated[int | None, Field(ge=8), FIXED] = 250
    """Training pairs with more pieces on a side are left out; null keeps them."""
    max_identical: Annotated[int | None, Field(ge=0), FIXED] = 3
    """Training pairs with the same text on both sides are left out when it has more words than this: a sentence that was
    never translated teaches copying, while names, numbers and titles rightly stay as they are. Null keeps all."""
    max_foreign: Annotated[float, Field(ge=0.0, le=1.0), FIXED] = 0.5
    """Training pairs with a larger share of letters from another script than their language's on a side (Cyrillic where
    English is expected) are left out. Half, so that a sentence about a foreign word stays and one in the wrong language
    goes; 1 keeps all. Languages whose script is not known are not judged."""
    drop_control: Annotated[bool, FIXED] = True
    """Leave out training pairs with control characters, private characters or the mark of a lost character (U+FFFD)."""
    drop_duplicates: Annotated[bool, FIXED] = True
    """Leave out training pairs that came before: both sides equal, but for blanks. The first one stays."""
    vocabulary: VocabularySettings = VocabularySettings()
    """The joint vocabulary."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.images is not None:
            if self.train or self.grammar:
                raise ValueError("data.images and text (data.train, data.grammar) exclude each other")
            return self
        if self.grammar is not None and sorted(self.languages) != ["de", "en"]:
            raise ValueError("the built-in grammar knows English and German: set data.languages to en and de")
        return self

    def check_named(self) -> None:
        """Is there anything to learn from?"""
        if self.images is None and self.grammar is None:
            if not self.train:
                raise ValueError(
                    "name the training text in data.train, or set data.grammar to use the built-in grammar"
                )
            if not self.validation:
                raise ValueError("name the validation text in data.validation")


class BatchSettings(Settings):
    """How sentences are put together into the global batch of a step."""

    words: Annotated[int | None, Field(ge=1), FIXED] = None
    """Target words (pieces and end marks, no padding) in a step, all workers together."""
    sentences: Annotated[int | None, Field(ge=1), FIXED] = None
    """Sentence pairs in a step; give this or `words`."""
    images: Annotated[int | None, Field(ge=1), FIXED] = None
    """Images in a step, all workers together; where images are learned from."""
    per: Annotated[Literal["global", "worker"], FIXED] = "global"
    """`worker`: the number above is one worker's; it is multiplied by the workers of the first launch and then kept."""
    bucket: Annotated[bool, FIXED] = False
    """Fill a step with sentences of one length, so that attention computes no padding: a little faster, but such steps
    teach less (docs/results.md)."""
    shuffle: Annotated[bool, FIXED] = True
    """Another order in every pass. Without it, and without `bucket`, the sentences come in the order of the text."""
    fixed_length: Annotated[int | None, Field(ge=2), FIXED] = None
    """To measure speed: both sides of the training text are cut into pieces of so many words, wherever a sentence ends, so
    that all are equally long. What is trained on them translates nothing."""
    balance: bool = True
    """Deal the sentences of a step so that every worker gets the same work; false splits them by count only."""
    micro_words: int | None = Field(None, ge=1)
    """Cut a share into pieces of at most this many target words when memory is short; the update is the same."""

    @model_validator(mode="after")
    def _one_budget(self) -> Self:
        if self.images is not None and not (self.words or self.sentences):
            return self
        if (self.words is None) == (self.sentences is None) or self.images is not None:
            raise ValueError("give either batch.words or batch.sentences (or batch.images for images)")
        return self
