"""`import lockstep`: models, runs and reports as Python objects; every wrong argument ends in a sentence."""

import json
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import lockstep
from lockstep.models.model_settings import ResNetSettings
from lockstep.models.resnet import ResNet
from lockstep.run.checkpoint import find_model
from lockstep.tasks.classification import ClassificationLoss
from lockstep.tasks.task import write_model
from lockstep.translate.scores import compute_bleu, compute_chrf
from madeup import MadeUp

ARCHIVE = Path(__file__).parents[1] / "fixtures" / "run-0.1.0.tar.gz"
SCORES = {step: {"loss": 2.0, "sacrebleu": 10.0 + step} for step in (10, 20)}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("earlier")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder / "run"


@pytest.fixture(scope="module")
def model(run: Path) -> Iterator[lockstep.Model]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # several would wait for each other more than they compute
    yield lockstep.load(run)
    torch.set_num_threads(threads)


@pytest.fixture
def classifier_folder(tmp_path: Path) -> Path:
    settings = ResNetSettings(name="resnet", depth=8, channels=2)
    module = ClassificationLoss(ResNet(settings, 3, 2), ([0.0] * 3, [1.0] * 3), 0.0)
    config = {"model": settings.model_dump(mode="json"), "shape": [3, 8, 8], "classes": ["dark", "light"]}
    write_model(tmp_path / "classifier", module, config)
    return tmp_path / "classifier"


