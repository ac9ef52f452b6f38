"""Chooses sizes for a text and a machine: vocabulary, model, batch and steps, each with its reason.

Everything that could be tuned is in this file: the table of sizes by the number of pairs, the limits of a machine
without GPU, and the speeds with which the duration is estimated.
"""

from dataclasses import dataclass, replace

from pydantic import JsonValue

FEWEST_PIECES = 261
SPECIAL_PIECES = 260
"""Pieces that every vocabulary has: 4 special tokens and 256 bytes."""
PIECES_PER_WORD = 1.3
"""How many pieces a word has on average, if nobody has measured it."""
ROOM_FOR_CHARACTERS = 4
"""The vocabulary has at least this many times as many pieces as the text has different characters; else rare characters
are encoded as bytes."""
SAFE_SHARE = 0.85
"""Share of the largest possible vocabulary that is used at most: cleaning and splitting make the text smaller."""


@dataclass(frozen=True)
class TextFacts:
    """What is known about the training text."""

    pairs: int
    words: float
    """Mean number of words of a target sentence."""
    characters: int
    """Number of different characters."""
    common_characters: int = 0
    """Of them, those that make up 99.95 % of the text."""
    largest_vocabulary: int | None = None
    """The most pieces that SentencePiece can find in the text; None if there are more than anybody wants."""
    trained_pairs: int | None = None
    """About how many pairs are trained on after cleaning and splitting; None: all."""
    mean_pieces: float | None = None
    """Mean number of pieces of a target sentence with the chosen vocabulary, without the end mark; None: not measured."""


@dataclass(frozen=True)
class TrainingMachine:
    """What is known about the machine that trains."""

    cores: int
    memory_gb: float
    gpus: int = 0


@dataclass(frozen=True)
class Size:
    """The value of a setting, and why it has this value."""

    key: str
    value: JsonValue
    reason: str


@dataclass(frozen=True)
class Sizes:
    """The settings that suit a text and a machine."""

    settings: tuple[Size, ...]
    minutes: tuple[float, float]
    """Between how many minutes the training will probably take."""

    def as_dict(self) -> dict[str, JsonValue]:
        return {size.key: size.value for size in self.settings}


@dataclass(frozen=True)
class _Row:
    """The sizes for a text of up to this many pairs."""

    pairs: float
    pieces: int
    layers: int
    width: int
    feed_forward: int
    heads: int
    dropout: float
    batch_words: int
    passes: int
    peak: float


_ROWS = (
    _Row(2_000, 1_000, 2, 128, 256, 4, 0.3, 1024, 60, 2e-3),
    _Row(10_000, 2_000, 3, 192, 384, 4, 0.3, 2048, 30, 2e-3),
    _Row(100_000, 4_000, 3, 256, 512, 4, 0.2, 4096, 15, 1.5e-3),  # measured on Multi30k
    _Row(500_000, 8_000, 6, 512, 1024, 4, 0.2, 8192, 20, 1e-3),
    _Row(2_000_000, 16_000, 6, 512, 2048, 8, 0.1, 16_384, 20, 1e-3),
    _Row(float("inf"), 32_000, 6, 512, 2048, 8, 0.1, 25_000, 20, 7e-4),  # Transformer-base
)
_CPU_ROW = _Row(0, 8_000, 3, 256, 1024, 4, 0.1, 4096, 5, 1.5e-3)
"""The largest sizes that a machine without GPU trains in hours."""
_CPU_MINUTES = 180.0
_FEWEST_STEPS, _MOST_STEPS = 300, 100_000
_GPU_MICRO_WORDS = 4096
_SMALL_MEMORY_GB, _SMALL_MICRO_WORDS = 6.0, 1024
_CORE_FLOPS = 15e9, 100e9
_GPU_FLOPS = 5e12, 60e12
"""Floating-point operations per second that training reaches on a core and on a GPU: between an old and a new one."""


