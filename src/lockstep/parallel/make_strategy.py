"""Builds the strategy that the settings name. A new strategy is one file, its settings, and one line here."""

from lockstep.errors import LockstepError, missing
from lockstep.parallel.strategy import Strategy
from lockstep.parallel.strategy_settings import StrategySettings


def make_strategy(settings: StrategySettings, workers: int) -> Strategy:
    """One worker without a server has nobody to exchange anything with: it is `single`."""
    if workers == 1 and not (settings.name == "server" and settings.servers):
        from lockstep.parallel.single import Single

        return Single()
    match settings.name:
        case "auto" | "allreduce":
            from lockstep.parallel.allreduce import AllReduce

            return AllReduce(settings)
        case "sharded":
            from lockstep.parallel.sharded.fsdp import Sharded

            return Sharded(settings)
        case "replicas":
            from lockstep.parallel.replicas import Replicas

            return Replicas()
        case "local":
            from lockstep.parallel.local_sgd import LocalSgd

            return LocalSgd(settings)
        case "server":
            from lockstep.parallel.server.parameter_server import ParameterServers

            return ParameterServers(settings)
        case "resilient":
            try:
                from lockstep.parallel.resilient.resilient_allreduce import Resilient
            except ModuleNotFoundError as error:
                if error.name != "torchft":
                    raise
                raise missing("strategy.name=resilient", "torchft", "resilient") from None
            return Resilient(settings)
    raise LockstepError(
        f"strategy.name=single is for one worker, but {workers} were started.",
        "Use --workers 1 or strategy.name=allreduce.",
        code=2,
    )
