"""English inflection: rules for plurals, verb forms and the indefinite article. It has no vocabulary."""

import re
from typing import NamedTuple

_SIBILANT = ("s", "x", "z", "ch", "sh")
_DOUBLING = re.compile(r"^[^aeiou]*[aeiou][bdgklmnprt]$")
"""One syllable ending in a single vowel and a single consonant: run, plan, sit."""


def pluralize(noun: str) -> str:
    """Returns the regular plural. In "cup of tea" only "cup" changes."""
    head, of, rest = noun.partition(" of ")
    return _add_s(head) + of + rest


def choose_article(word: str) -> str:
    """Returns the article and a space, chosen by sound: an honest man, a university."""
    vowel = word[0] in "aeiou" and not word.startswith(("uni", "use", "eu"))
    return "an " if vowel or word.startswith("hon") and word != "honey" else "a "


def add_possessive(noun: str, plural: bool) -> str:
    """Adds 's, or only an apostrophe to a plural in -s: the boss's, the bosses', the men's."""
    return f"{noun}'" if plural and noun.endswith("s") else f"{noun}'s"


def build_comparative(adjective: str) -> str:
    """Returns the comparative of a long adjective. The table lists the comparatives of short ones."""
    return f"more {adjective}"


def _add_s(word: str) -> str:
    if word.endswith(_SIBILANT):
        return f"{word}es"
    if word.endswith("y") and word[-2] not in "aeou":
        return f"{word[:-1]}ies"
    return f"{word}s"


class Inflection(NamedTuple):
    """The five forms of one English verb, each with its particle ("turns on")."""

    base: str
    third: str
    past: str
    participle: str
    gerund: str

    @property
    def past_looks_present(self) -> bool:
        """Could "they read" be either tense?"""
        return self.base == self.past


def inflect(entry: str) -> Inflection:
    """Reads "call", "turn on", "buy/bought/bought" or "travel/travelled/travelled/travelling".

    Only the first word changes: "get up/got/got" gives "got up".
    """
    phrase, *irregular = entry.split("/")
    base, space, particle = phrase.partition(" ")
    rest = space + particle
    past, participle = irregular[:2] if irregular else (_add_ed(base), _add_ed(base))
    gerund = irregular[2] if len(irregular) > 2 else _add_ing(base)
    third = {"have": "has", "go": "goes"}.get(base) or _add_s(base)
    return Inflection(base + rest, third + rest, past + rest, participle + rest, gerund + rest)


def _add_ed(base: str) -> str:
    if base.endswith("e"):
        return f"{base}d"
    if base.endswith("y") and base[-2] not in "aeou":
        return f"{base[:-1]}ied"
    return f"{base}{base[-1]}ed" if _DOUBLING.match(base) else f"{base}ed"


def _add_ing(base: str) -> str:
    if base.endswith("e") and not base.endswith("ee"):
        return f"{base[:-1]}ing"
    return f"{base}{base[-1]}ing" if _DOUBLING.match(base) else f"{base}ing"
