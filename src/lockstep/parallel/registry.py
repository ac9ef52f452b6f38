"""Which class stands behind a strategy's name."""

from lockstep.errors import LockstepError
from lockstep.parallel.settings import StrategySettings
from lockstep.parallel.strategy import Strategy


def make_strategy(settings: StrategySettings, workers: int) -> Strategy:
    from lockstep.parallel.allreduce import AllReduce
    from lockstep.parallel.single import Single

    if settings.name == "single" and workers > 1:
        raise LockstepError(
            f"strategy.name=single is for one worker, but {workers} were started.",
            "Use --workers 1 or strategy.name=allreduce.",
            code=2,
        )
    return Single(settings) if workers == 1 else AllReduce(settings)
