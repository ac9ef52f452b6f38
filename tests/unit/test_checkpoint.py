import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from lockstep.data.corpus.prepare import prepare
from lockstep.data.data_settings import BatchSettings, DataSettings, VocabularySettings
from lockstep.errors import LockstepError
from lockstep.models.model_settings import LstmSettings, TransformerSettings, TranslationSettings
from lockstep.parallel.strategy import State
from lockstep.run.checkpoint import (
    Checkpoint,
    ChosenCheckpoint,
    FoundModel,
    Progress,
    choose,
    find_model,
    find_newest_whole,
    list_all,
    read_checkpoint,
)
from lockstep.run.retention import keep_best_and_last, sweep
from lockstep.tasks.translation import Translation
from lockstep.team import Team
from lockstep.train import checkpoint_files
from lockstep.train.checkpoint_parts import CheckpointPart
from lockstep.translate.search_settings import SearchSettings
from lockstep.translate.torch_engine import load_torch_translator

ALONE = Team(0, 1, torch.device("cpu"))


def tensors(seed: float = 1.0) -> dict[str, Tensor]:
    """All kinds that a state has: matrices, vectors, scalars, counts, half precision, and values hard to copy."""
    return {
        "model.weight": torch.tensor([[seed, -0.0], [torch.inf, 1e-45], [torch.nan, 1 / 3]]),
        "model.bias": torch.arange(5.0) + seed,
        "model.half": torch.tensor([seed, 1e-3], dtype=torch.bfloat16),
        "model.count": torch.tensor(2**40 + 1),
        "optimizer.exp_avg.model.weight": torch.full((3, 2), seed / 3),
    }


def bits(found: dict[str, Tensor]) -> dict[str, tuple[torch.dtype, list[int], bytes]]:
    return {
        name: (t.dtype, list(t.shape), t.reshape(-1).view(torch.uint8).numpy().tobytes()) for name, t in found.items()
    }


CONFIG = {"train": {"steps": 9}}


def export(folder: Path) -> None:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "vocabulary.model").write_bytes(b"pieces")


def everything(all_saved: list[Checkpoint]) -> set[Path]:
    return {saved.path for saved in all_saved}


def write(
    folder: Path,
    progress: Progress,
    state: State,
    export: Callable[[Path], None] = export,
    keep: Callable[[list[Checkpoint]], set[Path]] = everything,
) -> int:
    """Writes a checkpoint while the caller waits; returns its size."""
    part = CheckpointPart(folder, progress.step, "1-1", rank=0, workers=1)
    files = checkpoint_files.collect_files(progress.step, state, export, ALONE)
    facts = checkpoint_files.make_facts(progress, state)
    size, failure = checkpoint_files.write_now(part, files, ALONE, facts, CONFIG, keep)
    assert failure is None
    return size


def save(
    folder: Path,
    step: int,
    score: float | None = None,
    keep: Callable[[list[Checkpoint]], set[Path]] = everything,
    scalars: dict[str, float] | None = None,
) -> Checkpoint:
    progress = Progress(step=step, epoch=1, cursor=step + 7, score=score)
    state = State(tensors(float(step)), scalars or {})
    write(folder, progress, state, keep=keep)
    saved = read_checkpoint(folder / f"step-{step:08d}")
    assert saved is not None
    return saved


def steps(folder: Path) -> list[int]:
    return [saved.step for saved in list_all(folder)]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def state_file(saved: Checkpoint) -> Path:
    (file,) = (saved.path / "state").glob("*.safetensors")
    return file


def test_what_was_saved_is_loaded_bit_for_bit(tmp_path: Path) -> None:
    saved = save(tmp_path, 3)
    loaded = {name: torch.zeros_like(tensor) for name, tensor in tensors().items()}
    places = {name: tensor.data_ptr() for name, tensor in loaded.items()}
    checkpoint_files.load(saved, loaded)
    assert bits(loaded) == bits(tensors(3.0))
    assert {name: tensor.data_ptr() for name, tensor in loaded.items()} == places


def test_progress_and_scalars_are_read_back(tmp_path: Path) -> None:
    progress = Progress(7, 1, 14, 2, 3, 4, best_score=31.25, best_step=5, score=30.1)
    scalars = {"optimizer.step": 7.0, "loss_scale.value": 1 / 3}
    write(tmp_path, progress, State(tensors(), scalars))
    (saved,) = list_all(tmp_path)
    progress.scalars = scalars
    assert saved.progress() == progress
    assert saved.manifest["config"] == CONFIG


