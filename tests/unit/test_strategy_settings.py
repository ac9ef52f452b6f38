"""Every strategy has the settings that it reads, and refuses those of the others."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from lockstep.config import STRATEGY_0_1_0, VARIANTS, RunConfig, describe, load
from lockstep.errors import LockstepError
from lockstep.lab.plan.planned_job import Choice
from lockstep.lab.study.cells import Cell, Matrix
from lockstep.lab.study.run_cells import StudyJob

MINIMAL: dict[str, Any] = {"data": {"grammar": {}}, "batch": {"words": 1000}}
STRATEGIES = ("auto", "allreduce", "single", "replicas", "sharded", "server", "local", "resilient")


def write_config(folder: Path, strategy: dict[str, Any] | None = None, name: str = "test.yaml") -> Path:
    path = folder / name
    path.write_text(yaml.safe_dump(MINIMAL if strategy is None else MINIMAL | {"strategy": strategy}))
    return path


def refusal(path: Path, *overrides: str) -> str:
    with pytest.raises(LockstepError) as caught:
        load(path, list(overrides))
    assert caught.value.code == 2
    return caught.value.message


def test_other_mistakes_are_explained_as_for_every_setting(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    assert refusal(path, "strategy.evry=5") == "unknown setting strategy.evry (did you mean strategy.every?)."
    assert "strategy.gradients='int3' is wrong: it must be" in refusal(path, "strategy.gradients=int3")
    assert "strategy.every=0 is wrong" in refusal(path, "strategy.name=local", "strategy.every=0")
    known = " or ".join(f"'{name}'" for name in STRATEGIES)
    assert refusal(path, "strategy.name=ring") == f"strategy.name='ring' is wrong: it must be {known}."
    assert "strategy=5 is wrong" in refusal(path, "strategy=5")
    assert "strategy.name" in refusal(path, "strategy.name=[ring]")


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_written_config_has_the_settings_of_its_strategy_and_is_read_back(tmp_path: Path, name: str) -> None:
    config = load(write_config(tmp_path), [f"strategy.name={name}"])
    assert config.strategy.name == name
    path = tmp_path / "again.yaml"
    path.write_text(config.to_yaml())
    assert yaml.safe_load(path.read_text())["strategy"].keys() == VARIANTS["strategy"][name].model_fields.keys()
    assert load(path, []) == config


def test_together_the_strategies_have_the_settings_of_0_1_0() -> None:
    settings = {key: info.default for one in VARIANTS["strategy"].values() for key, info in one.model_fields.items()}
    del settings["name"]
    assert settings.items() >= STRATEGY_0_1_0.items()
    assert set(VARIANTS["strategy"]) >= set(STRATEGIES)


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_file_with_all_settings_of_0_1_0_at_their_defaults_loads(tmp_path: Path, name: str) -> None:
    path = write_config(tmp_path, {"name": name} | STRATEGY_0_1_0)
    assert load(path, []) == load(write_config(tmp_path), [f"strategy.name={name}"])


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """The config of a run of 0.1.0 with settings that did nothing."""
    (tmp_path / "choices.json").write_text("{}")
    ignored = {"mode": "async", "every": 7, "keep_gathered": True, "gradients": "bf16"}
    return write_config(tmp_path, {"name": "allreduce"} | STRATEGY_0_1_0 | ignored, "config.yaml")


def test_settings_that_did_nothing_are_dropped_from_a_run_of_0_1_0(earlier: Path) -> None:
    expected = load(
        write_config(earlier.parent), ["data.cleaning=1", "strategy.name=allreduce", "strategy.gradients=bf16"]
    )
    assert load(earlier, []) == expected
    assert refusal(earlier, "strategy.mode=async") == "strategy.mode is not for strategy.name=allreduce; server has it."


def test_one_resilient_worker_of_0_1_0_ignored_powersgd(earlier: Path) -> None:
    write_config(earlier.parent, STRATEGY_0_1_0 | {"name": "resilient", "gradients": "powersgd"}, "config.yaml")
    assert load(earlier, []).strategy == load(write_config(earlier.parent), ["strategy.name=resilient"]).strategy


def test_settings_that_did_nothing_are_refused_in_a_file_that_is_not_a_run_s(earlier: Path) -> None:
    (earlier.parent / "choices.json").unlink()
    message = refusal(earlier)
    for key, owner in (("mode", "server"), ("every", "local"), ("keep_gathered", "sharded")):
        assert f"strategy.{key} is not for strategy.name=allreduce; {owner} has it" in message


def test_a_run_of_this_version_has_no_settings_to_drop(earlier: Path) -> None:
    write_config(earlier.parent, {"name": "allreduce", "mode": "async"}, "config.yaml")
    assert "strategy.mode is not for strategy.name=allreduce; server has it" in refusal(earlier)


def test_another_strategy_leaves_behind_what_it_does_not_have(tmp_path: Path) -> None:
    path = write_config(tmp_path, {"name": "allreduce", "gradients": "powersgd", "powersgd_rank": 4, "bucket_mb": 5})
    settings = load(path, ["strategy.every=3", "strategy.name=local"]).strategy.model_dump(exclude_defaults=True)
    assert settings == {"bucket_mb": 5, "every": 3}
    same = load(path, ["strategy.name=auto"]).strategy.model_dump(exclude_defaults=True)
    assert same == {"gradients": "powersgd", "powersgd_rank": 4, "bucket_mb": 5}
    assert load(path, ["strategy.name=local", "strategy.name=allreduce"]) == load(path, [])
    assert "strategy.rnak" in refusal(write_config(tmp_path, {"name": "allreduce", "rnak": 4}), "strategy.name=local")


def test_an_override_is_for_the_strategy_that_is_named_wherever_it_stands(tmp_path: Path) -> None:
    message = refusal(write_config(tmp_path), "strategy.mode=async", "strategy.name=local")
    assert message == "strategy.mode is not for strategy.name=local; server has it."


def words(*strategies: str) -> Matrix:
    return Matrix((1, 2), strategies, ("none",), (500,), "words", 20, 5, 3, 1)


def cell_config(job: StudyJob, matrix: Matrix, strategy: str) -> RunConfig:
    return load(job.config, job.make_settings(matrix, Cell(2, strategy, "none", 500)))


def test_a_study_gives_a_setting_to_the_strategies_that_have_it(tmp_path: Path) -> None:
    job = StudyJob(write_config(tmp_path), ["strategy.gradients=bf16", "strategy.outer_rate=0.5", "train.seed=7"])
    matrix = words("allreduce", "server:mode=async", "local:every=10")
    job.check(matrix)
    expected = {
        "alone": {"gradients": "bf16"},
        "replicas": {},
        "allreduce": {"name": "allreduce", "gradients": "bf16"},
        "server:mode=async": {"mode": "async"},
        "local:every=10": {"gradients": "bf16", "every": 10, "outer_rate": 0.5},
    }
    for strategy, settings in expected.items():
        config = cell_config(job, matrix, strategy)
        assert config.strategy.model_dump(exclude_defaults=True) == settings
        assert config.train.seed == 7
    stored = job.as_dict()["strategy"]
    assert isinstance(stored, dict)
    assert stored["outer_rate"] == 0.5


def test_a_study_leaves_behind_what_the_file_s_strategy_has_alone(tmp_path: Path) -> None:
    job = StudyJob(write_config(tmp_path, {"name": "server", "servers": 2, "mode": "async", "bucket_mb": 5}), [])
    matrix = words("allreduce", "server", "sharded")
    assert cell_config(job, matrix, "allreduce").strategy.model_dump(exclude_defaults=True) == {
        "name": "allreduce",
        "bucket_mb": 5,
    }
    assert cell_config(job, matrix, "sharded").strategy.model_dump(exclude_defaults=True) == {}
    server = cell_config(job, matrix, "server").strategy
    assert server.model_dump(exclude_defaults=True) == {"mode": "async", "bucket_mb": 5}


def test_a_study_refuses_a_setting_that_has_no_effect(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    for override, sentence in (
        ("strategy.every=5", "strategy.every is not for strategy.name=allreduce; local has it."),
        ("strategy.evry=5", "unknown setting strategy.evry (did you mean strategy.every?)."),
        ("train.steps=12", "train.steps has no effect in a study."),
        ("train.evaluate_every=5", "train.evaluate_every has no effect in a study."),
    ):
        with pytest.raises(LockstepError) as caught:
            StudyJob(path, [override]).check(words("allreduce", "sharded"))
        assert caught.value.message == sentence


@pytest.mark.parametrize(
    "word", ["allreduce:mode=async", "server:gradients=bf16", "replicas:every=5", "sharded:servers=1"]
)
def test_the_planner_refuses_settings_of_other_strategies(word: str) -> None:
    with pytest.raises(LockstepError) as caught:
        Choice.parse(word)
    assert caught.value.remedy.startswith("It is for ")


def test_every_setting_is_explained_with_the_strategies_that_have_it() -> None:
    settings = {setting["key"]: setting for setting in describe("strategy")}
    assert settings.keys() == {f"strategy.{key}" for key in ("name", "transport", *STRATEGY_0_1_0)}
    for key, setting in settings.items():
        owners = [name for name, one in VARIANTS["strategy"].items() if key.partition(".")[2] in one.model_fields]
        assert setting["text"].endswith(".")
        for name in owners:
            assert name == "auto" or name in setting["text"], key
    assert settings["strategy.mode"]["text"].endswith("Only for server.")
    assert settings["strategy.gradients"]["type"] == "fp32 | bf16 | fp16 | powersgd"
    assert settings["strategy.name"]["type"] == " | ".join(STRATEGIES)
    assert settings["strategy.name"]["default"] == "auto"
    assert settings["strategy.every"]["default"] is None
