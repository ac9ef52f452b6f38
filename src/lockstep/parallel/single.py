"""One process: no gradient crosses anything."""

from lockstep.parallel.strategy import Strategy


class Single(Strategy):
    """Everything is as the base class has it."""

    name = "single"
