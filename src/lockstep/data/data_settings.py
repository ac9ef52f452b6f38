"""Settings of the data: where it comes from, how it is prepared, and how it is batched."""

import sys
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from lockstep.settings import FIXED, Place, Settings


def _read_text_name(value: object) -> str | tuple[str, str]:
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple) and len(value) == 2 and all(isinstance(part, str) for part in value):
        return value[0], value[1]
    raise PydanticCustomError("text_name", "it must be a name or a list of two files")


TextName = Annotated[str | tuple[str, str], BeforeValidator(_read_text_name)]
"""A name of parallel text, or its source file and its target file."""


class GrammarSettings(Settings):
    """A corpus that the built-in English-German grammar generates. No text files are read."""

    train: Annotated[int, FIXED] = Field(100_000, ge=1)
    """Number of training pairs to generate."""
    validation: Annotated[int, FIXED] = Field(500, ge=1)
    """Number of pairs held out for validation during training."""
    test: Annotated[int, FIXED] = Field(500, ge=1)
    """Number of pairs held out for the final test."""
    seed: Annotated[int, FIXED] = 1
    """Random seed. The same seed generates the same corpus."""


class VocabularySettings(Settings):
    """The joint SentencePiece vocabulary of both languages."""

    size: Annotated[int, FIXED] = Field(8000, ge=261)
    """Number of pieces, including 4 special tokens and 256 byte pieces. Fewer if the text has fewer."""
    kind: Annotated[Literal["unigram", "bpe"], FIXED] = "unigram"
    """SentencePiece model type: `unigram` or `bpe`."""
    coverage: Annotated[float, FIXED] = Field(1.0, gt=0.9, le=1.0)
    """Share of the text's characters that get their own piece. Rarer characters are encoded as bytes."""
    sample: Annotated[int, FIXED] = Field(500_000, ge=1)
    """The vocabulary is trained on at most this many sentences, taken evenly from the training text; both languages count.
    One million short sentences need about 1 GB of memory."""
    model: Path | None = None
    """A SentencePiece model to use instead of training one, such as the `vocabulary.model` of a corpus. The other settings
    of the vocabulary then have no effect. train.start_from sets it."""


class SplitSettings(Settings):
    """How validation and test text is split off the training text, if data.validation is not set."""

    share: Annotated[float, Field(gt=0.0, le=0.4), FIXED] = 0.02
    """Share of the different source sentences that goes to each of the two sets."""
    most: Annotated[int, Field(ge=1), FIXED] = 2000
    """Each of the two sets has at most this many pairs."""


class AugmentSettings(Settings):
    """Random augmentation of the training images, drawn again in every epoch."""

    pad: int = Field(4, ge=0)
    """Random crop: pad by this many pixels on every side, then crop back to the original size. 0 turns it off."""
    flip: bool = True
    """Random horizontal flip: mirror each image with probability 0.5."""
    cutout: int = Field(0, ge=0)
    """Cutout: cover a square with sides of this many pixels, at a random position. 0 turns it off."""