def choose_sizes(text: TextFacts, machine: TrainingMachine) -> Sizes:
    """Chooses the sizes. The same facts give the same sizes on every machine."""
    row = next(row for row in _ROWS if text.pairs <= row.pairs)
    model_reason = f"for {text.pairs:,} pairs"
    if not machine.gpus and row.width > _CPU_ROW.width:
        row = replace(_CPU_ROW, dropout=row.dropout, pieces=min(row.pieces, _CPU_ROW.pieces))
        model_reason += " on a machine without GPU: larger models would take days"
    pieces, coverage, pieces_reason = _choose_vocabulary(text, row)
    words = (text.mean_pieces or text.words * PIECES_PER_WORD) + 1
    flops_per_word = _count_flops_per_word(row, pieces)
    steps, steps_reason = _choose_steps(text, machine, row, words, flops_per_word)
    every = max(10, _round(steps / 8))
    settings = [
        Size("data.vocabulary.size", pieces, pieces_reason),
        *([] if coverage is None else [Size("data.vocabulary.coverage", coverage, "rare characters become bytes")]),
        Size("batch.words", row.batch_words, "target words in a step, all workers together"),
        *_choose_micro_batch(machine),
        Size("model.encoder_layers", row.layers, model_reason),
        Size("model.decoder_layers", row.layers, ""),
        Size("model.width", row.width, ""),
        Size("model.feed_forward", row.feed_forward, ""),
        Size("model.heads", row.heads, ""),
        Size("model.dropout", row.dropout, "the less text, the more dropout"),
        Size("train.steps", steps, steps_reason),
        Size("train.evaluate_every", every, "eight evaluations in all"),
        Size("train.checkpoint_every", every, ""),
        Size("train.clip", 1.0, ""),
        Size("schedule.name", "cosine", ""),
        Size("schedule.peak", row.peak, "smaller models bear a higher learning rate"),
        Size("schedule.warmup", max(10, min(4000, _round(steps / 6))), "a sixth of the steps"),
        Size("search.beam", 4, ""),
    ]
    return Sizes(tuple(settings), _estimate_minutes(machine, steps * row.batch_words * flops_per_word))


def _choose_vocabulary(text: TextFacts, row: _Row) -> tuple[int, float | None, str]:
    """The number of pieces, the share of characters with a piece (None: all), and the reason."""
    fewest = SPECIAL_PIECES + text.characters
    pieces, reason = row.pieces, f"for {text.pairs:,} pairs"
    if text.largest_vocabulary is not None and pieces > SAFE_SHARE * text.largest_vocabulary:
        pieces = round(SAFE_SHARE * text.largest_vocabulary)
        reason = f"the text has too few different words for more than {text.largest_vocabulary:,}"
    coverage = 0.9995 if ROOM_FOR_CHARACTERS * text.characters > pieces and text.characters > 500 else None
    if coverage is not None:
        fewest = SPECIAL_PIECES + round(1.1 * text.common_characters)
    if pieces < fewest + 1:
        pieces, reason = fewest + 1, f"the text has {text.characters:,} different characters"
    return max(FEWEST_PIECES, pieces), coverage, reason


def _choose_micro_batch(machine: TrainingMachine) -> list[Size]:
    if machine.gpus:
        return [Size("batch.micro_words", _GPU_MICRO_WORDS, "so that a step fits into the memory of a GPU")]
    if machine.memory_gb < _SMALL_MEMORY_GB:
        reason = f"saves memory: this machine has {machine.memory_gb:.0f} GB"
        return [Size("batch.micro_words", _SMALL_MICRO_WORDS, reason)]
    return []


def _choose_steps(
    text: TextFacts, machine: TrainingMachine, row: _Row, words: float, flops_per_word: float
) -> tuple[int, str]:
    """The number of steps, and how many passes through the text that is."""
    pass_steps = (text.trained_pairs or text.pairs) * words / row.batch_words
    steps = min(max(_FEWEST_STEPS, pass_steps * row.passes), _MOST_STEPS)
    limit = ""
    if not machine.gpus:
        middle = (_CORE_FLOPS[0] * _CORE_FLOPS[1]) ** 0.5 * machine.cores
        affordable = max(_FEWEST_STEPS, _CPU_MINUTES * 60 * middle / (row.batch_words * flops_per_word))
        if affordable < steps:
            steps, limit = affordable, ", what this machine may compute in three hours"
    steps = _round(steps)
    return steps, f"about {_describe_passes(steps / max(pass_steps, 1e-9))} through the text{limit}"


def _describe_passes(passes: float) -> str:
    if passes < 1.5:
        return "one pass" if passes > 0.75 else "less than one pass"
    return f"{passes:.0f} passes"


def _count_flops_per_word(row: _Row, pieces: int) -> float:
    """Floating-point operations of training for one target word, with as many source words as target words."""
    encoder = row.layers * (4 * row.width**2 + 2 * row.width * row.feed_forward)
    decoder = row.layers * (8 * row.width**2 + 2 * row.width * row.feed_forward)
    return 6.0 * (encoder + decoder + row.width * pieces)


def _estimate_minutes(machine: TrainingMachine, flops: float) -> tuple[float, float]:
    slow, fast = (
        (rate * machine.gpus for rate in _GPU_FLOPS) if machine.gpus else (rate * machine.cores for rate in _CORE_FLOPS)
    )
    return flops / fast / 60, flops / slow / 60


def _round(number: float) -> int:
    """Rounds to two digits, at least 1."""
    digits = max(0, len(str(int(number))) - 2)
    return max(1, round(number / 10**digits) * 10**digits)