def test_every_name_of_the_interface_can_be_used() -> None:
    assert all(getattr(lockstep, name) is not None for name in lockstep.__all__)
    assert dir(lockstep) == sorted(lockstep.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        getattr(lockstep, "nothing")  # noqa: B009


def test_a_text_gives_a_text_and_a_list_gives_a_list(model: lockstep.Model) -> None:
    one = model.translate("ba de")
    assert isinstance(one, str)
    assert model.translate(["ba de"]) == [one]
    assert model.translate(("ba de", "")) == [one, ""]
    assert model.translate([]) == []


def test_the_best_translations_have_scores_and_the_first_one_is_the_translation(model: lockstep.Model) -> None:
    candidates = model.translate("ba de ga", n_best=7)
    assert len(candidates) == 7
    assert candidates[0].text == model.translate("ba de ga", beam=7)
    scores = [candidate.score for candidate in candidates]
    assert scores == sorted(scores, reverse=True)
    assert [len(own) for own in model.translate(["ba", "de ga"], n_best=2)] == [2, 2]


def test_options_of_a_call_do_not_change_the_model(model: lockstep.Model) -> None:
    before = model.translate("ba de ga ki lo mu")
    model.translate("ba de ga ki lo mu", beam=1, length_penalty=5.0, n_best=1)
    assert model.translate("ba de ga ki lo mu") == before


def test_threads_share_a_model(model: lockstep.Model) -> None:
    texts = ["ba de", "ga ki lo", "mu", "lo lo ba"]
    expected, results = model.translate(texts), dict[str, str]()
    threads = [
        threading.Thread(target=lambda text=text: results.update({text: model.translate(text)})) for text in texts
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [results[text] for text in texts] == expected


def test_a_model_is_scored_against_references(model: lockstep.Model) -> None:
    sources = ["ba de ga ki lo", "mu ba de lo ki"]
    references = ["Lo Ki Ga De Ba", "Ki Lo De Ba Mu"]
    scores, translations = model.score(sources, references, beam=2), model.translate(sources, beam=2)
    assert (scores.bleu, scores.bleu_signature) == compute_bleu(translations, references)
    assert (scores.chrf, scores.chrf_signature) == compute_chrf(translations, references)
    assert scores.sentences == 2
    for texts, wrong in ((sources, ["one"]), ([], [])):
        with pytest.raises(lockstep.LockstepError, match="with a reference for each"):
            model.score(texts, wrong)


def test_a_model_says_what_it_is(model: lockstep.Model, run: Path) -> None:
    info = model.info
    assert info.path == find_model(run).folder
    assert (info.task, info.kind, info.languages) == ("translation", "transformer", ("en", "de"))
    assert info.parameters > 0
    assert info.bytes > 4 * info.parameters
    assert info.longest_source == 27
    assert info.vocabulary_size == json.loads((info.path / "config.json").read_text())["vocabulary_size"]
    assert info.step is not None
    assert "sacrebleu" in info.scores
    assert "version:" in info.signature
    assert "torch" in info.versions
    assert f"transformer, en to de, {info.parameters:,} parameters, step {info.step:,}" in repr(model)


@pytest.mark.parametrize("as_path", [True, False], ids=["path", "text"])
@pytest.mark.parametrize(
    ("name", "message"),
    [("missing", "There is no folder"), ("file", "is a file"), ("empty", "There is no trained model in")],
)
def test_a_path_that_is_not_a_model_gives_a_sentence(name: str, message: str, as_path: bool, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    place = tmp_path / name
    with pytest.raises(lockstep.LockstepError, match=message) as raised:
        lockstep.load(place if as_path else str(place))
    assert raised.value.remedy


@pytest.mark.parametrize("place", [None, 5, "", b"runs", ["runs/demo"]])
def test_what_is_not_a_path_gives_a_sentence(place: Any) -> None:
    with pytest.raises(lockstep.LockstepError, match="takes the path of a folder, not"):
        lockstep.load(place)


@pytest.mark.parametrize("call", [lockstep.runs, lockstep.report])
def test_runs_and_reports_need_a_path(call: Any) -> None:
    with pytest.raises(lockstep.LockstepError, match="takes the path of a folder, not None"):
        call(None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"text": 5}, "Only text can be translated, and 5 is not"),
        ({"text": ["ba", None]}, "Only text can be translated, and None is not"),
        ({"text": "ba", "beam": 0}, "beam=0 is too small"),
        ({"text": "ba", "n_best": 0}, "n_best=0 is too small"),
        ({"text": "ba", "length_penalty": -1.0}, "length_penalty=-1.0 is negative"),
        ({"text": "ba", "n_best": 3, "beam": 2}, "A beam of 2 cannot find the 3 best translations"),
    ],
)
def test_wrong_arguments_of_translate_give_a_sentence(
    model: lockstep.Model, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(lockstep.LockstepError, match=message):
        model.translate(**arguments)


def test_wrong_options_of_load_give_a_sentence(run: Path) -> None:
    for name, value in (("checkpoint", "first"), ("device", "tpu")):
        wrong: dict[str, Any] = {name: value}
        with pytest.raises(lockstep.LockstepError, match=f"{name}='{value}' is unknown. Use one of: "):
            lockstep.load(run, **wrong)
    with pytest.raises(lockstep.LockstepError, match="average=0 leaves no checkpoint"):
        lockstep.load(run, average=0)


def test_a_model_does_only_its_task(model: lockstep.Model, classifier_folder: Path) -> None:
    with pytest.raises(lockstep.LockstepError, match="translates text: it classifies nothing"):
        model.classify("photo.png")
    classifier = lockstep.load(classifier_folder)
    with pytest.raises(lockstep.LockstepError, match="classifies images: it translates nothing"):
        classifier.translate("ba")
    with pytest.raises(lockstep.LockstepError, match="only translation models are averaged"):
        lockstep.load(classifier_folder, average=2)
    (classifier_folder / "config.json").write_text("{}")
    with pytest.raises(lockstep.LockstepError, match="is a model of another task"):
        lockstep.load(classifier_folder)


def test_image_files_are_classified(classifier_folder: Path, tmp_path: Path) -> None:
    from PIL import Image

    paths = [tmp_path / "dark.png", tmp_path / "light.png"]
    for path, shade in zip(paths, (20, 230), strict=True):
        Image.new("RGB", (30, 20), (shade,) * 3).save(path)
    classifier = lockstep.load(classifier_folder)
    info = classifier.info
    assert (info.task, info.kind, info.classes, info.image_shape) == (
        "classification",
        "resnet",
        ("dark", "light"),
        (3, 8, 8),
    )
    every = classifier.classify(paths, top=5)
    assert [len(guesses) for guesses in every] == [2, 2]
    assert sum(guess.probability for guess in every[0]) == pytest.approx(1.0)
    (best,) = classifier.classify(str(paths[0]))
    assert best.name == every[0][0].name
    assert best.probability == pytest.approx(every[0][0].probability, abs=1e-5)
    with pytest.raises(lockstep.LockstepError, match="top=0"):
        classifier.classify(paths, top=0)
    with pytest.raises(lockstep.LockstepError, match="cannot be read: No such file"):
        classifier.classify(tmp_path / "none.png")


def test_runs_are_listed_as_objects_and_show_themselves_as_tables(tmp_path: Path) -> None:
    MadeUp(tmp_path / "a" / "first").launch(range(1, 31), scores=SCORES)
    MadeUp(tmp_path / "b" / "<b>").launch(range(1, 3), workers=1, stop=None)
    first, second = every = lockstep.runs(tmp_path)
    assert (first.name, first.path, first.state) == ("first", str(tmp_path / "a" / "first"), "finished")
    assert (first.step, first.metric, first.best_score, first.best_step) == (30, "sacrebleu", 30.0, 20)
    assert (first.signature, first.unit, first.workers) == ("made|up", "target words", 2)
    assert first.started is not None
    assert first.ended is not None
    assert 3.0 < (first.ended - first.started).total_seconds() < 30.0
    assert (second.name, second.state, second.best_score, second.ended) == ("<b>", "cut off", None, None)
    head, row, _ = repr(every).splitlines()
    assert head.split() == ["run", "state", "step", "best", "score", "speed", "workers", "started"]
    assert row.startswith("first  finished    30  sacrebleu 30.00 at 20")
    html = every._repr_html_()
    assert "&lt;b&gt;" in html
    assert "<b>" not in html
    assert "sacrebleu 30.00 at 20" in html


def test_a_folder_without_runs_gives_an_empty_list_and_a_missing_one_a_sentence(tmp_path: Path) -> None:
    assert lockstep.runs(tmp_path) == []
    assert repr(lockstep.runs(tmp_path)) == "no runs"
    with pytest.raises(lockstep.LockstepError, match="There is no folder"):
        lockstep.runs(tmp_path / "none")


def test_a_report_answers_by_name(tmp_path: Path) -> None:
    MadeUp(tmp_path / "run").launch(range(1, 31), scores=SCORES)
    report = lockstep.report(tmp_path / "run")
    assert [answer.name for answer in report][:3] == ["duration", "trained", "overfitting"]
    assert len(report) == len(report.answers) == 11
    duration = report["duration"]
    assert duration.question == "How long did the training take?"
    assert duration["wall time"].value == pytest.approx(9.0, abs=0.5)
    assert duration["wall time"].measured.startswith("worker 0's journal")
    with pytest.raises(KeyError, match="'length' is not an answer: duration, trained"):
        report["length"]
    with pytest.raises(KeyError, match="'hours' is not a figure of this answer: wall time"):
        duration["hours"]
    facts = json.loads(json.dumps(report.as_dict()))
    assert [answer["question"] for answer in facts["answers"]] == [answer.question for answer in report]
    assert report.verdict[0] in repr(report)


def test_a_report_is_shown_without_scripts_and_saved_as_a_page(tmp_path: Path) -> None:
    MadeUp(tmp_path / "run <i>").launch(range(1, 31), scores=SCORES)
    before = sorted(tmp_path.rglob("*"))
    report = lockstep.report(tmp_path / "run <i>")
    html = report._repr_html_()
    assert "<script" not in html
    assert "<i>" not in html
    assert html.count("<details>") == 11
    assert sorted(tmp_path.rglob("*")) == before, "a report writes nothing until it is saved"
    page = report.save(tmp_path / "page.html")
    assert "<!doctype html>" in page.read_text().lower()
    with pytest.raises(lockstep.LockstepError, match="is a folder"):
        report.save(tmp_path)
    with pytest.raises(lockstep.LockstepError, match="cannot be read or written"):
        report.save(tmp_path / "none" / "page.html")
    with pytest.raises(lockstep.LockstepError, match="There is no run folder"):
        lockstep.report(tmp_path / "none")
