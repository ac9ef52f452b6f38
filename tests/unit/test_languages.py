"""Swapped sides and wrong languages in training text."""

from pathlib import Path

import pytest

from lockstep.cli.describe_command import describe_cleaning
from lockstep.data.corpus.binary_corpus import Corpus
from lockstep.data.corpus.prepare import prepare
from lockstep.data.data_settings import DataSettings
from lockstep.data.text.identify import identify_language
from lockstep.errors import LockstepError

ENGLISH = [
    "Two young men are playing football in the park",
    "A woman in a red dress is walking her dog along the river",
    "The children have eaten all the apples from the garden",
    "Please close the door before you leave the house",
    "He was reading a newspaper while he waited for the train",
    "My sister bought a new bicycle last week in the city",
    "There is a small church behind the old town hall",
    "We would like to order some soup and a glass of water",
]
GERMAN = [
    "Zwei junge Männer spielen im Park Fußball",
    "Eine Frau in einem roten Kleid führt ihren Hund am Fluss spazieren",
    "Die Kinder haben alle Äpfel aus dem Garten gegessen",
    "Bitte schließen Sie die Tür, bevor Sie das Haus verlassen",
    "Er las eine Zeitung, während er auf den Zug wartete",
    "Meine Schwester hat letzte Woche in der Stadt ein neues Fahrrad gekauft",
    "Hinter dem alten Rathaus steht eine kleine Kirche",
    "Wir möchten gerne eine Suppe und ein Glas Wasser bestellen",
]
FRENCH = "Les enfants ont mangé toutes les pommes du jardin de leur grand-mère"
RUSSIAN = ["Двое молодых мужчин играют в футбол в парке", "Дети съели все яблоки из сада своей бабушки"]


def prepare_pairs(
    folder: Path,
    pairs: list[tuple[str, str]],
    languages: tuple[str, str] = ("en", "de"),
    size: int = 330,
    split: bool = False,
) -> Corpus:
    for side, language in enumerate(languages):
        (folder / f"train.{language}").write_text("".join(f"{pair[side]}\n" for pair in pairs))
        (folder / f"val.{language}").write_text("x\n")
    values = {"folder": folder, "train": ["train"], "validation": [] if split else ["val"], "corpus": folder / "c"}
    return prepare(DataSettings.model_validate(values | {"languages": languages, "vocabulary": {"size": size}}))


def test_swapped_sides_and_wrong_languages_are_removed(tmp_path: Path) -> None:
    pairs = list(zip(ENGLISH, GERMAN, strict=True))
    pairs += [(GERMAN[0], ENGLISH[0]), (ENGLISH[1], FRENCH), (FRENCH, GERMAN[2]), (ENGLISH[3], ENGLISH[4])]
    pairs += [
        ("OK", "Oui"),
        ("Rue de la Paix", "Rue de la Paix"),
        ("VERY LARGE LETTERS SAY THIS", "GROSSE LETTERN SAGEN DAS HIER"),
    ]
    train = prepare_pairs(tmp_path, pairs).facts["sets"]["train"]
    assert train["removed"] == {"identical": 1, "swapped": 1, "language": 3}


def test_swapped_sides_in_different_scripts_count_as_swapped(tmp_path: Path) -> None:
    pairs = [(ENGLISH[0], RUSSIAN[0]), (RUSSIAN[1], ENGLISH[2]), (ENGLISH[1], GERMAN[1])]
    train = prepare_pairs(
        tmp_path, pairs * 1 + [(text, f"{RUSSIAN[0]} и {n}") for n, text in enumerate(ENGLISH)], ("en", "ru")
    )
    assert train.facts["sets"]["train"]["removed"] == {"swapped": 1, "script": 1}


JAPANESE = [
    "公園で二人の若い男性がサッカーをしています",
    "赤いドレスを着た女性が川沿いを犬と散歩しています",
    "子供たちは庭のりんごを全部食べました",
    "家を出る前にドアを閉めてください",
]
GREEK = [
    "Δύο νεαροί άνδρες παίζουν ποδόσφαιρο στο πάρκο",
    "Τα παιδιά έφαγαν όλα τα μήλα από τον κήπο",
    "Παρακαλώ κλείσε την πόρτα πριν φύγεις από το σπίτι",
    "Πίσω από το δημαρχείο υπάρχει μια μικρή εκκλησία",
]


@pytest.mark.parametrize(
    ("source", "target", "languages"),
    [
        (JAPANESE, ENGLISH, ("en", "ja")),
        (ENGLISH, JAPANESE, ("ja", "en")),
        (ENGLISH, GREEK, ("el", "en")),
        (ENGLISH, GREEK, ("en", "ru")),
        (["Yes", "No", "Open", "Close"], ["Да", "Нет", "Открыть", "Закрыть"], ("ru", "en")),
    ],
)
@pytest.mark.parametrize("split", [False, True])
def test_languages_that_do_not_fit_the_script_of_most_pairs_are_an_error(
    tmp_path: Path, source: list[str], target: list[str], languages: tuple[str, str], split: bool
) -> None:
    pairs = [*zip(source, target, strict=False), ("OK", "OK")]
    first, second = languages
    with pytest.raises(
        LockstepError, match=rf"4 of 5 training pairs are not in {first} \(source\) and {second}"
    ) as caught:
        prepare_pairs(tmp_path, pairs, languages, split=split)
    assert "wrong order" in caught.value.remedy
    assert caught.value.code == 2


def test_made_up_text_and_unknown_languages_are_not_judged(tmp_path: Path) -> None:
    made_up = [(f"ba de {n % 7} fi go ku {n}", f"Ku Go Fi {n} De Ba {n % 7}") for n in range(100)]
    assert prepare_pairs(tmp_path, made_up, size=290).facts["sets"]["train"]["removed"] == {}
    (tmp_path / "other").mkdir()
    pairs = [*zip(GERMAN, ENGLISH, strict=True)]
    assert prepare_pairs(tmp_path / "other", pairs, ("xx", "qq")).facts["sets"]["train"]["removed"] == {}


def test_text_that_is_as_a_whole_in_other_languages_is_said_and_kept(tmp_path: Path) -> None:
    corpus = prepare_pairs(tmp_path, [*zip(GERMAN, ENGLISH, strict=True)], ("fr", "it"))
    assert corpus.facts["sets"]["train"]["removed"] == {}
    assert "does not look like fr and it" in describe_cleaning(corpus.facts)[0]


@pytest.mark.parametrize("swapped", [1.0, 0.7])
def test_text_with_swapped_sides_is_refused(tmp_path: Path, swapped: float) -> None:
    pairs = [*zip(ENGLISH, GERMAN, strict=True)]
    count = round(swapped * len(pairs))
    with pytest.raises(LockstepError, match="sides are swapped: of") as caught:
        prepare_pairs(tmp_path, [*((german, english) for english, german in pairs[:count]), *pairs[count:]])
    assert "Set data.languages to [de, en]" in caught.value.remedy


@pytest.mark.parametrize(
    ("sentences", "language"), [(ENGLISH, "en"), (GERMAN, "de"), ([FRENCH], "fr"), (RUSSIAN, "ru")]
)
def test_the_language_of_a_text_is_identified(sentences: list[str], language: str) -> None:
    code, confidence = identify_language(sentences)
    assert code == language
    assert confidence >= 0.5


def test_text_without_sentences_has_no_language() -> None:
    assert identify_language(["", " "]) == ("und", 0.0)
