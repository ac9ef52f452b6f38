"""Compares the preparation of a corpus with bare SentencePiece, and measures memory and start of training.

    python benchmarks/prepare.py [--pairs 1000000] [--folder /tmp/lockstep-prepare]

Makes text with the built-in grammar, which stays in the folder for the next time. (Two to three percent of a million pairs
are duplicates, which cleaning removes.) Then it measures:

- bare: two processes, each with half of the lines of both sides, start Python, read and split the text, and call
  `encode(..., out_type=int)` on 4,096 lines at a time. Wall time from the start to the end of both.
- prepare: the complete preparation in a separate process, once. The training of the vocabulary is timed separately. Memory
  is the peak of the sum of the proportional set sizes (PSS) of all its processes, sampled twice a second, which slows them
  down a little.
- training: three steps of a tiny model with a tenth of the pairs and with all of them. Private memory (RssAnon) of the
  worker at the end, and seconds from opening the corpus to the end of the first step.
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
from typing import TypedDict

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


class SetFacts(TypedDict):
    """Facts about a set of the corpus."""

    removed: dict[str, int]


class Preparation(TypedDict):
    """The figures of one preparation: seconds, and the peak memory of all processes in megabytes."""

    seconds: float
    vocabulary: float
    read: float
    encode: float
    train: SetFacts
    peak: float


class Training(TypedDict):
    """Seconds to the end of the first step, and memory in megabytes."""

    first: float
    RssAnon: float
    RssFile: float
    VmHWM: float


def make_text(folder: Path, name: str, pairs: int, seed: int) -> None:
    """Writes NAME.en and NAME.de unless they exist."""
    from lockstep import demo_corpus

    if (folder / f"{name}.de").exists():
        return
    with (folder / f"{name}.en").open("w") as en, (folder / f"{name}.partial").open("w") as de:
        for english, german in islice(demo_corpus.generate_pairs(seed, "train"), pairs):
            en.write(f"{english}\n")
            de.write(f"{german}\n")
    (folder / f"{name}.partial").rename(folder / f"{name}.de")


def time_bare(folder: Path, model: Path, pairs: int) -> float:
    """Returns the seconds of bare SentencePiece in two processes."""
    cuts = [0, pairs // 2, pairs]
    start_time = time.perf_counter()
    halves = [
        subprocess.Popen([sys.executable, "-c", BARE, str(model), str(folder / "train"), str(start), str(end)])
        for start, end in zip(cuts, cuts[1:], strict=False)
    ]
    assert [half.wait() for half in halves] == [0, 0]
    return time.perf_counter() - start_time


def measure_preparation(folder: Path, corpus: Path, train: str) -> Preparation:
    for leftover in [corpus, *corpus.parent.glob(f".{corpus.name}.partial-*")]:  # finished shards would be used again
        shutil.rmtree(leftover, ignore_errors=True)
    settings = {
        "folder": str(folder),
        "train": [train],
        "validation": ["held-out"],
        "corpus": str(corpus),
        "vocabulary": {"size": 3800},
    }
    process = subprocess.Popen([sys.executable, "-c", PREPARE, json.dumps(settings)], stdout=subprocess.PIPE)
    peak, ended = 0.0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not ended.wait(0.5):
            peak = max(peak, sum(map(read_pss_megabytes, list_family(process.pid))))

    watcher = threading.Thread(target=watch)
    watcher.start()
    output, _ = process.communicate()
    ended.set()
    watcher.join()
    preparation: Preparation = json.loads(output) | {"peak": peak}
    return preparation


def list_family(pid: int) -> list[int]:
    """Returns a process and all its descendants."""
    try:
        children = [
            int(word) for path in Path(f"/proc/{pid}/task").glob("*/children") for word in path.read_text().split()
        ]
    except OSError:
        return [pid]
    return [pid, *(member for child in children for member in list_family(child))]


def read_pss_megabytes(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:")), 0.0)


def measure_training(corpus: Path) -> Training:
    output = subprocess.run([sys.executable, "-c", TRAIN, str(corpus)], stdout=subprocess.PIPE, check=True).stdout
    training: Training = json.loads(output)
    return training


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=1_000_000, help="sentence pairs of the corpus")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/lockstep-prepare"), help="folder of text and corpus")
    options = parser.parse_args()
    folder = options.folder / str(options.pairs)
    folder.mkdir(parents=True, exist_ok=True)
    make_text(folder, "train", options.pairs, seed=1)
    make_text(folder, "tenth", options.pairs // 10, seed=1)
    make_text(folder, "held-out", 500, seed=2)

    print(f"{options.pairs:,} pairs, {len(os.sched_getaffinity(0))} cores")
    tenth = measure_preparation(folder, folder / "corpus-tenth", "tenth")
    full = measure_preparation(folder, folder / "corpus", "train")
    seconds = time_bare(folder, folder / "corpus" / "vocabulary.model", options.pairs)
    own = full["seconds"] - full["vocabulary"]
    print(f"bare SentencePiece, two processes   {seconds:8.1f} s")
    print(f"preparation without vocabulary      {own:8.1f} s   {own / seconds:.2f} x bare (goal: at most 1.6)")
    print(f"  reading and cleaning              {full['read']:8.1f} s")
    print(f"  encoding                          {full['encode']:8.1f} s")
    print(f"  training the vocabulary           {full['vocabulary']:8.1f} s   not counted above")
    print(f"peak memory of all processes        {full['peak']:8.0f} MB  (goal: below 1,500)")
    print(f"  with a tenth of the pairs         {tenth['peak']:8.0f} MB")
    print(f"removed                             {full['train']['removed']}")
    few, many = measure_training(folder / "corpus-tenth"), measure_training(folder / "corpus")
    more = many["RssAnon"] - few["RssAnon"]
    print(
        f"training, private memory            {few['RssAnon']:8.0f} -> {many['RssAnon']:.0f} MB: {more:+.0f} (goal: < 150)"
    )
    print(f"  file-backed memory                {few['RssFile']:8.0f} -> {many['RssFile']:.0f} MB")
    print(f"  seconds to the end of step 1      {few['first']:8.2f} -> {many['first']:.2f} (goal: < 2 more)")


if __name__ == "__main__":
    main()