def test_the_size_returned_is_that_of_all_files(tmp_path: Path) -> None:
    size = write(tmp_path, Progress(1), State(tensors()))
    (saved,) = list_all(tmp_path)
    assert size == sum(path.stat().st_size for path in saved.path.rglob("*") if path.is_file())


def test_nothing_in_a_checkpoint_is_a_pickle(tmp_path: Path) -> None:
    saved = save(tmp_path, 1)
    files = [path for path in saved.path.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} <= {".safetensors", ".json", ".model"}
    for path in files:
        if path.suffix == ".json":
            json.loads(path.read_text())
        elif path.suffix == ".safetensors":
            load_file(path)


def test_a_whole_checkpoint_has_no_damage(tmp_path: Path) -> None:
    save(tmp_path, 1)
    saved = save(tmp_path, 2)
    found, passed = find_newest_whole(tmp_path)
    assert found is not None
    assert (found.path, found.damage(), passed) == (saved.path, None, [])


def flip_a_byte(saved: Checkpoint) -> str:
    data = bytearray(state_file(saved).read_bytes())
    data[-3] ^= 1
    state_file(saved).write_bytes(data)
    return f"state/{state_file(saved).name} does not match its digest"


def truncate(saved: Checkpoint) -> str:
    state_file(saved).write_bytes(state_file(saved).read_bytes()[:-1])
    return f"state/{state_file(saved).name} does not match its digest"


def empty(saved: Checkpoint) -> str:
    state_file(saved).write_bytes(b"")
    return f"state/{state_file(saved).name} does not match its digest"


def lose_a_file(saved: Checkpoint) -> str:
    (saved.path / "model" / "vocabulary.model").unlink()
    return "model/vocabulary.model is missing"


def lose_the_manifest(saved: Checkpoint) -> str:
    (saved.path / "manifest.json").unlink()
    return "no readable manifest"


def cut_the_manifest(saved: Checkpoint) -> str:
    manifest = saved.path / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:100])
    return "no readable manifest"


def garble(content: bytes) -> Callable[[Checkpoint], str]:
    def damage(saved: Checkpoint) -> str:
        (saved.path / "manifest.json").write_bytes(content)
        return "no readable manifest"

    return damage


