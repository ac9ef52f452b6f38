"""What a language code says about text: its script, whether it puts spaces between words, which codes match.

Only common languages are listed. Text in any other language is not checked, so cleaning drops none of it.
"""

import re
from functools import lru_cache

import numpy as np

_RANGES = {  # code points of the letters of a script, as inside a regular expression's brackets
    "Latn": r"A-Za-z\u00aa\u00b5\u00ba\u00c0-\u02ff\u1d00-\u1eff\u2c60-\u2c7f\ua720-\ua7ff\uab30-\uab6f\ufb00-\ufb06"
    r"\uff21-\uff3a\uff41-\uff5a",
    "Cyrl": r"\u0400-\u052f\u1c80-\u1c8f\u2de0-\u2dff\ua640-\ua69f",
    "Grek": r"\u0370-\u03ff\u1f00-\u1fff",
    "Arab": r"\u0600-\u06ff\u0750-\u077f\u08a0-\u08ff\ufb50-\ufdff\ufe70-\ufeff",
    "Hebr": r"\u0590-\u05ff\ufb1d-\ufb4f",
    "Deva": r"\u0900-\u097f\ua8e0-\ua8ff",
    "Beng": r"\u0980-\u09ff",
    "Guru": r"\u0a00-\u0a7f",
    "Gujr": r"\u0a80-\u0aff",
    "Taml": r"\u0b80-\u0bff",
    "Telu": r"\u0c00-\u0c7f",
    "Knda": r"\u0c80-\u0cff",
    "Mlym": r"\u0d00-\u0d7f",
    "Sinh": r"\u0d80-\u0dff",
    "Thai": r"\u0e00-\u0e7f",
    "Laoo": r"\u0e80-\u0eff",
    "Mymr": r"\u1000-\u109f\uaa60-\uaa7f",
    "Geor": r"\u10a0-\u10ff\u1c90-\u1cbf\u2d00-\u2d2f",
    "Armn": r"\u0530-\u058f\ufb13-\ufb17",
    "Ethi": r"\u1200-\u139f\u2d80-\u2ddf",
    "Khmr": r"\u1780-\u17ff",
    "Hani": r"\u2e80-\u2fdf\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff",
    "Jpan": r"\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"
    r"\U00020000-\U0003ffff",
    "Kore": r"\u1100-\u11ff\u3130-\u318f\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff",
}
_SCRIPT_ALIASES = {"Hans": "Hani", "Hant": "Hani", "Hang": "Kore"}
_NEUTRAL = r"\u00b2\u00b3\u00b9\u00bc-\u00be\u2070-\u218f\u2460-\u24ff"
"""Superscript and circled digits, fractions, letter-like symbols: Python calls them letters, but they have no script."""
_DENSE = {"Hani", "Jpan", "Kore"}
"""Scripts in which one character carries as much text as several letters."""
_LANGUAGES = {
    "Latn": "af az bs ca cs cy da de en es et eu fi fr ga gl hr ht hu id is it lb lt lv ms mt nb nl nn no pl pt ro sk sl "
    "so sq sv sw tl tr vi xh zu",
    "Cyrl": "be bg kk ky mk mn ru tg uk",
    "Grek": "el",
    "Arab": "ar fa ps ur",
    "Hebr": "he yi",
    "Deva": "hi mr ne",
    "Beng": "as bn",
    "Guru": "pa",
    "Gujr": "gu",
    "Taml": "ta",
    "Telu": "te",
    "Knda": "kn",
    "Mlym": "ml",
    "Sinh": "si",
    "Thai": "th",
    "Laoo": "lo",
    "Mymr": "my",
    "Geor": "ka",
    "Armn": "hy",
    "Ethi": "am ti",
    "Khmr": "km",
    "Hani": "zh yue",
    "Jpan": "ja",
    "Kore": "ko",
}
_SCRIPT_OF = {language: script for script, languages in _LANGUAGES.items() for language in languages.split()}
_NAMES = (
    "ar arabic ara العربية, bg bulgarian bul български, ca catalan català, cs czech ces cze čeština cestina, "
    "da danish dan dansk, de german deutsch deu ger, el greek ell gre ελληνικά, en english eng englisch anglais inglés, "
    "es spanish español espanol castellano spa, et estonian est eesti, eu basque euskara, fa persian farsi fas فارسی, "
    "fi finnish fin suomi, fr french français francais fra fre, gl galician galego, he hebrew heb עברית, "
    "hi hindi hin हिन्दी, hr croatian hrv hrvatski, hu hungarian hun magyar, id indonesian ind, is icelandic íslenska, "
    "it italian italiano ita, ja japanese jpn 日本語, ko korean kor 한국어, lt lithuanian lit, lv latvian lav, "
    "nl dutch nederlands nld dut, no norwegian norsk nor, pl polish polski pol, pt portuguese português portugues por, "
    "ro romanian română romana ron rum, ru russian русский rus, sk slovak slovenčina slk, sl slovenian slovenščina slv, "
    "sr serbian српски srpski, sv swedish svenska swe, th thai tha ไทย, tr turkish türkçe tur, uk ukrainian ukr, "
    "vi vietnamese vie, zh chinese 中文 zho chi"
)
_CODES = {name: names.split()[0] for names in _NAMES.split(", ") for name in names.split()}
"""Language codes by the codes and names that people write into file names and headings."""
_OTHERS = (
    "ace an ary arz ba bcl br crh dz eo ext fo fuv fy gcf gcr gd gom grc gug guw ha hbo ig in iw jv kab kik ku la lg lij "
    "ln ltg mg nso oc om or pcm qu rw sa sdh se sh sn st tk tt ug uz uzs vec vo wa wuu yo fil cmn"
)
"""Other codes that py3langid knows. They are too short or too rare to look for them in names."""
_AMBIGUOUS = {"am", "as", "be", "id", "is", "it", "he", "hi", "ms", "my", "no", "pa", "si", "so", "tl"}
_WITHOUT_SPACES = {"ja", "km", "lo", "my", "th", "yue", "zh"}


