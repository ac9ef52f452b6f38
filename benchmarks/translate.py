"""Measures how fast a model translates: the trainer's own search, CTranslate2 called directly, and `lockstep translate`.

All translate the same file, one after the other, several rounds. Words are target pieces with end marks. `search` rows are
measured in one process after loading and a warm-up. `command` rows are whole commands, from their start to their end;
the direct one is a short program with sentencepiece and ctranslate2 alone.

    benchmarks/translate.py runs/multi30k test.en --to FOLDER

FOLDER gets the exports in fp32 and int8 if they are not there. Nothing else should use the machine.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from lockstep.cli.common import share_cores

share_cores()  # before OpenMP is loaded, as the command does

import ctranslate2  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402
from sentencepiece import SentencePieceProcessor  # noqa: E402

from lockstep.translate.load_model import load_translator  # noqa: E402
from lockstep.translate.translator import Translator  # noqa: E402

DIRECT = """
import sys, ctranslate2, sentencepiece
folder, file, beam, penalty, workers = sys.argv[1:]
pieces = sentencepiece.SentencePieceProcessor(folder + "/sentencepiece.model")
model = ctranslate2.Translator(folder, inter_threads=int(workers), intra_threads=1)
lines = open(file, encoding="utf-8").read().splitlines()
results = model.translate_batch(
    pieces.encode(lines, out_type=str), beam_size=int(beam), length_penalty=float(penalty), max_batch_size=1024,
    batch_type="tokens", max_decoding_length=512)
print("\\n".join(pieces.decode([result.hypotheses[0] for result in results])))
"""

System = Callable[[], int]
"""Translates the file once and returns the words that it wrote."""


def search_with(translator: Translator, lines: list[str]) -> System:
    return lambda: sum(one.pieces for one in translator.translate_each(lines))


def call_directly(folder: Path, lines: list[str], beam: int, penalty: float, workers: int) -> System:
    pieces = SentencePieceProcessor(str(folder / "sentencepiece.model"))
    model = ctranslate2.Translator(str(folder), inter_threads=workers, intra_threads=1)

    def run() -> int:
        results = model.translate_batch(
            pieces.encode(lines, out_type=str),
            beam_size=beam,
            length_penalty=penalty,
            max_batch_size=1024,
            batch_type="tokens",
            max_decoding_length=512,
        )
        best = [result.hypotheses[0] for result in results]
        pieces.decode(best)
        return sum(map(len, best)) + len(best)

    return run


def run_command(command: list[str], folder: Path) -> System:
    pieces = SentencePieceProcessor(str(folder / "sentencepiece.model"))

    def run() -> int:
        with tempfile.TemporaryFile("w+") as output:
            subprocess.run(command, stdout=output, stderr=subprocess.DEVNULL, check=True)
            output.seek(0)
            lines = output.read().splitlines()
        return sum(map(len, pieces.encode(lines))) + len(lines)

    return run


def list_systems(options: argparse.Namespace, beam: int) -> dict[str, System]:
    cores, file = len(os.sched_getaffinity(0)), str(options.file)
    lines = options.file.read_text(encoding="utf-8").splitlines()
    trainer = load_translator(options.run, search={"beam": beam, "normalise": "length"}, device="cpu")
    penalty = trainer.search.length_penalty
    systems = {"trainer, fp32 | search": search_with(trainer, lines)}
    for name in ("fp32", "int8"):
        folder: Path = options.to / name
        systems[f"CTranslate2 {name} | search"] = call_directly(folder, lines, beam, penalty, cores)
        translator = load_translator(folder, search={"beam": beam}, device="cpu")
        systems[f"lockstep with {name} export | search"] = search_with(translator, lines)
        words = [sys.executable, "-c", DIRECT, str(folder), file, str(beam), str(penalty), str(cores)]
        systems[f"CTranslate2 {name} | command"] = run_command(words, folder)
        words = [sys.executable, "-m", "lockstep", "translate", str(folder), "-i", file, "--beam", str(beam)]
        systems[f"lockstep translate, {name} export | command"] = run_command(words, folder)
    return systems


def make_exports(options: argparse.Namespace) -> None:
    for name, quantization in (("fp32", "none"), ("int8", "int8")):
        if not (options.to / name).is_dir():
            words = ["export", str(options.run), "--to", str(options.to / name), "--quantize", quantization]
            subprocess.run([sys.executable, "-m", "lockstep", *words], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="run folder")
    parser.add_argument("file", type=Path, help="source text, one sentence per line")
    parser.add_argument("--to", type=Path, required=True, help="folder of the exports")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--beams", type=int, nargs="*", default=[1, 5])
    options = parser.parse_args()
    make_exports(options)
    for beam in options.beams:
        systems = list_systems(options, beam)
        speeds: dict[str, list[float]] = {name: [] for name in systems}
        for number in range(options.rounds + 1):
            for name, system in systems.items():
                begin = time.perf_counter()
                words = system()
                if number:  # the first round warms up
                    speeds[name].append(words / (time.perf_counter() - begin))
        medians = {name: statistics.median(values) for name, values in speeds.items()}
        best = medians["CTranslate2 fp32 | search"]
        table = Table("system", "words/s", "lowest", "highest", "of CTranslate2 fp32", title=f"beam {beam}")
        for name, values in speeds.items():
            figures = (f"{value:,.0f}" for value in (medians[name], min(values), max(values)))
            table.add_row(name, *figures, f"{medians[name] / best:.2f}")
        Console(width=110).print(table)


if __name__ == "__main__":
    main()
