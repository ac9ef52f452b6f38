"""Measures other trainers on the pieces of a corpus that Lockstep prepared. `speed.py` compares Lockstep with them.

    python benchmarks/peers.py ENVIRONMENT CORPUS [--steps 20]

Install both peers in one virtual environment, with the same version of torch as Lockstep's:

    Eole:     the package `eole` with `--no-deps`, then the packages that `eole train` asks for, except `torchcodec`.
    fairseq:  `cython`, `numpy`, `setuptools` and `wheel`; then the source of `fairseq-fixed` with `--no-deps
              --no-build-isolation`, after replacing `-std=c++11` in its setup.py by `-std=c++17`; then `hydra-core`,
              `omegaconf`, `regex`, `sacrebleu`, `bitarray`, `cffi`, `tqdm` and `scikit-learn`.

Each peer runs its own train command in one process with a thread per core. This file is the program that calls it there:
it notes time and target words of every optimizer step and stops after the last one, so that nothing is saved. Target words
are pieces and end marks, without padding.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a peer's environment may lack these
    from pydantic import JsonValue

    from lockstep.data.corpus.binary_corpus import ParallelSet

WARMUP_STEPS = 5
WORDS = 4096
"""Target words in a step, on average."""
SPECIAL_PIECES = 4  # the first ids: padding, unknown, start and end
PACKAGES = {"eole": "Eole", "fairseq": "fairseq", "fairseq-fixed": "fairseq"}
PRECISIONS = {"Eole": ("fp32", "bf16"), "fairseq": ("fp32",)}
LIST_PACKAGES = """
import importlib.metadata, json
print(json.dumps({one.metadata["Name"]: one.version for one in importlib.metadata.distributions()}))
"""


@dataclass(frozen=True)
class Peer:
    """Another trainer and the precisions in which it trains on CPU."""

    name: str
    precisions: tuple[str, ...]


class Finished(BaseException):
    """The last step is done. Not an Exception, because trainers catch those."""


def list_peers(environment: Path) -> list[Peer]:
    """Returns the peers that are installed in a virtual environment."""
    installed = json.loads(run([find_python(environment), "-c", LIST_PACKAGES]))
    found = {name: installed[package] for package, name in PACKAGES.items() if package in installed}
    return [Peer(f"{name} {version}", PRECISIONS[name]) for name, version in found.items()]


def measure_peer(
    peer: Peer, precision: str, environment: Path, corpus: Path, folder: Path, model: dict[str, JsonValue], steps: int
) -> float:
    """Returns target words per second of wall time between optimizer steps, without warm-up steps."""
    from lockstep.data.corpus.binary_corpus import Corpus

    pairs, texts = Corpus.open(corpus).set("train"), (folder / "peers").absolute()
    write_texts(pairs, corpus, texts)
    name = peer.name.split()[0]
    list_arguments = list_eole_arguments if name == "Eole" else list_fairseq_arguments
    arguments = list_arguments(texts, find_limit(pairs), precision, model)
    command = [find_python(environment), str(Path(__file__).absolute()), "--drive", name, str(WARMUP_STEPS + steps)]
    measured: dict[str, list[float]] = json.loads(run(command + arguments, texts).splitlines()[-1])
    times, words = measured["times"][WARMUP_STEPS - 1 :], measured["words"][WARMUP_STEPS:]
    return sum(words) / (times[-1] - times[0])


def find_python(environment: Path) -> str:
    return str(environment.absolute() / "bin" / "python")


def run(command: list[str], folder: Path | None = None) -> str:
    """Returns what a command prints. It runs in `folder` with a thread per core."""
    settings = {"OMP_NUM_THREADS": str(len(os.sched_getaffinity(0))), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | settings, cwd=folder)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr[-3000:]}")
    return done.stdout


def write_texts(pairs: ParallelSet, corpus: Path, folder: Path) -> None:
    """Writes the pairs as lines of pieces, and the vocabulary as each peer wants it, unless they are there."""
    from sentencepiece import SentencePieceProcessor

    from lockstep.data.corpus.binary_corpus import VOCABULARY

    last = folder / "vocabulary.txt"
    if last.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    processor = SentencePieceProcessor(model_file=str(corpus / VOCABULARY))
    pieces = [processor.id_to_piece(number) for number in range(processor.get_piece_size())]
    for language, side in (("src", pairs.source), ("tgt", pairs.target)):
        with (folder / f"train.src-tgt.{language}").open("w", encoding="utf-8") as file:
            for start, end in zip(side.offsets[:-1], side.offsets[1:], strict=True):
                file.write(" ".join(pieces[number] for number in side.ids[start : end - 1]) + "\n")
        counted = "".join(f"{piece} 1\n" for piece in pieces[SPECIAL_PIECES:])
        (folder / f"dict.{language}.txt").write_text(counted, encoding="utf-8")
    last.write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")


def find_limit(pairs: ParallelSet) -> int:
    """Returns the limit of a batch, sentences times longest side, that gives WORDS target words on average.

    Both peers sort pairs by source length, then by target length.
    """
    lengths = sorted(zip(pairs.source.lengths.tolist(), pairs.target.lengths.tolist(), strict=True))
    limit = WORDS
    for _ in range(3):
        batches, sentences, longest = 1, 0, 0
        for source, target in lengths:
            sentences, longest = sentences + 1, max(longest, source, target)
            if sentences * longest > limit:
                batches, sentences, longest = batches + 1, 1, max(source, target)
        limit = round(limit * WORDS * batches / int(pairs.target.lengths.sum()))
    return limit


def list_eole_arguments(folder: Path, limit: int, precision: str, model: dict[str, JsonValue]) -> list[str]:
    """Writes Eole's configuration and returns the arguments of its command. Eole's layers are pre-norm."""
    width, dropout = model["width"], [model["dropout"]]
    layers: dict[str, object] = {side: {"layers": model[f"{side}_layers"]} for side in ("encoder", "decoder")}
    layers |= {"architecture": "transformer", "heads": model["heads"], "transformer_ff": model["feed_forward"]}
    layers |= {"embeddings": {"position_encoding_type": "SinusoidalInterleaved", "word_vec_size": width}}
    layers |= {
        "hidden_size": width,
        "share_embeddings": True,
        "share_decoder_embeddings": True,
        "generator_bias": False,
    }
    training = {"compute_dtype": precision, "use_amp": True, "dropout": dropout, "attention_dropout": dropout}
    training |= {"batch_type": "tokens", "batch_size": limit, "normalization": "tokens", "label_smoothing": 0.1}
    training |= {"optim": "adam", "learning_rate": 1e-4, "max_grad_norm": 1.0, "param_init_method": "xavier_uniform"}
    training |= {"num_workers": 0, "bucket_size": 1 << 15, "log_attention_entropy": False, "train_steps": 10**9}
    training |= {"model_path": str(folder / "eole"), "save_checkpoint_steps": 10**9, "valid_steps": 10**9}
    text = {f"path_{side}": str(folder / f"train.src-tgt.{side}") for side in ("src", "tgt")}
    config = {"seed": 1, "src_vocab": str(folder / "vocabulary.txt"), "share_vocab": True, "pad_token": "<pad>"}
    config |= {"data": {"train": text}, "model": layers, "training": training}
    path = folder / f"eole-{precision}.yaml"
    path.write_text(json.dumps(config))  # JSON is also YAML
    return ["train", "--config", str(path)]


def list_fairseq_arguments(folder: Path, limit: int, precision: str, model: dict[str, JsonValue]) -> list[str]:
    """Returns the arguments of fairseq's command. It is measured in fp32 only."""
    dropout = model["dropout"]
    options = f"--cpu --source-lang src --target-lang tgt --dataset-impl raw --num-workers 0 --max-tokens {limit} "
    options += "--arch transformer --share-all-embeddings --encoder-normalize-before --decoder-normalize-before "
    options += f"--dropout {dropout} --attention-dropout {dropout} --activation-dropout {dropout} "
    options += (
        "--criterion label_smoothed_cross_entropy --label-smoothing 0.1 --optimizer adam --lr 1e-4 --clip-norm 1 "
    )
    options += "--no-save --disable-validation --no-progress-bar "
    for side in ("encoder", "decoder"):
        options += f"--{side}-layers {model[f'{side}_layers']} --{side}-attention-heads {model['heads']} "
        options += f"--{side}-embed-dim {model['width']} --{side}-ffn-embed-dim {model['feed_forward']} "
    return [str(folder), *options.split()]