class Script:
    """The script of a language. It measures how much of a text is written in other scripts."""

    def __init__(self, name: str, allows_names: bool) -> None:
        own = _RANGES[name]
        self.suspicious = np.arange(256) >= 0xCD if name == "Latn" else None
        """Mask of UTF-8 bytes: text without any of them has no letter of another script. None: check every text."""
        self.allows_names = allows_names and name != "Latn"
        """May names in Latin letters be the larger part of a text?"""
        self._dense = 3 if name in _DENSE else 1
        self._own = re.compile(f"[{own}]+")
        self._other = re.compile(rf"[^\W\d_{own}{_NEUTRAL}]+")

    def foreign_share(self, text: str) -> float:
        """Returns the share of the letters that belong to other scripts.

        An own letter counts three times if names are allowed, so that a brand name in Latin letters does not outweigh the
        sentence around it.
        """
        if (first := self._other.search(text)) is None:
            return 0.0
        other = sum(map(len, self._other.findall(text, first.start())))
        weight = 3 if self.allows_names and self._dense == 1 else 1
        return other / (other + weight * self.count_own(text))

    def count_own(self, text: str) -> int:
        """Counts the letters of this script. A Chinese, Japanese or Korean character counts as three."""
        return self._dense * sum(map(len, self._own.findall(text)))


@lru_cache
def find_script(language: str, allows_names: bool = True) -> Script | None:
    """Returns the script that a language code (`zh-Hant`, `sr-Latn`, `en-US`) names or implies, or None."""
    name = name_script(language)
    return Script(name, allows_names) if name in _RANGES else None


def name_script(language: str) -> str | None:
    """Returns the four letters of the script that a language code names or implies, or None."""
    base, *subtags = split_code(language)
    for subtag in subtags:
        if len(subtag) == 4 and subtag.isalpha():
            return _SCRIPT_ALIASES.get(subtag.title(), subtag.title())
    return _SCRIPT_OF.get(base)


def find_code(name: str) -> str | None:
    """Returns the code of a common language from its code or its name: `de` for de, DEU, German and Deutsch, or None."""
    plain = name.strip().lower()
    return _CODES.get(plain) or (plain if plain in _SCRIPT_OF else None)


def name_language(language: str) -> str:
    """Returns the English name of a language, such as German for de and de-AT; its code if the name is not known."""
    base = split_code(language)[0]
    listed = (names.split() for names in _NAMES.split(", "))
    return next((names[1].title() for names in listed if names[0] == base), language)


def is_known(language: str) -> bool:
    """Is this the code of a language that Lockstep or py3langid knows?"""
    base = split_code(language)[0]
    return base in _SCRIPT_OF or base in _CODES.values() or base in _OTHERS.split()


def find_code_in(text: str) -> str | None:
    """Returns the code of the language that a heading names: `en` for English, en-US, `English (US)` and text_en, or None.
    Codes that are words or abbreviations, such as id and no, count only if the heading is nothing else."""
    if re.fullmatch(r"[A-Za-z]{2,3}([_-][A-Za-z0-9]{2,8})+", text.strip()) and find_code(split_code(text)[0]):
        return text.strip()
    if (code := find_code(text)) is not None:
        return code
    words = [word for word in re.split(r"[\W\d_]+", text.lower()) if len(word) > 2 or word not in _AMBIGUOUS]
    codes = {code for word in words if (code := find_code(word)) is not None}
    return codes.pop() if len(codes) == 1 else None


def uses_spaces(language: str) -> bool:
    """Does this language put spaces between words?"""
    return split_code(language)[0] not in _WITHOUT_SPACES


def matches_language(wanted: str, code: str) -> bool:
    """Does a language code match the wanted one? `en` matches `en-US` and `EN_gb`; `pt-BR` does not match `pt-PT`."""
    wanted_parts = split_code(wanted)
    return split_code(code)[: len(wanted_parts)] == wanted_parts


def split_code(language: str) -> list[str]:
    """Returns the parts of a language code in lower case: `pt_BR` is pt and br."""
    return language.strip().lower().replace("_", "-").split("-")
