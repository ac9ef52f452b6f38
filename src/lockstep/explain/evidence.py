"""What the answers of a report are based on."""

from dataclasses import dataclass
from functools import cached_property

from lockstep.explain.measures.absences import Absence, list_absences
from lockstep.explain.measures.bottleneck import Bottleneck, find_bottleneck
from lockstep.explain.measures.convergence import Convergence, judge_convergence
from lockstep.explain.measures.disturbance import Disturbance, measure_disturbance
from lockstep.explain.measures.exchange_traffic import ExchangeTraffic, measure_traffic
from lockstep.explain.measures.incidents import Incident, list_incidents
from lockstep.explain.measures.loss_gap import LossGap, judge_overfitting
from lockstep.explain.measures.wall_time import WallTime, measure_wall_time
from lockstep.explain.measures.worker_usage import WorkerUsage, measure_usage
from lockstep.explain.reading.machines import Machines, read_machines
from lockstep.explain.reading.record import Record


@dataclass(frozen=True)
class Evidence:
    """A run and what is measured in it. Each measurement is made once, when something first needs it."""

    record: Record

    @cached_property
    def machines(self) -> Machines:
        return read_machines(self.record)

    @cached_property
    def disturbance(self) -> Disturbance:
        return measure_disturbance(self.record)

    @cached_property
    def absences(self) -> list[Absence]:
        return list_absences(self.record)

    @cached_property
    def incidents(self) -> list[Incident]:
        return list_incidents(self.record, self.absences)

    @cached_property
    def wall_time(self) -> WallTime:
        return measure_wall_time(self.record)

    @cached_property
    def convergence(self) -> Convergence:
        return judge_convergence(self.record)

    @cached_property
    def loss_gap(self) -> LossGap:
        return judge_overfitting(self.record)

    @cached_property
    def bottleneck(self) -> Bottleneck | None:
        """None when no step was measured."""
        return find_bottleneck(self.record)

    @cached_property
    def usage(self) -> list[WorkerUsage]:
        return measure_usage(self.record)

    @cached_property
    def traffic(self) -> ExchangeTraffic | None:
        """None when no step was measured."""
        return measure_traffic(self.record, self.machines)
