"""Which class stands behind a strategy's name."""

from lockstep.errors import LockstepError, missing
from lockstep.parallel.strategy import Strategy
from lockstep.parallel.strategy_settings import (
    AllReduceSettings,
    LocalSettings,
    ReplicasSettings,
    ResilientSettings,
    ServerSettings,
    ShardedSettings,
    SingleSettings,
    StrategySettings,
)


def make_strategy(settings: StrategySettings, workers: int) -> Strategy:
    """Returns the strategy of a launch. One worker without a server has nobody to communicate with: it is `single`,
    whatever the settings say."""
    if workers == 1 and not (isinstance(settings, ServerSettings) and settings.servers):
        from lockstep.parallel.single import Single

        return Single()
    match settings:
        case AllReduceSettings():
            from lockstep.parallel.allreduce import AllReduce

            return AllReduce(settings)
        case ShardedSettings():
            from lockstep.parallel.sharded.fsdp import Sharded

            return Sharded(settings)
        case ReplicasSettings():
            from lockstep.parallel.replicas import Replicas

            return Replicas()
        case LocalSettings():
            from lockstep.parallel.local_sgd import LocalSgd

            return LocalSgd(settings)
        case ServerSettings():
            from lockstep.parallel.server.parameter_server import Server

            return Server(settings)
        case ResilientSettings():
            return _resilient(settings)
        case SingleSettings():
            raise LockstepError(
                f"strategy.name=single is for one worker, but {workers} were started.",
                "Use --workers 1 or strategy.name=allreduce.",
                code=2,
            )


def _resilient(settings: ResilientSettings) -> Strategy:
    try:
        from lockstep.parallel.resilient.resilient_allreduce import Resilient
    except ModuleNotFoundError as error:
        if error.name != "torchft":
            raise
        raise missing("strategy.name=resilient", "torchft", "resilient") from None
    return Resilient(settings)
