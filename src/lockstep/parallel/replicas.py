"""Replicas: every worker trains alone on its share of each batch, and nothing is exchanged.

This is the yardstick: the same work on the same machines without communication. The difference between a strategy's speed
and this one is the price of its communication. The run's model is worker 0's.
"""

from lockstep.parallel.diverging_models import DivergingModels


class Replicas(DivergingModels):
    """Everything is as in the base class: nothing is exchanged."""

    name = "replicas"
