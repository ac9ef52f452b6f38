"""The encoding of text files. UTF-16 and UTF-32 are recognized and read as UTF-8. Others are guessed, for a message."""

import codecs
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from lockstep.data.text.compressed import read_blocks
from lockstep.errors import LockstepError

_MARKS = (  # UTF-32 first: its mark starts with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, "utf-8"),
)
_HEAD_BYTES = 1 << 14
_FEW_ZEROS = 0.005
"""Zero bytes are control characters in UTF-8; text has hardly any."""
_SINGLE_BYTE = ("cp1252", "cp1250", "cp1251", "koi8-r", "cp1253", "cp1254", "cp1255", "cp1256")
_GUESSES = ("shift_jis", "euc-jp", "euc-kr", "gb18030", "big5", *_SINGLE_BYTE)
_EAST_ASIAN = re.compile(r"[\u3000-\u30ff\u4e00-\u9fff\uac00-\ud7a3\uff01-\uff65]")
_KANA_OR_HANGUL = re.compile(r"[\u3040-\u30ff\uac00-\ud7a3]")
_WORD = re.compile(r"[^\s\x00-\x40\[-`{-\x7f]+")


def detect_encoding(head: bytes) -> str:
    """Returns utf-8, utf-16, utf-16-le, utf-16-be or utf-32, from the first bytes of a file. UTF-16 without a byte order
    mark is recognized by its zero bytes. Text in any other encoding counts as utf-8, and decoding it fails."""
    head = head[:_HEAD_BYTES]
    for mark, name in _MARKS:
        if head.startswith(mark):
            return name
    if head.count(0) < _FEW_ZEROS * len(head):
        return "utf-8"
    spaces = {name: _count_whitespace(head, name) for name in ("utf-16-le", "utf-16-be")}
    best = max(spaces, key=lambda name: spaces[name])
    return best if spaces[best] else "utf-8"


def read_head(blocks: Iterator[bytes]) -> bytes:
    """Takes blocks until there are enough bytes to recognize the encoding and the format. Returns them all."""
    head = b""
    while len(head) < _HEAD_BYTES and (block := next(blocks, None)) is not None:
        head += block
    return head


def read_text_blocks(path: Path) -> Iterator[bytes]:
    """Yields the uncompressed content as UTF-8."""
    blocks = read_blocks(path)
    head = read_head(blocks)
    encoding = detect_encoding(head)
    blocks = chain([head], blocks)
    if encoding == "utf-8":
        yield from blocks
        return
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        for block in blocks:
            yield decoder.decode(block).encode()
        yield decoder.decode(b"", final=True).encode()
    except UnicodeDecodeError:
        name = encoding[:6].upper()
        remedy = f"Repair it, for example: iconv -c -f {name} -t UTF-8."
        raise LockstepError(f"{path} is not valid {name}, which it seems to be.", remedy) from None


def guess_encoding(sample: bytes) -> str | None:
    """Guesses the encoding of lines that are not UTF-8, from how plausible the words look in each of some encodings."""
    scores = {name: score for name in _GUESSES if (score := _score(sample, name)) is not None}
    best = max(scores, key=lambda name: scores[name], default=None)
    return best if best is not None and scores[best] > 0 else None


def advise_conversion(sample: bytes) -> str:
    """Returns the advice for a file with these lines, which are not UTF-8."""
    guess = guess_encoding(sample)
    if guess is None:
        return "Convert it to UTF-8 with iconv; its encoding cannot be guessed, and it may not be text."
    name = guess.replace("cp", "WINDOWS-").upper()
    return f"Convert it to UTF-8; the bytes look like {name}, which is only a guess: iconv -f {name} -t UTF-8."


def _score(sample: bytes, encoding: str) -> float | None:
    """Returns how plausible the words with other letters than ASCII are, about -1 to 1; None if decoding fails."""
    try:
        text = sample.decode(encoding)
    except UnicodeDecodeError:
        return None
    words = [word for word in _WORD.findall(text) if not word.isascii()]
    total = sum(map(len, words))
    if not total:
        return None
    if encoding not in _SINGLE_BYTE:
        foreign = sum(len(word) - len(_EAST_ASIAN.findall(word)) for word in words)
        is_native = _KANA_OR_HANGUL.search(text) is not None or encoding in ("gb18030", "big5")
        return 0.9 - 0.1 * (not is_native) - 2 * foreign / total
    return 1 + 0.1 * (encoding == "cp1252") - 2 * sum(map(_count_odd, words)) / total


def _count_odd(word: str) -> int:
    """Counts what words do not have: symbols inside, capitals after small letters, mixed scripts, only accented letters."""
    odd = sum(not character.isalpha() for character in word)
    odd += sum(first.islower() and second.isupper() for first, second in zip(word, word[1:], strict=False))
    latin = [character for character in word if character < "\u0250" and character.isalpha()]
    if 0 < len(latin) < sum(map(str.isalpha, word)):
        odd += len(word)
    accented = sum(not character.isascii() for character in latin)
    return min(len(word), odd + (accented if len(word) > 2 and 2 * accented > len(word) else 0))


def _count_whitespace(head: bytes, encoding: str) -> int:
    """Counts whitespace that separates words and lines. In UTF-16 of the other byte order it would be other characters."""
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(head)
    except UnicodeDecodeError:
        return 0
    return 0 if "\0" in text else sum(text.count(character) for character in " \r\n\t")
