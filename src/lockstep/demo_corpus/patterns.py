"""The sentence patterns of the corpus and their frequencies in percent."""

from lockstep.demo_corpus import descriptions, questions, relatives, sentences, subordination
from lockstep.demo_corpus.tables import Draw, Pair, pick

PERCENT = {
    sentences.statement: 10,
    sentences.state: 3,
    sentences.time_first: 8,
    sentences.place_first: 2,
    sentences.negation: 6,
    sentences.modal: 6,
    sentences.liking: 2,
    sentences.duration: 2,
    sentences.passive: 3,
    sentences.imperative: 3,
    descriptions.quality: 4,
    descriptions.becoming: 1,
    descriptions.comparison: 3,
    descriptions.profession: 1,
    descriptions.age: 1,
    descriptions.price: 1,
    descriptions.whereabouts: 2,
    descriptions.existence: 2,
    questions.yes_or_no: 5,
    questions.who: 2,
    questions.whom: 1,
    questions.what: 1,
    questions.which: 2,
    questions.where: 1,
    questions.when_or_why: 2,
    subordination.reason: 4,
    subordination.condition: 3,
    subordination.report: 3,
    subordination.indirect_question: 2,
    subordination.coordination: 3,
    subordination.intention: 2,
    subordination.purpose: 2,
    subordination.judgement: 1,
    relatives.at_subject: 3,
    relatives.at_object: 3,
}
_WEIGHTED = tuple(pattern for pattern, percent in PERCENT.items() for _ in range(percent))


def draw_sentence(draw: Draw) -> Pair:
    """Draws one sentence with its translation, capitalized and punctuated."""
    english, german = pick(draw, _WEIGHTED)(draw)
    return english[0].upper() + english[1:], german[0].upper() + german[1:]