class DataSettings(Settings):
    """The training, validation and test data, and how text is cleaned and encoded."""

    languages: Annotated[tuple[str, str], FIXED] = ("en", "de")
    """Source and target language. They are also the suffixes of the text files."""
    folder: Place = Path()
    """Folder of the text files that train, validation and test name: a path, or an address such as s3://bucket/text."""
    train: list[TextName] = []
    """Names of the training text. `news` stands for the two files news.en and news.de; pairs.tsv, pairs.csv, memory.tmx,
    app.po and app.mo hold both languages; [english.txt, german.txt] names two files with other names. Each file may be
    compressed (.gz, .xz, .zst, .bz2)."""
    validation: list[TextName] = []
    """Names of the validation text, which is scored during training. Without it, data.split takes validation text from the
    training text, and also test text unless data.test is set."""
    test: list[TextName] = []
    """Names of the test text, which is scored after training."""
    split: SplitSettings = SplitSettings()
    """How validation and test text is split off the training text, if data.validation is not set."""
    grammar: GrammarSettings | None = None
    """Generate the text with the built-in grammar instead of reading files."""
    images: Place | None = None
    """Folder or address of labelled images, to classify images instead of translating text. `lockstep data get cifar10`,
    `lockstep data get fashion-mnist` and `lockstep data pictures` make such a folder."""
    hold_out: Annotated[int, Field(ge=0), FIXED] = 0
    """Images only: use the last N training images for validation instead of training. With 0, as is usual for CIFAR-10,
    the test images are the validation images; then do not select a model or setting by the validation score."""
    augment: AugmentSettings = AugmentSettings()
    """Images only: random augmentation of the training images."""
    corpus: Place | None = None
    """Folder or address of the prepared corpus. By default a folder in `corpora/` that is named after these settings."""
    processes: int | None = Field(None, ge=1)
    """Number of processes that prepare the text; by default one per core. The corpus does not depend on it."""
    cleaning: Annotated[Literal[1, 2], FIXED] = 2
    """Version of the rules that clean text. 2: normalize characters, check the language, keep held-out sentences out of the
    training text, limit the length of a line, split off validation text. 1: none of these, as in Lockstep 0.1.0; runs and
    corpora of that version keep it."""
    bad_lines: Annotated[Literal["refuse", "skip"], FIXED] = "refuse"
    """What to do with a line that cannot be decoded or has a wrong number of columns. `refuse`: stop and name the line.
    `skip`: leave it out and count it."""
    max_characters: Annotated[int, Field(ge=100), FIXED] = 20_000
    """Drop training pairs with more than this many characters on a side. The rest of such a line is never in memory."""
    max_words: Annotated[int | None, Field(ge=1), FIXED] = 200
    """Drop training pairs with more than this many words on a side; null turns the limit off. Whitespace separates words.
    In a language without spaces, such as Chinese, two characters count as a word, except in words of Latin letters."""
    max_ratio: Annotated[float | None, Field(ge=1.0), FIXED] = 4.0
    """Drop training pairs whose longer side has more than this many times the words of the shorter side, plus three; null
    turns the limit off."""
    max_pieces: Annotated[int | None, Field(ge=8), FIXED] = 250
    """Drop training pairs with more than this many SentencePiece pieces on a side; null turns the limit off."""
    max_identical: Annotated[int | None, Field(ge=0), FIXED] = 3
    """Drop training pairs that have the same text on both sides and more than this many words; null turns the limit off. A
    sentence that was never translated teaches the model to copy; names, numbers and titles may be equal."""
    max_foreign: Annotated[float, Field(ge=0.0, le=1.0), FIXED] = 0.5
    """Drop training pairs if more than this share of a side's letters belongs to a script that its language does not use,
    for example Cyrillic in English text. The default keeps a sentence that quotes a foreign word and drops one in the wrong
    language; 1 turns the limit off. In a script other than Latin an own letter counts three times, because names are often
    in Latin letters. Equal sides, and languages whose script Lockstep does not know, are not checked."""
    check_languages: Annotated[bool, FIXED] = True
    """Drop training pairs that are clearly in another language, or whose sides are swapped. Only sides of five words and
    more are checked, and only languages that py3langid knows."""
    drop_control: Annotated[bool, FIXED] = True
    """Drop training pairs with control characters, private-use characters or the replacement character (U+FFFD)."""
    drop_duplicates: Annotated[bool, FIXED] = True
    """Drop training pairs that occurred before: both sides are equal except for whitespace. The first one is kept."""
    vocabulary: VocabularySettings = VocabularySettings()
    """The joint SentencePiece vocabulary of both languages."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.images is not None:
            if self.train or self.grammar:
                raise ValueError("data.images and text (data.train, data.grammar) exclude each other")
            return self
        if self.grammar is not None and sorted(self.languages) != ["de", "en"]:
            raise ValueError("the built-in grammar knows English and German: set data.languages to en and de")
        return self

    def check_input(self) -> None:
        """Raises ValueError if the settings name neither images, nor a grammar, nor training text."""
        if self.images is None and self.grammar is None:
            if self.languages[0] == self.languages[1]:
                raise ValueError(f"data.languages names {self.languages[0]} twice: source and target must differ")
            if not self.train:
                raise ValueError(
                    "name the training text in data.train, or set data.grammar to use the built-in grammar"
                )
            if not self.validation and not self.split_sets:
                raise ValueError("name the validation text in data.validation")

    @property
    def split_sets(self) -> tuple[Literal["validation", "test"], ...]:
        """The sets that are split off the training text."""
        if self.grammar or self.validation or self.cleaning == 1:
            return ()
        return ("validation",) if self.test else ("validation", "test")

    @property
    def skips_bad_lines(self) -> bool:
        return self.cleaning > 1 and self.bad_lines == "skip"

    @property
    def line_limit(self) -> int:
        """The most characters of a sentence. Readers cut longer ones; what is left of them is still too long."""
        return self.max_characters if self.cleaning > 1 else sys.maxsize


BATCH_WORDS, BATCH_IMAGES = 4096, 128
"""The size of a step if a config names none."""


class BatchSettings(Settings):
    """The global batch: what all workers together compute in one step."""

    words: Annotated[int | None, Field(ge=1), FIXED] = None
    """Target words per step, all workers together. Pieces and end-of-sentence tokens count as words, padding does not.
    If no size is named, a step has 4096 words."""
    sentences: Annotated[int | None, Field(ge=1), FIXED] = None
    """Sentence pairs per step, all workers together. Set either this or `words`."""
    images: Annotated[int | None, Field(ge=1), FIXED] = None
    """Images per step, all workers together. Set this instead of `words` for images. If no size is named, a step has 128
    images."""
    per: Annotated[Literal["global", "worker"], FIXED] = "global"
    """What the batch size counts. `global`: all workers together. `worker`: one worker; the size is multiplied by the
    number of workers of the first launch, and later launches keep the product."""
    bucket: Annotated[bool, FIXED] = False
    """Fill each step with sentences of similar length, so that less padding is computed. Steps are a little faster, but the
    model learns less per step (docs/understand/results.md)."""
    shuffle: Annotated[bool, FIXED] = True
    """Shuffle the sentences in every epoch. With both this and `bucket` off, they come in the order of the text."""
    fixed_length: Annotated[int | None, Field(ge=2), FIXED] = None
    """For speed measurements only: cut both sides of the training text into sequences of exactly this many words, ignoring
    sentence boundaries. A model trained on them cannot translate."""
    balance: bool = True
    """Distribute the sentences of a step so that every worker gets about the same number of words. If false, every worker
    gets the same number of sentences."""
    micro_words: int | None = Field(None, ge=1)
    """Gradient accumulation: split each worker's share into micro-batches of at most this many target words, to save
    memory. The update is the same."""

    @model_validator(mode="after")
    def _one_budget(self) -> Self:
        if self.images is not None and not (self.words or self.sentences):
            return self
        if (self.words is None) == (self.sentences is None) or self.images is not None:
            raise ValueError("give either batch.words or batch.sentences (or batch.images for images)")
        return self