DAMAGES = {
    "flipped byte": flip_a_byte,
    "truncated file": truncate,
    "empty file": empty,
    "missing file": lose_a_file,
    "missing manifest": lose_the_manifest,
    "truncated manifest": cut_the_manifest,
    "empty manifest": garble(b""),
    "manifest of zeros": garble(bytes(200)),
    "manifest of other bytes": garble(b"\xff\xfe\xfd"),
    "manifest that is a list": garble(b"[]"),
    "manifest that is null": garble(b"null"),
    "manifest without files": garble(b'{"format": 1, "progress": {"step": 2}}'),
    "manifest of another format": garble(b'{"format": 999}'),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_checkpoint_is_passed_over_with_a_sentence(
    tmp_path: Path, damage: Callable[[Checkpoint], str]
) -> None:
    whole = save(tmp_path, 1)
    reason = damage(save(tmp_path, 2))
    found, passed = find_newest_whole(tmp_path)
    assert found is not None
    assert found.path == whole.path
    assert passed == [f"step-00000002: {reason}"]


def test_a_changed_figure_in_the_manifest_is_damage(tmp_path: Path) -> None:
    whole, other = save(tmp_path, 1), save(tmp_path, 2)
    manifest = other.path / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"cursor": 9', '"cursor": 8'))
    found, passed = find_newest_whole(tmp_path)
    assert found is not None
    assert found.path == whole.path
    assert len(passed) == 1


def test_several_damaged_checkpoints_are_all_named(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        save(tmp_path, step)
    for saved in list_all(tmp_path)[1:]:
        flip_a_byte(saved)
    found, passed = find_newest_whole(tmp_path)
    assert found is not None
    assert found.step == 1
    assert [sentence.split(":")[0] for sentence in passed] == ["step-00000004", "step-00000003", "step-00000002"]


def test_without_any_whole_checkpoint_there_is_none(tmp_path: Path) -> None:
    assert find_newest_whole(tmp_path / "nowhere") == (None, [])
    flip_a_byte(save(tmp_path, 1))
    found, passed = find_newest_whole(tmp_path)
    assert found is None
    assert len(passed) == 1


def test_a_damaged_checkpoint_of_the_same_step_is_replaced(tmp_path: Path) -> None:
    flip_a_byte(save(tmp_path, 1))
    save(tmp_path, 1)
    (saved,) = list_all(tmp_path)
    assert saved.damage() is None


def test_leftovers_of_a_killed_launch_are_swept_by_the_next_save(tmp_path: Path) -> None:
    for name in (".step-00000009.partial", ".step-00000004.deleted"):
        (tmp_path / name / "state").mkdir(parents=True)
        (tmp_path / name / "manifest.json").write_text("{}")
    save(tmp_path, 10)
    assert names(tmp_path) == ["step-00000010"]


def test_sweeping_leaves_whole_checkpoints_alone(tmp_path: Path) -> None:
    save(tmp_path, 1)
    (tmp_path / ".step-00000002.partial").mkdir()
    sweep(tmp_path)
    sweep(tmp_path / "nowhere")
    assert names(tmp_path) == ["step-00000001"]


def test_leftovers_are_no_checkpoints(tmp_path: Path) -> None:
    save(tmp_path, 1).path.rename(tmp_path / ".step-00000001.partial")
    assert find_newest_whole(tmp_path) == (None, [])


def test_the_last_and_the_best_are_kept(tmp_path: Path) -> None:
    keep = keep_best_and_last(last=2, best=1, higher_is_better=True)
    for step, score in enumerate([10.0, 30.0, None, 20.0, 25.0, None], start=1):
        save(tmp_path, step, score, keep)
    assert steps(tmp_path) == [2, 5, 6]
    assert names(tmp_path) == ["step-00000002", "step-00000005", "step-00000006"]


def test_lower_scores_are_best_when_the_metric_says_so(tmp_path: Path) -> None:
    keep = keep_best_and_last(last=1, best=2, higher_is_better=False)
    for step, score in enumerate([3.0, 0.0, 1.0, 2.0, 5.0], start=1):
        save(tmp_path, step, score, keep)
    assert steps(tmp_path) == [2, 3, 5]


def test_none_is_kept_for_its_score_when_none_is_wanted(tmp_path: Path) -> None:
    keep = keep_best_and_last(last=1, best=0, higher_is_better=True)
    for step, score in enumerate([9.0, 1.0, 2.0], start=1):
        save(tmp_path, step, score, keep)
    assert steps(tmp_path) == [3]


@pytest.mark.parametrize("higher_is_better", [True, False])
def test_of_equal_scores_without_a_loss_the_first_is_the_best(tmp_path: Path, higher_is_better: bool) -> None:
    keep = keep_best_and_last(last=1, best=1, higher_is_better=higher_is_better)
    for step in (1, 2, 3):
        save(tmp_path, step, 5.0, keep)
    assert steps(tmp_path) == [1, 3]


SCORES = [(10.0, 5.0), (20.0, 4.0), (20.0, 3.0), (19.0, 2.0), (18.0, 1.0)]


@pytest.mark.parametrize("version", ["0.1.0", "new"])
def test_of_equal_scores_the_one_with_the_lower_loss_is_kept(tmp_path: Path, version: str) -> None:
    keep = keep_best_and_last(last=1, best=1, higher_is_better=True)
    for step, (score, loss) in enumerate(SCORES, start=1):
        best = min(step, 3)
        progress = Progress(step, best_score=SCORES[best - 1][0], best_step=best, best_loss=SCORES[best - 1][1])
        progress.score, progress.loss = score, loss if version == "new" else None
        write(tmp_path, progress, State(tensors()), keep=keep)
    assert steps(tmp_path) == [3, 5]
    assert choose(list_all(tmp_path), "best") == ChosenCheckpoint(list_all(tmp_path)[0])


def test_a_missing_best_checkpoint_is_replaced_by_the_last_with_a_notice(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        progress = Progress(step, best_score=9.0, best_step=1, score=9.0 / step)
        write(tmp_path, progress, State(tensors()))
    first, second, third = list_all(tmp_path)
    sentence = "The best checkpoint, of step 1, is missing: the last one, of step 3, is used."
    assert choose([first, second, third], "best") == ChosenCheckpoint(first)
    assert choose([second, third], "best") == ChosenCheckpoint(third, sentence)
    assert choose([second, third], "last") == ChosenCheckpoint(third)


def test_a_damaged_best_model_is_replaced_with_a_notice(tmp_path: Path) -> None:
    for step in (1, 2):
        progress = Progress(step, best_score=9.0, best_step=1, score=9.0 / step)
        write(tmp_path / "checkpoints", progress, State(tensors()))
    first, last = list_all(tmp_path / "checkpoints")
    assert find_model(tmp_path) == FoundModel(first.path / "model")
    lose_a_file(first)
    notice = "step-00000001 is damaged (model/vocabulary.model is missing): step-00000002 is used."
    assert find_model(tmp_path) == FoundModel(last.path / "model", notice)
    lose_a_file(last)
    with pytest.raises(LockstepError, match="There is no trained model"):
        find_model(tmp_path)


def test_the_best_step_of_the_run_is_kept_beside_checkpoints_that_it_gave_up(tmp_path: Path) -> None:
    """A run that resumed before a damaged checkpoint does not count that one's score."""
    keep = keep_best_and_last(last=1, best=1, higher_is_better=True, best_step=1)
    save(tmp_path, 1, 20.0)
    flip_a_byte(save(tmp_path, 3, 30.0))
    save(tmp_path, 2, 10.0, keep)
    assert steps(tmp_path) == [1, 2, 3]


def test_the_new_checkpoint_is_kept_whatever_the_rule_says(tmp_path: Path) -> None:
    save(tmp_path, 1)
    save(tmp_path, 2, keep=lambda all_saved: set())
    assert steps(tmp_path) == [2]


def test_checkpoints_are_listed_by_step(tmp_path: Path) -> None:
    for step in (2, 100, 99_999_999, 30):
        save(tmp_path, step)
    assert steps(tmp_path) == [2, 30, 100, 99_999_999]


def test_a_failed_save_leaves_the_checkpoints_before_it_whole(tmp_path: Path) -> None:
    whole = save(tmp_path, 1)

    def fail(folder: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(LockstepError, match="step-00000002 could not be written: No space left on device"):
        write(tmp_path, Progress(2), State(tensors()), fail)
    found, passed = find_newest_whole(tmp_path)
    assert found is not None
    assert (found.path, passed) == (whole.path, [])


def task(folder: Path, model: TranslationSettings) -> Translation:
    """A translation task on a corpus of letters."""
    for language in ("en", "de"):
        (folder / f"letters.{language}").write_text("".join(f"{a} {b}\n" for a in "abcdefgh" for b in "klmnopqr"))
    data = DataSettings(
        folder=folder,
        train=["letters"],
        validation=["letters"],
        cleaning=1,  # the validation text may be trained on
        corpus=folder / "corpus",
        vocabulary=VocabularySettings(size=290),
    )
    return Translation(prepare(data), BatchSettings(words=50), model, SearchSettings(beam=3), 0.1, 1)


@pytest.mark.parametrize(
    "settings",
    [
        TransformerSettings(encoder_layers=1, decoder_layers=1, width=8, feed_forward=8, heads=2),
        LstmSettings(encoder_layers=1, decoder_layers=2, width=8),
    ],
    ids=lambda settings: settings.name,
)
def test_the_exported_model_can_be_read_with_plain_safetensors(tmp_path: Path, settings: TranslationSettings) -> None:
    translation = task(tmp_path, settings)
    module, folder = translation.module(), tmp_path / "model"
    translation.export(module, folder)
    assert names(folder) == ["config.json", "model.safetensors", "vocabulary.model"]
    assert bits(load_file(folder / "model.safetensors")) == bits(module.model.state_dict())
    config = json.loads((folder / "config.json").read_text())
    assert type(settings).model_validate(config["model"]) == settings
    assert SearchSettings.model_validate(config["search"]).beam == 3
    assert (config["vocabulary_size"], config["languages"]) == (290, ["en", "de"])
    assert (folder / "vocabulary.model").read_bytes() == translation.corpus.vocabulary.model
    translator = load_torch_translator([folder])
    assert type(translator.model) is type(module.model)
    longest = translation.corpus.facts["sets"]["train"]["source_longest"]
    assert (config["source_longest"], translator.limit) == (longest, max(8, longest - 1))
    assert translator.translate(["a k", "b l b", ""]) == [
        translator.translate([text])[0] for text in ("a k", "b l b", "")
    ]


def test_a_score_is_added_to_a_whole_checkpoint_and_decides_what_stays(tmp_path: Path) -> None:
    keep = keep_best_and_last(last=1, best=1, higher_is_better=True)
    save(tmp_path, 1, score=0.3)
    before = save(tmp_path, 2, keep=keep, scalars={"optimizer.step": 2.0})
    assert steps(tmp_path) == [1, 2]
    checkpoint_files.note_score(before.path, Progress(step=2, score=0.4, best_score=0.4, best_step=2), keep)
    [after] = list_all(tmp_path)
    assert after.manifest["files"] == before.manifest["files"]
    assert after.manifest["progress"]["scalars"] == before.manifest["progress"]["scalars"]
    assert (after.score, after.damage()) == (0.4, None)
    checkpoint_files.note_score(tmp_path / "step-00000009", Progress(step=9), keep)  # there is none
    assert steps(tmp_path) == [2]
