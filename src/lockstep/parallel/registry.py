"""Which class stands behind a strategy's name."""

from lockstep.errors import LockstepError
from lockstep.parallel.settings import StrategySettings
from lockstep.parallel.strategy import Strategy


def make_strategy(settings: StrategySettings, workers: int) -> Strategy:
    """The strategy of a launch. One worker has nobody to exchange gradients with: it is always `single`."""
    from lockstep.parallel.allreduce import AllReduce
    from lockstep.parallel.single import Single

    if workers == 1:
        return Single(settings)
    if settings.name == "single":
        raise LockstepError(
            f"strategy.name=single is for one worker, but {workers} were started.",
            "Use --workers 1 or strategy.name=allreduce.",
            code=2,
        )
    return {"auto": AllReduce, "allreduce": AllReduce}[settings.name](settings)
