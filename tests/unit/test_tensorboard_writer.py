from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lockstep.watch.tensorboard_writer import TensorBoardWriter


def launch(folder: Path, start: int, steps: list[int], value: float) -> None:
    board = TensorBoardWriter(folder, start)
    for step in steps:
        board.add_scalars(step, {"train_loss": value + step, "phase/merge": 0.25})
    board.close()


def read_points(folder: Path, tag: str = "train_loss") -> list[tuple[int, float]]:
    """Returns the points that TensorBoard shows."""
    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    return [(event.step, event.value) for event in accumulator.Scalars(tag)]


def test_scalars_can_be_read_back_with_tensorboard(tmp_path: Path) -> None:
    launch(tmp_path, 0, [1, 2, 3], 0.5)
    assert read_points(tmp_path) == [(1, 1.5), (2, 2.5), (3, 3.5)]
    assert read_points(tmp_path, "phase/merge") == [(1, 0.25), (2, 0.25), (3, 0.25)]


def test_nan_is_written_as_nan(tmp_path: Path) -> None:
    board = TensorBoardWriter(tmp_path, 0)
    board.add_scalars(1, {"train_loss": float("nan")})
    board.close()
    ((step, value),) = read_points(tmp_path)
    assert step == 1
    assert value != value


@pytest.mark.parametrize("start", [2, 1, 0])
def test_a_resumed_launch_hides_what_was_written_beyond_its_start(tmp_path: Path, start: int) -> None:
    launch(tmp_path, 0, [1, 2, 3, 4], 0.0)
    again = list(range(start + 1, 6))
    launch(tmp_path, start, again, 100.0)
    expected = [(step, float(step)) for step in range(1, start + 1)] + [(step, 100.0 + step) for step in again]
    assert read_points(tmp_path) == expected


def test_every_launch_writes_one_event_file(tmp_path: Path) -> None:
    launch(tmp_path, 0, [1], 0.0)
    launch(tmp_path, 1, [2], 0.0)
    assert len(list(tmp_path.iterdir())) == 2
