"""German inflection: declension tables and conjugation rules. It has no vocabulary.

The index of a form in a table is its slot, `gender * 4 + case`, where the plural counts as a fourth gender. A noun phrase
is three table lookups, so that generating a sentence is fast.
"""

from collections.abc import Sequence
from typing import NamedTuple

from lockstep.demo_corpus.tables import read_cells

MASCULINE, FEMININE, NEUTER, PLURAL = range(4)
NOMINATIVE, ACCUSATIVE, DATIVE, GENITIVE = range(4)
FIRST, THIRD, MANY = range(3)
"""Agreement: "ich", "er/sie/es", and all plurals. The only "you" is the formal "Sie", which takes the plural."""

ARTICLES = {"der": MASCULINE, "die": FEMININE, "das": NEUTER}
ENDINGS = ("e", "en", "er", "es", "em")
"""All endings of adjectives. Tables refer to them by index."""

Forms = tuple[tuple[str, int], ...]
"""For each of the 16 slots: the form of the determiner with a space after it, and the ending of a following adjective."""

# One row per gender (masculine, feminine, neuter, plural), one column per case (nominative, accusative, dative,
# genitive).
_WEAK = read_cells("""
    e    en   en   en
    e    e    en   en
    e    e    en   en
    en   en   en   en
""")
_MIXED = read_cells("""
    er   en   en   en
    e    e    en   en
    es   es   en   en
    en   en   en   en
""")
_STRONG = read_cells("""
    er   en   em   en
    e    e    er   er
    es   es   em   en
    e    e    en   er
""")
_DER = read_cells("""
    der  den  dem  des
    die  die  der  der
    das  das  dem  des
    die  die  den  der
""")
_DIESER = read_cells("""
    er   en   em   es
    e    e    er   er
    es   es   em   es
    e    e    en   er
""")
_EIN = read_cells("""
    -    en   em   es
    e    e    er   er
    -    -    em   es
    e    e    en   er
""")
RELATIVE = read_cells("""
    der  den  dem    dessen
    die  die  der    deren
    das  das  dem    dessen
    die  die  denen  deren
""")
"""Relative pronouns by slot."""


def find_slot(gender: int, plural: bool, case: int) -> int:
    """Returns the index of a form in the tables."""
    return (PLURAL if plural else gender) * 4 + case


def _combine_forms(words: Sequence[str], endings: Sequence[str]) -> Forms:
    return tuple(
        (f"{word} " if word else "", ENDINGS.index(ending)) for word, ending in zip(words, endings, strict=True)
    )


def decline_der() -> Forms:
    """Returns the forms of the definite article. Adjectives after it are weak."""
    return _combine_forms(_DER, _WEAK)


def decline_dieser(stem: str) -> Forms:
    """Returns the forms of a word with the endings of "dieser": dies-, jed-, all-, welch-."""
    return _combine_forms([stem + ending for ending in _DIESER], _WEAK)


def decline_ein(stem: str) -> Forms:
    """Returns the forms of ein, kein or mein, which lack an ending in three slots: there the adjective shows the gender."""
    return _combine_forms([stem + ending.strip("-") for ending in _EIN], _MIXED)


def decline_strong(word: str = "", inflected: bool = False) -> Forms:
    """Returns the forms before strong adjectives: no determiner, zwei, Annas, or (inflected) viel-, einig-."""
    return _combine_forms([word + ending if inflected else word for ending in _STRONG], _STRONG)


def decline(noun: str, gender: int, genitive: str, plural: str) -> tuple[str, ...]:
    """Returns the eight case forms, singular then plural.

    `genitive` is the ending of the genitive singular. A masculine noun whose genitive ends in -n is weak: it takes that
    ending in the accusative and dative too (der Student, den Studenten).
    """
    weak = genitive if gender == MASCULINE and genitive in ("n", "en") else ""
    dative_plural = plural if plural.endswith(("n", "s")) else plural + "n"
    return (noun, noun + weak, noun + weak, noun + genitive, plural, plural, dative_plural, plural)


class Conjugation(NamedTuple):
    """The forms of one German verb."""

    infinitive: str
    zu_infinitive: str
    present: tuple[str, str, str]
    """By agreement, without the separable prefix."""
    preterite: tuple[str, str, str] | None
    """Only for verbs that use it in speech (hatte, mochte). All others use the perfect for the past."""
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
    third, participle = parts[1:] if len(parts) == 3 else _conjugate_regular(prefix, simple, stem)
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


def _conjugate_regular(prefix: str, simple: str, stem: str) -> tuple[str, str]:
    """Returns the third person and the participle of a weak verb."""
    consonant_cluster = stem[-1] in "mn" and stem[-2] not in "aeiouäöürlhmn"
    third = stem + ("et" if stem[-1] in "td" or consonant_cluster else "t")
    without_ge = simple.startswith(_UNSTRESSED_PREFIXES) or simple.endswith("ieren")
    return third, prefix + ("" if without_ge else "ge") + third


def _first_person(simple: str, stem: str) -> str:
    return f"{stem[:-2]}le" if simple.endswith("eln") else f"{stem}e"


def _preterite(form: str) -> tuple[str, str, str]:
    return (form, form, f"{form}n")
