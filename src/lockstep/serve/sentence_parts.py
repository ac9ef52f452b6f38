"""Cuts text into its sentences and what is between them, and puts translated sentences back in place."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lockstep.data.text.languages import uses_spaces
from lockstep.translate.split_sentences import find_sentences


@dataclass
class TextParts:
    """The sentences of a text to translate, and the gaps around them: `gaps[i]` is before sentence i, the last one after
    the last sentence. Gaps are copied as they are. They have whitespace, all line breaks and text without any letter."""

    gaps: list[str] = field(default_factory=lambda: [""])
    sentences: list[str] = field(default_factory=list)

    def add_gap(self, text: str) -> None:
        self.gaps[-1] += text

    def add_sentence(self, text: str) -> None:
        self.sentences.append(text)
        self.gaps.append("")

    def add_text(self, text: str, language: str, encode_gap: Callable[[str], str] = str) -> None:
        """Adds the sentences of a text and the gaps between them. No sentence crosses a line break."""
        for line in text.splitlines(keepends=True):
            end = 0
            for begin, next_end in find_sentences(line, language):
                self.add_gap(encode_gap(line[end:begin]))
                sentence, end = line[begin:next_end], next_end
                if has_letters(sentence):
                    self.add_sentence(sentence)
                else:
                    self.add_gap(encode_gap(sentence))
            self.add_gap(encode_gap(line[end:]))

    def join(self, sentences: Sequence[str], language: str, encode: Callable[[str], str] = str) -> str:
        """Returns the text with these sentences in place of the original ones. Between sentences without a gap, as in
        Chinese, a language that uses spaces gets one."""
        joint = " " if uses_spaces(language) else ""
        last = len(self.gaps) - 1
        gaps = [gap or joint if 0 < place < last else gap for place, gap in enumerate(self.gaps)]
        texts = [encode(sentence.strip()) for sentence in sentences]
        return "".join(part for pair in zip(gaps, [*texts, ""], strict=True) for part in pair)


def split_text(text: str, language: str) -> TextParts:
    """Returns the sentences and gaps of plain text."""
    parts = TextParts()
    parts.add_text(text, language)
    return parts


def has_letters(text: str) -> bool:
    return any(map(str.isalpha, text))
