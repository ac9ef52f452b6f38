"""Which training pairs are left out, and why.

Only training text is filtered: evaluation text is scored line by line as it stands.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Literal

from lockstep.data.settings import DataSettings

Reason = Literal["empty", "long", "ratio", "pieces"]
RATIO_SLACK_WORDS = 3


def text_fault(settings: DataSettings, source: str, target: str) -> Reason | None:
    """What is wrong with a pair, judged by its words."""
    shorter, longer = sorted((len(source.split()), len(target.split())))
    if shorter == 0:
        return "empty"
    if longer > settings.max_words:
        return "long"
    if longer > settings.max_ratio * shorter + RATIO_SLACK_WORDS:
        return "ratio"
    return None


def piece_fault(settings: DataSettings, source_pieces: int, target_pieces: int) -> Reason | None:
    """What is wrong with a pair, judged by its number of pieces (without end mark)."""
    if source_pieces == 0 or target_pieces == 0:
        return "empty"
    return "pieces" if max(source_pieces, target_pieces) > settings.max_pieces else None


def clean(
    settings: DataSettings, pairs: Iterable[tuple[str, str]], removed: Counter[Reason]
) -> Iterator[tuple[str, str]]:
    """The pairs to learn from; those left out are counted in `removed` by reason."""
    for source, target in pairs:
        if fault := text_fault(settings, source, target):
            removed[fault] += 1
        else:
            yield source, target


def clean_encoded(
    settings: DataSettings, sources: list[list[int]], targets: list[list[int]], removed: Counter[Reason]
) -> list[int]:
    """The places of the encoded pairs to learn from; those left out are counted in `removed` by reason."""
    kept = []
    for place, (source, target) in enumerate(zip(sources, targets, strict=True)):
        if fault := piece_fault(settings, len(source), len(target)):
            removed[fault] += 1
        else:
            kept.append(place)
    return kept
