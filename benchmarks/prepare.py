"""Preparation against bare SentencePiece, its memory, and what the size of a corpus costs in training.

    python benchmarks/prepare.py [--pairs 1000000] [--folder /tmp/lockstep-prepare]

Makes text with the built-in grammar (kept in the folder for the next time; two to three percent of a million pairs are
repetitions, which cleaning removes), then measures in one go:

- bare: two processes, each a half of the lines of both sides: start Python, read and split the text, `encode(...,
  out_type=int)` in portions of 4,096 lines, results thrown away. Wall time from the start of both to the end of both.
- prepare: the corpus end to end in a process of its own, once; the training of the vocabulary is timed apart. Memory is
  the highest sum of the proportional set sizes (PSS) of all its processes, sampled twice a second (looking costs them
  time).
- training: the same three steps of a tiny model on a tenth of the pairs and on all of them: private memory (RssAnon) of
  the worker at the end and seconds from opening the corpus to the end of the first step.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from itertools import islice
from pathlib import Path
from typing import Any

BARE = """
import sys
from itertools import islice
from sentencepiece import SentencePieceProcessor
pieces = SentencePieceProcessor(model_file=sys.argv[1])
start, end = int(sys.argv[3]), int(sys.argv[4])
for language in ("en", "de"):
    with open(f"{sys.argv[2]}.{language}", encoding="utf-8") as file:
        lines = [line.rstrip("\\n") for line in islice(file, start, end)]
    for place in range(0, len(lines), 4096):
        pieces.encode(lines[place : place + 4096], out_type=int)
"""
PREPARE = """
import json, sys, time
from lockstep.data.corpus.prepare import prepare
from lockstep.data.data_settings import DataSettings
begin, marks = time.perf_counter(), {}
def report(stage, done, total):
    marks.setdefault(stage, []).append(time.perf_counter())
corpus = prepare(DataSettings.model_validate_json(sys.argv[1]), report)
seconds = time.perf_counter() - begin
vocabulary = marks["vocabulary"][-1] - marks["vocabulary"][0]
print(json.dumps({"seconds": seconds, "vocabulary": vocabulary, "read": marks["vocabulary"][0] - begin,
    "encode": marks["encode"][-1] - marks["encode"][0], "train": corpus.facts["sets"]["train"]}))
"""
TRAIN = """
import json, re, sys, time
import torch
from pathlib import Path
from lockstep.data.corpus.binary_corpus import Corpus
from lockstep.data.data_settings import BatchSettings
from lockstep.models.model_settings import TransformerSettings
from lockstep.tasks.translation import Translation
from lockstep.translate.search_settings import SearchSettings
torch.set_num_threads(1)
begin = time.perf_counter()
model = TransformerSettings(encoder_layers=1, decoder_layers=1, width=64, feed_forward=128, heads=4)
task = Translation(Corpus.open(Path(sys.argv[1])), BatchSettings(words=2048), model, SearchSettings(), 0.1, 1)
module, steps, first = task.module(), task.batches(0, 0), None
optimizer = torch.optim.AdamW(module.parameters())
for _ in range(3):
    batch = next(steps)
    for part in task.micro_batches(task.order.share(batch, 0, 1), 1):
        module(part).backward()
    optimizer.step()
    first = first or time.perf_counter() - begin
