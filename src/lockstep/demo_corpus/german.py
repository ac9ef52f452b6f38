"""German inflection: declension tables and conjugation rules, without any vocabulary.

A form is found by one number, its slot: `gender * 4 + case`, where the plural counts as a fourth gender. That is how a
noun phrase becomes three table lookups instead of a chain of conditions, which keeps a generated sentence cheap.
"""

from collections.abc import Sequence
from typing import NamedTuple

from lockstep.demo_corpus.tables import cells

MASCULINE, FEMININE, NEUTER, PLURAL = range(4)
NOMINATIVE, ACCUSATIVE, DATIVE, GENITIVE = range(4)
FIRST, THIRD, MANY = range(3)
"""Agreement: "ich", "er/sie/es" and all plurals; the formal "Sie" takes the plural, and no other "you" is generated."""

ARTICLES = {"der": MASCULINE, "die": FEMININE, "das": NEUTER}
ENDINGS = ("e", "en", "er", "es", "em")
"""All endings an adjective can take; tables refer to them by index."""

Forms = tuple[tuple[str, int], ...]
"""For each of the 16 slots: the determiner's form with a space behind it, and which ending the adjective gets then."""

# One row per gender (masculine, feminine, neuter, plural), one column per case (nominative, accusative, dative,
# genitive).
_WEAK = cells("""
    e    en   en   en
    e    e    en   en
    e    e    en   en
    en   en   en   en
""")
_MIXED = cells("""
    er   en   en   en
    e    e    en   en
    es   es   en   en
    en   en   en   en
""")
_STRONG = cells("""
    er   en   em   en
    e    e    er   er
    es   es   em   en
    e    e    en   er
""")
_DER = cells("""
    der  den  dem  des
    die  die  der  der
    das  das  dem  des
    die  die  den  der
""")
_DIESER = cells("""
    er   en   em   es
    e    e    er   er
    es   es   em   es
    e    e    en   er
""")
_EIN = cells("""
    -    en   em   es
    e    e    er   er
    -    -    em   es
    e    e    en   er
""")
RELATIVE = cells("""
    der  den  dem    dessen
    die  die  der    deren
    das  das  dem    dessen
    die  die  denen  deren
""")
"""Relative pronouns by slot."""


def slot(gender: int, plural: bool, case: int) -> int:
    """The index of a form in every table of this grammar."""
    return (PLURAL if plural else gender) * 4 + case


def _forms(words: Sequence[str], endings: Sequence[str]) -> Forms:
    return tuple(
        (f"{word} " if word else "", ENDINGS.index(ending)) for word, ending in zip(words, endings, strict=True)
    )


def der_forms() -> Forms:
    """The definite article, followed by weak adjectives."""
    return _forms(_DER, _WEAK)


def dieser_forms(stem: str) -> Forms:
    """Words that carry the endings of "dieser" themselves: dies-, jed-, all-, welch-."""
    return _forms([stem + ending for ending in _DIESER], _WEAK)


def ein_forms(stem: str) -> Forms:
    """Words without an ending in three places, where the adjective has to show the gender: ein, kein, mein."""
    return _forms([stem + ending.strip("-") for ending in _EIN], _MIXED)


def strong_forms(word: str = "", inflected: bool = False) -> Forms:
    """No determiner at all, or one that says nothing about case: zwei, Annas, or (inflected) viel-, einig-."""
    return _forms([word + ending if inflected else word for ending in _STRONG], _STRONG)


def decline(noun: str, gender: int, genitive: str, plural: str) -> tuple[str, ...]:
    """The eight case forms, singular then plural.

    `genitive` is the ending of the genitive singular. A masculine noun whose genitive ends in -n is weak: it takes that
    ending in the accusative and dative too (der Student, den Studenten).
    """
    weak = genitive if gender == MASCULINE and genitive in ("n", "en") else ""
    dative_plural = plural if plural.endswith(("n", "s")) else plural + "n"
    return (noun, noun + weak, noun + weak, noun + genitive, plural, plural, dative_plural, plural)


class Conjugation(NamedTuple):
    """Everything a sentence needs from one German verb."""

    infinitive: str
    zu_infinitive: str
    present: tuple[str, str, str]
    """By agreement, without the separable prefix."""
    preterite: tuple[str, str, str] | None
    """Only for the verbs that use it in speech as well (hatte, mochte); all others tell the past in the perfect."""
    prefix: str
    participle: str
    auxiliary: tuple[str, str, str]


HABEN = ("habe", "hat", "haben")
SEIN = ("bin", "ist", "sind")
WERDEN = ("werde", "wird", "werden")
_UNSTRESSED_PREFIXES = ("be", "ver", "er", "ent", "zer", "emp", "über", "unter", "um", "wider")


def conjugate(entry: str) -> Conjugation:
    """Reads "kaufen", "an|rufen ruft angerufen", "gehen geht gegangen +sein" or "mögen mag gemocht =mochte".

    The third person and the participle are given for irregular verbs only; `+sein` chooses the auxiliary and `=` names
    a preterite. The bar marks a separable prefix.
    """
    words = entry.split()
    preterite = next((word[1:] for word in words if word.startswith("=")), None)
    parts = [word for word in words if word[0] not in "+="]
    prefix, _, simple = parts[0].rpartition("|")
    stem = simple[:-2] if simple.endswith("en") else simple[:-1]
    third, participle = parts[1:] if len(parts) == 3 else _regular(prefix, simple, stem)
    first = third if third in ("mag", "weiß") else _first_person(simple, stem)
    return Conjugation(
        infinitive=prefix + simple,
        zu_infinitive=f"{prefix}zu{simple}" if prefix else f"zu {simple}",
        present=(first, third, simple),
        preterite=_preterite(preterite) if preterite else None,
        prefix=prefix,
        participle=participle,
        auxiliary=SEIN if "+sein" in words else HABEN,
    )


def _regular(prefix: str, simple: str, stem: str) -> tuple[str, str]:
    """Third person and participle of a weak verb."""
    consonant_cluster = stem[-1] in "mn" and stem[-2] not in "aeiouäöürlhmn"
    third = stem + ("et" if stem[-1] in "td" or consonant_cluster else "t")
    without_ge = simple.startswith(_UNSTRESSED_PREFIXES) or simple.endswith("ieren")
    return third, prefix + ("" if without_ge else "ge") + third


def _first_person(simple: str, stem: str) -> str:
    return f"{stem[:-2]}le" if simple.endswith("eln") else f"{stem}e"


def _preterite(form: str) -> tuple[str, str, str]:
    return (form, form, f"{form}n")
