"""Selects the pairs to train on from the cleaned shards: no duplicates, and no sentence of validation or test text.

Without validation text, pairs are split off by a hash of their source sentence. Test text takes the sentences with the
smallest hashes and validation text those with the largest. So a sentence never moves from one to the other, and more text
only adds sentences, until a set is full: then sentences with more extreme hashes replace others.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lockstep.data.corpus import shards
from lockstep.data.data_settings import DataSettings
from lockstep.data.text.clean import REASONS, Reason, count_reasons
from lockstep.data.text.lines import Hashes, Lines, hash_pairs, mark_first
from lockstep.data.text.normalize import Change, normalize_text
from lockstep.errors import LockstepError

SPLIT = -1
"""The verdict on a pair that was split off for validation or test."""
NATURAL_SHARE = 0.5
"""Languages are checked only if more than this share of the sentences looks like a real language."""
WRONG_SHARE = 0.8
"""If more than this share of the pairs seems to be in other languages, and not just swapped, it is data.languages that
does not fit, and no pair is dropped for its language."""
MOST_FOREIGN = 0.5
"""If more than this share of the pairs would be dropped for script or language, preparation stops."""
MOST_SWAPPED = 0.5
"""If more than this share of the checked pairs has its sides swapped, preparation stops."""
Verdicts = npt.NDArray[np.int8]
Pairs = list[tuple[str, str]]


class HeldOut(NamedTuple):
    """Sorted hashes of held-out sentences."""

    sources: Hashes
    targets: Hashes


@dataclass
class Selection:
    """What the cleaned shards are used for."""

    verdicts: list[Verdicts]
    """For every pair of each shard: 0 to train on it, SPLIT, or 1 + the index of the reason why it is dropped."""
    read: int
    removed: Counter[Reason]
    changed: Counter[Change]
    languages_checked: bool
    """False if the text is made up, or as a whole in other languages."""
    split: dict[str, Pairs] = field(default_factory=dict)
    """The sets that were split off."""

    @property
    def pairs(self) -> int:
        return sum(int((verdict == 0).sum()) for verdict in self.verdicts)


def select_pairs(settings: DataSettings, cleaned: Sequence[Path], held_out: HeldOut) -> Selection:
    """Decides what every pair of the cleaned shards is used for. `held_out` are the sentences of the sets that have files
    of their own."""
    facts, hashes = [], []
    for path in cleaned:
        one, sources, targets = shards.read_cleaned_facts(path)
        facts.append(one)
        hashes.append(hash_pairs(sources, targets))
    removed, changed = Counter[Reason](), Counter[Change]()
    for one in facts:
        removed.update(one["removed"])
        changed.update(one["changed"])
    checked, natural = (sum(one[key] for one in facts) for key in ("checked", "natural"))
    verdicts = [shards.read_doubts(path) for path in cleaned]
    wrong = sum(int((verdict > 0).sum()) for verdict in verdicts)
    is_natural = natural > NATURAL_SHARE * checked
    if is_natural:
        swapped = sum(int((verdict == REASONS.index("swapped") + 1).sum()) for verdict in verdicts)
        _check_swapped(settings, swapped, checked / 2)
    languages_checked = not checked or (is_natural and wrong <= WRONG_SHARE * checked / 2)
    if not languages_checked:
        verdicts = [np.zeros(len(part), np.int8) for part in hashes]
    read = sum(one["read"] for one in facts)
    if settings.cleaning > 1:
        _check_foreign(settings, read, sum(map(count_reasons, verdicts), removed))
    if settings.drop_duplicates and cleaned:
        first = mark_first(np.concatenate(hashes))
        for verdict, mask in zip(
            verdicts, np.split(first, np.cumsum([len(part) for part in hashes])[:-1]), strict=True
        ):
            verdict[~mask & (verdict == 0)] = REASONS.index("duplicate") + 1
    selection = Selection(verdicts, read, removed, changed, languages_checked)
    if settings.cleaning > 1 and settings.grammar is None:  # the grammar itself keeps its sets apart
        _drop_held_out(selection, cleaned, held_out)
        if settings.split_sets:
            _split(settings, selection, cleaned)
    for verdict in verdicts:
        removed.update(count_reasons(verdict))
    return selection


def _check_swapped(settings: DataSettings, swapped: int, checked: float) -> None:
    """Raises if in most pairs the source looks like the target language, and the target like the source language."""
    if swapped > MOST_SWAPPED * checked:
        source, target = settings.languages
        raise LockstepError(
            f"The sides are swapped: of {checked:,.0f} training pairs that are long enough to be checked, {swapped:,} have "
            f"a source that looks like {target} and a target that looks like {source}.",
            f"Set data.languages to [{target}, {source}], or swap the files or columns. data.check_languages=false turns "
            "the check off.",
            code=2,
        )


def _check_foreign(settings: DataSettings, read: int, removed: Counter[Reason]) -> None:
    """Raises if most pairs are in other scripts or languages than they should be: it is data.languages that is wrong."""
    reasons: tuple[Reason, ...] = ("swapped", "script", "language")
    foreign = sum(removed[reason] for reason in reasons)
    if foreign > MOST_FOREIGN * read:
        source, target = settings.languages
        shown = ", ".join(f"{removed[reason]:,} {reason}" for reason in reasons if removed[reason])
        raise LockstepError(
            f"{foreign:,} of {read:,} training pairs are not in {source} (source) and {target} (target): {shown}.",
            "Are data.languages or the files in the wrong order, or data.languages wrong? If not, data.max_foreign=1 and "
            "data.check_languages=false keep such pairs.",
            code=2,
        )


def hash_sentences(sentences: Sequence[str]) -> Hashes:
    """Returns the hashes that these sentences have after normalization, sorted and each once."""
    return np.unique(Lines("".join(f"{normalize_text(text)}\n" for text in sentences)).hashes)


def _drop_held_out(selection: Selection, cleaned: Sequence[Path], held_out: HeldOut) -> None:
    """Drops the pairs whose source or target is held out."""
    if not len(held_out.sources):
        return
    for path, verdict in zip(cleaned, selection.verdicts, strict=True):
        _, sources, targets = shards.read_cleaned_facts(path)
        known = _is_in(sources, held_out.sources) | _is_in(targets, held_out.targets)
        verdict[known & (verdict == 0)] = REASONS.index("held_out") + 1


def _split(settings: DataSettings, selection: Selection, cleaned: Sequence[Path]) -> None:
    """Splits off validation and test pairs, then drops the pairs that share a sentence with them."""
    chosen = _choose_sources(settings, selection, cleaned)
    taken: dict[str, set[int]] = {name: set() for name in chosen}
    selection.split = {name: [] for name in chosen}
    for path, verdict in zip(cleaned, selection.verdicts, strict=True):
        _, sources, _ = shards.read_cleaned_facts(path)
        lines: tuple[Lines, Lines] | None = None
        for name, keys in chosen.items():
            for index in np.flatnonzero(_is_in(sources, keys) & (verdict == 0)):
                if int(sources[index]) not in taken[name]:
                    taken[name].add(int(sources[index]))
                    lines = lines or shards.read_cleaned(path)
                    selection.split[name].append((lines[0].sentences[index], lines[1].sentences[index]))
                    verdict[index] = SPLIT
    held_out = HeldOut(
        np.unique(np.concatenate(list(chosen.values()))),
        hash_sentences([target for pairs in selection.split.values() for _, target in pairs]),
    )
    _drop_held_out(selection, cleaned, held_out)


def _choose_sources(settings: DataSettings, selection: Selection, cleaned: Sequence[Path]) -> dict[str, Hashes]:
    """Returns the sorted hashes of the source sentences of each set. Each set gets at least one."""
    share, most = settings.split.share, settings.split.most
    flips = {"test": np.uint64(0), "validation": np.uint64(2**64 - 1)}  # flipped, the largest is the smallest
    best = {name: np.zeros((2, 0), np.uint64) for name in settings.split_sets}  # [key and hash, sentences]
    for path, verdict in zip(cleaned, selection.verdicts, strict=True):
        _, sources, _ = shards.read_cleaned_facts(path)
        candidates = np.unique(sources[verdict == 0])
        for name, before in best.items():
            both = np.concatenate([before, np.stack([_mix(candidates) ^ flips[name], candidates])], axis=1)
            _, first = np.unique(both[0], return_index=True)
            best[name] = both[:, first[: max(most, len(best) + 1)]]
    different = max(values.shape[1] for values in best.values())
    if different <= len(best):
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in selection.removed.most_common() if count)
        raise LockstepError(
            f"The training text has only {different} different source sentence{'s' * (different != 1)} after cleaning "
            f"(removed: {reasons or 'none'}), too few to split off {' and '.join(best)} text.",
            "Add text, or name data.validation.",
        )
    below = {name: max(1, int((keys < np.uint64(share * 2**64)).sum())) for name, (keys, _) in best.items()}
    return {name: np.sort(hashes[: min(most, below[name])]) for name, (_, hashes) in best.items()}


def _mix(hashes: Hashes) -> Hashes:
    """Spreads hashes evenly over all 64-bit numbers: the last step of SplitMix64."""
    mixed = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _is_in(values: Hashes, wanted: Hashes) -> npt.NDArray[np.bool_]:
    """Marks the values that occur in a sorted array."""
    places = np.minimum(np.searchsorted(wanted, values), len(wanted) - 1)
    return wanted[places] == values