status = Path("/proc/self/status").read_text()
figures = {name: int(re.search(rf"{name}:\\s+(\\d+)", status)[1]) / 1024 for name in ("RssAnon", "RssFile", "VmHWM")}
print(json.dumps({"first": first} | figures))
"""


def make_text(folder: Path, name: str, pairs: int, seed: int) -> None:
    """Writes NAME.en and NAME.de unless they are there."""
    from lockstep import demo_corpus

    if (folder / f"{name}.de").exists():
        return
    with (folder / f"{name}.en").open("w") as en, (folder / f"{name}.partial").open("w") as de:
        for english, german in islice(demo_corpus.generate_pairs(seed, "train"), pairs):
            en.write(f"{english}\n")
            de.write(f"{german}\n")
    (folder / f"{name}.partial").rename(folder / f"{name}.de")


def bare(folder: Path, model: Path, pairs: int) -> float:
    cuts = [0, pairs // 2, pairs]
    begin = time.perf_counter()
    halves = [
        subprocess.Popen([sys.executable, "-c", BARE, str(model), str(folder / "train"), str(start), str(end)])
        for start, end in zip(cuts, cuts[1:], strict=False)
    ]
    assert [half.wait() for half in halves] == [0, 0]
    return time.perf_counter() - begin


def prepared(folder: Path, corpus: Path, train: str) -> dict[str, Any]:
    """The figures of one preparation, with `peak` megabytes of all its processes."""
    for left in [corpus, *corpus.parent.glob(f".{corpus.name}.partial-*")]:  # or it would go on with finished shards
        shutil.rmtree(left, ignore_errors=True)
    settings: dict[str, Any] = {
        "folder": str(folder),
        "train": [train],
        "validation": ["held-out"],
        "corpus": str(corpus),
    }
    settings |= {"vocabulary": {"size": 3800}}
    process = subprocess.Popen([sys.executable, "-c", PREPARE, json.dumps(settings)], stdout=subprocess.PIPE)
    peak, over = 0.0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not over.wait(0.5):
            peak = max(peak, sum(map(pss_megabytes, family(process.pid))))

    watcher = threading.Thread(target=watch)
    watcher.start()
    output, _ = process.communicate()
    over.set()
    watcher.join()
    return dict(json.loads(output)) | {"peak": peak}


def family(pid: int) -> list[int]:
    try:
        children = [
            int(word) for path in Path(f"/proc/{pid}/task").glob("*/children") for word in path.read_text().split()
        ]
    except OSError:
        return [pid]
    return [pid, *(member for child in children for member in family(child))]


def pss_megabytes(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:")), 0.0)


def trained(corpus: Path) -> dict[str, float]:
    output = subprocess.run([sys.executable, "-c", TRAIN, str(corpus)], stdout=subprocess.PIPE, check=True).stdout
    return dict(json.loads(output))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/lockstep-prepare"))
    asked = parser.parse_args()
    folder = asked.folder / str(asked.pairs)
    folder.mkdir(parents=True, exist_ok=True)
    make_text(folder, "train", asked.pairs, seed=1)
    make_text(folder, "tenth", asked.pairs // 10, seed=1)
    make_text(folder, "held-out", 500, seed=2)

    print(f"{asked.pairs:,} pairs, {len(os.sched_getaffinity(0))} cores")
    tenth = prepared(folder, folder / "corpus-tenth", "tenth")
    whole = prepared(folder, folder / "corpus", "train")
    seconds = bare(folder, folder / "corpus" / "vocabulary.model", asked.pairs)
    own = whole["seconds"] - whole["vocabulary"]
    print(f"bare SentencePiece, two processes   {seconds:8.1f} s")
    print(f"preparation without vocabulary      {own:8.1f} s   {own / seconds:.2f} x bare (goal: at most 1.6)")
    print(f"  reading and cleaning              {whole['read']:8.1f} s")
    print(f"  encoding                          {whole['encode']:8.1f} s")
    print(f"  training the vocabulary           {whole['vocabulary']:8.1f} s   not counted above")
    print(f"peak memory of all processes        {whole['peak']:8.0f} MB  (goal: below 1,500)")
    print(f"  of a tenth of the pairs           {tenth['peak']:8.0f} MB")
    print(f"removed                             {whole['train']['removed']}")
    few, many = trained(folder / "corpus-tenth"), trained(folder / "corpus")
    more = many["RssAnon"] - few["RssAnon"]
    print(
        f"training, private memory            {few['RssAnon']:8.0f} -> {many['RssAnon']:.0f} MB: {more:+.0f} (goal: < 150)"
    )
    print(f"  file-backed memory                {few['RssFile']:8.0f} -> {many['RssFile']:.0f} MB")
    print(f"  seconds to the end of step 1      {few['first']:8.2f} -> {many['first']:.2f} (goal: < 2 more)")


if __name__ == "__main__":
    main()
