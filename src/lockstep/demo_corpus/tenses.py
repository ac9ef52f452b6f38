"""Verb groups: the forms of a verb in both languages for every tense and agreement.

A tense is one English construction for time or modality. Several of them share a German form (simple past and present
perfect both become the perfect), but every tense has only one German form.
"""

from typing import NamedTuple

from lockstep.demo_corpus.english import Inflection
from lockstep.demo_corpus.german import SEIN, WERDEN, Conjugation

(
    PRESENT,
    PROGRESSIVE,
    PAST,
    BARE_PAST,
    FUTURE,
    PERFECT,
    SINCE,
    LIKES_TO,
    CAN,
    WANTS_TO,
    HAS_TO,
    SHOULD,
    IS_ALLOWED_TO,
    WOULD_LIKE_TO,
    WAS_ABLE_TO,
    WANTED_TO,
    HAD_TO,
    WAS_ALLOWED_TO,
    PASSIVE_PRESENT,
    PASSIVE_PAST,
) = range(20)
MODALS_NOW = (CAN, WANTS_TO, HAS_TO, SHOULD, IS_ALLOWED_TO, WOULD_LIKE_TO)
MODALS_PAST = (WAS_ABLE_TO, WANTED_TO, HAD_TO, WAS_ALLOWED_TO)

Three = tuple[str, str, str]
"""One form per agreement: I, he/she/it, plural."""
EnglishParts = tuple[str, str, str, str, str]
"""The English half of a group."""

_DO: Three = ("do", "does", "do")
_HAVE: Three = ("have", "has", "have")
_AM: Three = ("am", "is", "are")
_WAS: Three = ("was", "was", "were")
_WURDE: Three = ("wurde", "wurde", "wurden")


class VerbGroup(NamedTuple):
    """The verbal parts of one clause. Every part that is not the first of a question starts with a space."""

    lead: str
    """English auxiliary; an adverb such as "often" follows it."""
    core: str
    """The rest of the English verb in a statement."""
    negated: str
    aux: str
    """The English word that opens a question."""
    rest: str
    """What follows the subject in a question."""
    finite: str
    """German verb in second position."""
    tail: str
    """What stands at the end of a German main clause: prefix, participle or infinitive."""
    final: str
    """All verbs at the end of a German subordinate clause."""


def _english_simple(plain: str, do: str, base: str) -> EnglishParts:
    """Builds the parts of a tense that needs "do" in questions and negations."""
    return "", f" {plain}", f" {do} not {base}", do, f" {base}"


def _english_auxiliary(aux: str, rest: str) -> EnglishParts:
    negated = "cannot" if aux == "can" else f"{aux} not"
    return f" {aux}", f" {rest}", f" {negated} {rest}", aux, f" {rest}"


def _german_simple(verb: Conjugation, finite: str) -> Three:
    return finite, f" {verb.prefix}" if verb.prefix else "", f" {verb.prefix}{finite}"


def _german_compound(finite: str, rest: str) -> Three:
    return finite, f" {rest}", f" {rest} {finite}"


def build_groups(
    english: Inflection, german: Conjugation, state: bool, intended: bool
) -> tuple[tuple[VerbGroup, ...], ...]:
    """Returns all groups of a verb by tense and agreement.

    The simple present replaces two English forms: the progressive of a state or of an unintended event ("is knowing", "is
    losing"), and a past that looks like the present without a time expression ("they read").
    """
    by_agreement = [_build_groups_for(english, german, state, intended, who) for who in range(3)]
    return tuple(tuple(groups[tense] for groups in by_agreement) for tense in range(len(by_agreement[0])))


def _build_groups_for(
    english: Inflection, german: Conjugation, state: bool, intended: bool, who: int
) -> dict[int, VerbGroup]:
    """Returns the groups for one agreement by tense."""
    base = english.base
    present_de = _german_simple(german, german.present[who])
    perfect_de = _german_compound(german.auxiliary[who], german.participle)
    past_de = _german_simple(german, german.preterite[who]) if german.preterite else perfect_de
    present = VerbGroup(*_english_simple(english.third if who == 1 else base, _DO[who], base), *present_de)
    progressive = VerbGroup(*_english_auxiliary(_AM[who], english.gerund), *present_de)
    past = VerbGroup(*_english_simple(english.past, "did", base), *past_de)
    since = english.participle if state else f"been {english.gerund}"

    def modal(forms: Three, parts: EnglishParts) -> VerbGroup:
        return VerbGroup(*parts, *_german_compound(forms[who], german.infinitive))

    return {
        PRESENT: present,
        PROGRESSIVE: progressive if intended and not state else present,
        PAST: past,
        BARE_PAST: present if english.past_looks_present else past,
        FUTURE: modal(WERDEN, _english_auxiliary("will", base)),
        PERFECT: VerbGroup(*_english_auxiliary(_HAVE[who], english.participle), *perfect_de),
        SINCE: VerbGroup(*_english_auxiliary(_HAVE[who], since), *present_de),
        LIKES_TO: VerbGroup(*_to_infinitive("like", ("like", "likes", "like")[who], _DO[who], base), *present_de),
        CAN: modal(("kann", "kann", "können"), _english_auxiliary("can", base)),
        WANTS_TO: modal(
            ("will", "will", "wollen"), _to_infinitive("want", ("want", "wants", "want")[who], _DO[who], base)
        ),
        HAS_TO: modal(("muss", "muss", "müssen"), _to_infinitive("have", _HAVE[who], _DO[who], base)),
        SHOULD: modal(("sollte", "sollte", "sollten"), _english_auxiliary("should", base)),
        IS_ALLOWED_TO: modal(("darf", "darf", "dürfen"), _english_auxiliary(_AM[who], f"allowed to {base}")),
        WOULD_LIKE_TO: modal(("möchte", "möchte", "möchten"), _english_auxiliary("would", f"like to {base}")),
        WAS_ABLE_TO: modal(("konnte", "konnte", "konnten"), _english_auxiliary(_WAS[who], f"able to {base}")),
        WANTED_TO: modal(("wollte", "wollte", "wollten"), _to_infinitive("want", "wanted", "did", base)),
        HAD_TO: modal(("musste", "musste", "mussten"), _to_infinitive("have", "had", "did", base)),
        WAS_ALLOWED_TO: modal(("durfte", "durfte", "durften"), _english_auxiliary(_WAS[who], f"allowed to {base}")),
        PASSIVE_PRESENT: VerbGroup(
            *_english_auxiliary(_AM[who], english.participle), *_german_compound(WERDEN[who], german.participle)
        ),
        PASSIVE_PAST: VerbGroup(
            *_english_auxiliary(_WAS[who], english.participle), *_german_compound(_WURDE[who], german.participle)
        ),
    }


def _to_infinitive(verb: str, plain: str, do: str, base: str) -> EnglishParts:
    return _english_simple(f"{plain} to {base}", do, f"{verb} to {base}")


def _copula(who: int) -> list[VerbGroup]:
    def simple(english: str, german: str) -> VerbGroup:
        return VerbGroup(f" {english}", "", f" {english} not", english, "", german, "", f" {german}")

    present = simple(_AM[who], SEIN[who])
    past = simple(_WAS[who], ("war", "war", "waren")[who])
    future = VerbGroup(*_english_auxiliary("will", "be"), *_german_compound(WERDEN[who], "sein"))
    return [present, present, past, past, future]


COPULA: tuple[tuple[VerbGroup, ...], ...] = tuple(zip(*(_copula(who) for who in range(3)), strict=True))
"""The groups of "be" from PRESENT to FUTURE."""
