"""Clusters, links and contention as people write them; and the fit of a size sweep."""

from pathlib import Path

import pytest

from lockstep.errors import LockstepError
from lockstep.lab.plan.cluster import cluster, contention, device, load, pipe, presets
from lockstep.lab.plan.sweep import SIZES, fit


@pytest.mark.parametrize("name", presets()["clusters"])
def test_every_preset_can_be_read(name: str) -> None:
    assert load(name).workers >= 1


@pytest.mark.parametrize("name", presets()["devices"])
def test_every_device_has_peaks_achieved_shares_and_a_dated_price(name: str) -> None:
    found = device(name)
    assert set(found.achieved) == set(found.peak) >= {"fp32"}
    assert all(0 < share < 1 for share in found.achieved.values())
    assert found.dollars
    assert found.dated == "2024-06"


def test_a_file_names_its_own_cluster(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("nodes: 3\nper_node: 2\ninside: pcie4\nlink: {gbit: 2.5, latency: 30}\ndollars: 0.5\ncores: 8\n")
    found = load(str(path))
    assert (found.name, found.workers, found.dollars, found.cores) == ("mine", 6, 0.5, 8)
    assert found.wiring.between.bytes_per_second == pytest.approx(2.5e9 / 8)
    assert found.wiring.between.latency_seconds == pytest.approx(30e-6)


def test_a_link_is_a_preset_a_rate_or_what_a_sweep_has_measured() -> None:
    assert pipe("1gbit").bytes_per_second == pytest.approx(0.935 * 125e6)
    assert pipe("300mbit").bytes_per_second == pytest.approx(0.935 * 37.5e6)
    assert pipe({"bytes_per_second": 5e6, "latency_seconds": 0.1}).latency_seconds == 0.1


@pytest.mark.parametrize(
    "told", ["fast", "0gbit", "1gbyte", 7, {"gbit": "x"}, {"gbit": 0}, {"bytes_per_second": 1, "no": 2}]
)
def test_a_link_that_is_none_is_refused(told: object) -> None:
    with pytest.raises(LockstepError, match="is no link"):
        pipe(told)


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
def test_a_cluster_with_a_mistake_is_refused(facts: object) -> None:
    with pytest.raises(LockstepError) as refused:
        cluster("mine", facts)
    assert refused.value.code == 2


def test_a_cluster_that_is_not_there_or_no_yaml_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LockstepError, match="neither a file nor a preset"):
        load("moon")
    (tmp_path / "bad.yaml").write_text("{nodes: [")
    with pytest.raises(LockstepError, match="cannot be read as YAML"):
        load(str(tmp_path / "bad.yaml"))


def test_contention_is_pairs_of_numbers() -> None:
    assert contention("1,1.0,2,1.1,4,2.2") == {1: 1.0, 2: 1.1, 4: 2.2}
    assert contention("4,2") == {1: 1.0, 4: 2.0}
    for wrong in ("", "1", "2,x", "2,-1", "0,1", "2,inf"):
        with pytest.raises(LockstepError):
            contention(wrong)


def test_a_sweep_finds_latency_and_rate_again() -> None:
    sizes = [float(size) for size in SIZES]
    found = fit(sizes, [0.002 + size / 5e7 for size in sizes], "x", "test")
    assert found.bytes_per_second == pytest.approx(5e7, rel=1e-6)
    assert found.latency_seconds == pytest.approx(0.002, rel=1e-6)
    assert found.error == 0.02


def test_a_link_that_lets_small_messages_pass_at_once_still_tells_its_rate() -> None:
    sizes = [float(size) for size in SIZES]
    found = fit(sizes, [0.001 + max(0.0, size - 131072) / 12e6 for size in sizes], "x", "test")
    assert found.bytes_per_second == pytest.approx(12e6, rel=0.06)
