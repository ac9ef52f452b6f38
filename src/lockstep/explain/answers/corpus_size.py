"""Question 7: how much text, or how many images, there were."""

from typing import Any

from lockstep.explain.answer import Answer, Figure, told
from lockstep.explain.formatting import count, megabytes, number, plural, share
from lockstep.explain.pages import charts
from lockstep.explain.reading.record import Record

QUESTION = "How big was the training set?"
MOST_BARS, MOST_FILES = 30, 12


def answer(record: Record) -> Answer:
    sets = record.data.get("sets")
    found = sets.get("train") if isinstance(sets, dict) else None
    if isinstance(found, dict) and isinstance(found.get("images"), int):
        return _images(record.data, found)
    if not isinstance(found, dict) or not isinstance(found.get("lines"), int):
        text = "data.json, which tells of the corpus, is missing or of another version."
        if record.data and not isinstance(sets, dict):
            text = "data.json does not say: a task of your own may write it there (`data_facts`)."
        return Answer(7, QUESTION, "not known", text, "unknown")
    languages = record.data.get("languages") or ["source", "target"]
    files = [file for file in record.data.get("files") or [] if isinstance(file, dict)]
    words = sum(found.get(f"{side}_plain_words", 0) for side in ("source", "target"))
    size = found.get("text_bytes")
    text = f"{count(found['lines'])} sentence pairs with {count(words)} words on both sides together"
    text += f", {megabytes(size)} of text." if size is not None else "."
    others = {name: one.get("lines") for name, one in (sets or {}).items() if name != "train" and isinstance(one, dict)}
    if others:
        text += f" Held out: {', '.join(f'{name} {count(lines or 0)}' for name, lines in others.items())} pairs."
    if not files and record.setting("data.grammar"):
        text += " The built-in grammar wrote it."
    short = f"{count(found['lines'])} lines"
    short = f"{megabytes(size)}, {short}" if size is not None else short
    return Answer(7, QUESTION, short, text, "plain", _figures(found, languages, files), _charts(found, languages))


def _images(data: dict[str, Any], found: dict[str, Any]) -> Answer:
    classes, shape = data.get("classes") or [], data.get("shape") or []
    size = found.get("bytes", 0)
    points = " x ".join(str(length) for length in shape[1:])
    text = (
        f"{count(found['images'])} images of {points} points and {plural(shape[0] if shape else 0, 'channel')}, "
        f"{count(len(classes))} classes, {megabytes(size)}."
    )
    others = {name: one for name, one in data["sets"].items() if name != "train" and isinstance(one, dict)}
    held_out = ", ".join(f"{name} {count(one.get('images', 0))}" for name, one in others.items())
    text += f" Held out: {held_out} images." if held_out else ""
    if "validation" not in others:
        text += " The scores during training are those of the test images: no choice may be made by them."
    how = "data.json, counted when the images were read"
    figures = [
        told("images", found["images"], count, how),
        told("size", size, megabytes, f"{how}: a byte for each point and channel"),
        told("classes", len(classes), count, ", ".join(map(str, classes[:MOST_BARS]))),
    ]
    files = [file for file in data.get("files") or [] if isinstance(file, dict)]
    short = f"{megabytes(size)}, {count(found['images'])} images"
    return Answer(7, QUESTION, short, text, "plain", figures + _files(files))


def _files(files: list[dict[str, Any]]) -> list[Figure]:
    return [
        told(
            f"file {str(file.get('path', '')).rpartition('/')[2]}",
            file.get("bytes", 0),
            megabytes,
            f"{file.get('set', '')}, SHA-256 {str(file.get('sha256', ''))[:16]}".removeprefix(", "),
        )
        for file in files[:MOST_FILES]
    ]


def _figures(found: dict[str, Any], languages: list[str], files: list[dict[str, Any]]) -> list[Figure]:
    how = "data.json, counted when the corpus was prepared"
    figures = [told("lines", found["lines"], count, f"{how}: sentence pairs kept")]
    if found.get("text_bytes") is not None:
        figures.insert(0, told("text", found["text_bytes"], megabytes, f"{how}: bytes of both sides as kept"))
    for side, language in zip(("source", "target"), languages, strict=False):
        for key, name, meaning in (
            (f"{side}_plain_words", "words", "separated by blanks"),
            (f"{side}_words", "pieces", "of the vocabulary, with end marks"),
        ):
            if key in found:
                figures.append(told(f"{name}, {language}", found[key], count, f"{how}; {meaning}"))
    read, removed = found.get("read"), found.get("removed") or {}
    if read:
        gone = sum(removed.values())
        reasons = ", ".join(f"{reason} {count(n)}" for reason, n in removed.items()) or "nothing had to go"
        how = f"{how}: {reasons}; {share(gone / read)} of {count(read)} read"
        figures.append(told("pairs left out", gone, count, how))
    return figures + _files(files)


def _charts(found: dict[str, Any], languages: list[str]) -> list[charts.Chart]:
    step = found.get("length_step")
    both = [found.get(f"{side}_lengths") for side in ("source", "target")]
    if not step or not all(isinstance(counts, list) and counts for counts in both):
        return []
    longest = max(len(counts or []) for counts in both)
    joined = -(-longest // MOST_BARS)
    padded = [[*(counts or []), *[0] * (longest - len(counts or []))] for counts in both]
    rows = [[sum(counts[i : i + joined]) for i in range(0, longest, joined)] for counts in padded]
    labels = [f"{i * step + 1}-{(i + joined) * step}" for i in range(0, longest, joined)]
    colours = ("--sky", "--orange")
    groups = {language: (row, colour) for language, row, colour in zip(languages, rows, colours, strict=False)}
    peak = labels[max(range(len(labels)), key=lambda i: rows[0][i])]
    says = f"Most {languages[0]} sentences have {peak} pieces; the longest {number(found.get('source_longest', 0))}."
    title = "Length of the sentences"
    return [charts.columns("sentence-lengths", title, says, labels, groups, "pieces in a sentence", "sentences")]