def drive(name: str, total: int, arguments: list[str]) -> None:
    """Runs a peer's train command in this process, and prints the time and the target words of every step as JSON."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    times: list[float] = []
    words = [0] * total

    def note_step(*_: Any) -> None:
        times.append(time.perf_counter())
        if len(times) == total:
            raise Finished

    def count(number: int) -> None:
        words[len(times)] += number

    sys.argv = [name, *arguments]
    main = prepare_eole(count) if name == "Eole" else prepare_fairseq(count)
    register_optimizer_step_post_hook(note_step)
    try:
        main()
    except Finished:
        print("\n" + json.dumps({"times": times, "words": words}))
    else:
        sys.exit(f"{name} ended after {len(times)} of {total} steps.")


def prepare_eole(count: Callable[[int], None]) -> Callable[[], None]:
    """Returns Eole's command. `count` gets the target words of every batch."""
    processor: Any = import_module("eole.trainer").BatchProcessor
    process = processor.process_batch

    def process_and_count(self: Any, batch: Any, *args: Any) -> Any:
        count(int(batch["tgt"][:, 1:].ne(self.train_loss.padding_idx).sum()))  # without the start mark
        return process(self, batch, *args)

    processor.process_batch = process_and_count
    command: Callable[[], None] = import_module("eole.bin.main").main
    return command


def prepare_fairseq(count: Callable[[int], None]) -> Callable[[], None]:
    """Returns fairseq's command. `count` gets the target words of every batch."""
    task: Any = import_module("fairseq.tasks.translation").TranslationTask
    step = task.train_step

    def step_and_count(self: Any, sample: Any, *args: Any, **kwargs: Any) -> Any:
        count(int(sample["ntokens"]))
        return step(self, sample, *args, **kwargs)

    task.train_step = step_and_count
    command: Callable[[], None] = import_module("fairseq_cli.train").cli_main
    return command


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("environment", type=Path, help="virtual environment with the peers")
    parser.add_argument("corpus", type=Path, help="folder of a corpus that Lockstep prepared")
    parser.add_argument("--steps", type=int, default=20, help="measured steps")
    options = parser.parse_args()
    from speed import MODELS

    with tempfile.TemporaryDirectory() as scratch:
        for peer in list_peers(options.environment):
            for precision in peer.precisions:
                place = options.environment, options.corpus, Path(scratch)
                speed = measure_peer(peer, precision, *place, MODELS["S"], options.steps)
                print(f"{peer.name} {precision}: {speed:,.0f} target words/s")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--drive"]:
        sys.path.pop(0)  # the folder of this file, whose modules could hide those of a peer
        drive(sys.argv[2], int(sys.argv[3]), sys.argv[4:])
    else:
        main()
