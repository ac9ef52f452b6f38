"""Writes TensorBoard scalars with TensorBoard's event writer. Importing torch's SummaryWriter would take two seconds."""

import threading
import time
from pathlib import Path


class TensorBoardWriter:
    """Writes one event file per launch. TensorBoard hides what an interrupted launch wrote after step `start`. The loop
    and the sampler write from different threads."""

    def __init__(self, folder: Path, start: int) -> None:
        self._folder, self._start = folder, start
        self.is_open = False
        self._lock = threading.Lock()

    def _open(self) -> None:
        """Opens the event file. This happens with the first scalars, so that the import does not delay the first step."""
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._event, self._summary = Event, Summary
        self._writer = EventFileWriter(str(self._folder), flush_secs=5)
        session = SessionLog(status=SessionLog.START)
        self._writer.add_event(Event(wall_time=time.time(), step=self._start + 1, session_log=session))
        self.is_open = True

    def add_scalars(self, step: int, values: dict[str, float]) -> None:
        with self._lock:
            if not self.is_open:
                self._open()
        summary = self._summary(value=[self._summary.Value(tag=tag, simple_value=v) for tag, v in values.items()])
        self._writer.add_event(self._event(wall_time=time.time(), step=step, summary=summary))

    def close(self) -> None:
        if self.is_open:
            self._writer.close()
