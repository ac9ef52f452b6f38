"""A plan for a device that was not measured knows that small models do not fill it."""

from pathlib import Path

import pytest

from lockstep.config import load
from lockstep.lab.plan.cluster import SCALED_ERROR, find_device, load_cluster
from lockstep.lab.plan.device_limits import estimate_fill, estimate_launches
from lockstep.lab.plan.model_shape import measure_shape
from lockstep.lab.plan.overlap import ProfiledTensor
from lockstep.lab.plan.planned_job import Choice, PlannedJob
from lockstep.lab.plan.predict import make_plan
from lockstep.lab.plan.profile import ModelShape

DEMO = Path(__file__).parents[2] / "configs" / "demo.yaml"


def make_shape(width: int, tensors: int = 100) -> ModelShape:
    parameters = tensors * width * width
    shapes = tuple(ProfiledTensor(str(n), (width, width), n / tensors) for n in range(tensors))
    return ModelShape(parameters, 6.0 * parameters, 1 / 3, shapes)


@pytest.mark.parametrize("device", ["t4", "v100", "h100"])
def test_a_step_of_the_demo_takes_milliseconds_on_a_gpu(device: str) -> None:
    """It was predicted to take 121 microseconds."""
    profile = find_device(device).estimate_profile(measure_shape(load(DEMO, [])), 1000, "fp32")
    step = profile.points[-1].forward + profile.points[-1].backward
    assert 1e-3 < step < 20e-3
    row = make_plan(PlannedJob(profile, 1000), load_cluster("v100-nodes"), [1], [Choice()]).rows[0]
    assert row.low < 3e-3 < 5e-3 < row.high
    assert row.words_per_second < 1e6


def test_fewer_words_do_not_make_a_step_shorter_than_its_kernels_take_to_launch() -> None:
    shape = make_shape(256)
    profile = find_device("v100").estimate_profile(shape, 4000, "fp32")
    plan = make_plan(PlannedJob(profile, 4000), load_cluster("v100-nodes"), [1, 64], [Choice("replicas")])
    assert plan.rows[1].high > estimate_launches(shape).high
    assert plan.rows[1].step_seconds > estimate_launches(shape).low


def test_a_large_model_is_predicted_from_its_arithmetic_as_before() -> None:
    shape, device = make_shape(1024), find_device("v100")
    profile = device.estimate_profile(shape, 4096, "fp32")
    arithmetic = shape.flops_per_word * 4096 / (1e12 * device.peak["fp32"] * device.achieved["fp32"])
    assert profile.points[-1].forward + profile.points[-1].backward == pytest.approx(arithmetic)
    assert profile.error == pytest.approx(SCALED_ERROR)


def test_small_products_fill_less_of_a_device_and_the_range_is_wider() -> None:
    wide, narrow, few = (
        estimate_fill(make_shape(width), words) for width, words in ((512, 4096), (64, 4096), (512, 16))
    )
    assert (wide.low, wide.high) == (1.0, 1.0)
    assert narrow.low < narrow.high < 0.6
    assert few.high < 0.3
    assert narrow.error > 0.3


def test_a_plan_says_what_a_step_cannot_fall_below() -> None:
    profile = find_device("v100").estimate_profile(make_shape(160), 1000, "fp32")
    notes = make_plan(PlannedJob(profile, 1000), load_cluster("v100-nodes"), [1, 2]).notes
    assert any("launches about 500 to 1,000 kernels, 4 to 10 microseconds each" in note for note in notes)
