"""Clusters, links and contention as people write them; and the fit of a size sweep."""

from pathlib import Path

import pytest
from pydantic import JsonValue

from lockstep.errors import LockstepError
from lockstep.lab.plan.cluster import (
    build_cluster,
    find_device,
    load_cluster,
    parse_contention,
    parse_link,
    read_presets,
)
from lockstep.lab.plan.profile import ModelShape
from lockstep.lab.plan.sweep import SIZES, fit_link


@pytest.mark.parametrize("name", read_presets()["clusters"])
def test_every_preset_can_be_read(name: str) -> None:
    assert load_cluster(name).workers >= 1


@pytest.mark.parametrize("name", read_presets()["devices"])
def test_every_device_has_peaks_achieved_shares_and_a_dated_price(name: str) -> None:
    device = find_device(name)
    assert set(device.achieved) == set(device.peak) >= {"fp32"}
    assert all(0 < share < 1 for share in device.achieved.values())
    assert device.dollars
    assert device.dated == "2024-06"


@pytest.mark.parametrize(
    ("device", "precision"), [("a100", "bf16"), ("h100", "bf16"), ("v100", "fp16"), ("t4", "fp16"), ("p100", "fp32")]
)
def test_automatic_precision_is_that_of_the_planned_device(device: str, precision: str) -> None:
    assert find_device(device).choose_precision("auto") == precision


def test_a_measured_profile_is_scaled_in_the_precision_of_the_planned_device() -> None:
    measured = find_device("v100").estimate_profile(ModelShape(1000, 6000.0, 0.3, ()), 100, "fp32")
    assert find_device("a100").scale_profile(measured, "auto").precision == "bf16"
    assert find_device("a100").scale_profile(measured, "fp32").precision == "fp32"


def test_a_cluster_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("nodes: 3\nper_node: 2\ninside: pcie4\nlink: {gbit: 2.5, latency: 30}\ndollars: 0.5\ncores: 8\n")
    cluster = load_cluster(str(path))
    assert (cluster.name, cluster.workers, cluster.dollars, cluster.cores) == ("mine", 6, 0.5, 8)
    assert cluster.wiring.between.bytes_per_second == pytest.approx(2.5e9 / 8)
    assert cluster.wiring.between.latency_seconds == pytest.approx(30e-6)


def test_a_link_is_a_preset_a_rate_or_the_output_of_a_sweep() -> None:
    assert parse_link("1gbit").bytes_per_second == pytest.approx(0.935 * 125e6)
    assert parse_link("300mbit").bytes_per_second == pytest.approx(0.935 * 37.5e6)
    assert parse_link({"bytes_per_second": 5e6, "latency_seconds": 0.1}).latency_seconds == 0.1


@pytest.mark.parametrize(
    "value", ["fast", "0gbit", "1gbyte", 7, {"gbit": "x"}, {"gbit": 0}, {"bytes_per_second": 1, "no": 2}]
)
def test_what_is_not_a_link_is_refused(value: JsonValue) -> None:
    with pytest.raises(LockstepError, match="is not a link"):
        parse_link(value)


@pytest.mark.parametrize(
    "facts",
    [
        {"nodes": 0},
        {"nodes": "many"},
        {"nods": 2},
        {"per_node": 2},
        {"algorithm": "star"},
        {"device": "abacus"},
        {"contention": "x"},
        ["nodes"],
    ],
)
def test_a_cluster_with_a_mistake_is_refused(facts: JsonValue) -> None:
    with pytest.raises(LockstepError) as refused:
        build_cluster("mine", facts)
    assert refused.value.code == 2


def test_a_cluster_that_does_not_exist_or_is_not_yaml_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LockstepError, match="neither a file nor a preset"):
        load_cluster("moon")
    (tmp_path / "bad.yaml").write_text("{nodes: [")
    with pytest.raises(LockstepError, match="cannot be read as YAML"):
        load_cluster(str(tmp_path / "bad.yaml"))


def test_contention_is_pairs_of_numbers() -> None:
    assert parse_contention("1,1.0,2,1.1,4,2.2") == {1: 1.0, 2: 1.1, 4: 2.2}
    assert parse_contention("4,2") == {1: 1.0, 4: 2.0}
    for wrong in ("", "1", "2,x", "2,-1", "0,1", "2,inf"):
        with pytest.raises(LockstepError):
            parse_contention(wrong)


def test_a_fit_recovers_latency_and_rate() -> None:
    sizes = [float(size) for size in SIZES]
    link = fit_link(sizes, [0.002 + size / 5e7 for size in sizes], "x", "test")
    assert link.bytes_per_second == pytest.approx(5e7, rel=1e-6)
    assert link.latency_seconds == pytest.approx(0.002, rel=1e-6)
    assert link.error == 0.02


def test_a_fit_recovers_the_rate_of_a_link_that_passes_small_messages_at_once() -> None:
    sizes = [float(size) for size in SIZES]
    link = fit_link(sizes, [0.001 + max(0.0, size - 131072) / 12e6 for size in sizes], "x", "test")
    assert link.bytes_per_second == pytest.approx(12e6, rel=0.06)
