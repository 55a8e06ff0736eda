"""How much of an agent's work waits for which of its Deployments: what KEDA scales each by. Pure."""

from collections.abc import Container, Mapping

from cadre.protocol.rollout import Rollout


def lag_beside(rollout: Rollout | None, lags: Mapping[int, int], live: Container[str], beside: str) -> int:
    """Messages, waiting or in hand, for the revisions whose objects are called so; empty for the first's.

    `lags` are those of each slot, 0 for the agent's own queue. What lies there, everybody takes: each revision is given
    as much of it as it gets of the new runs. Without a rollout it is anybody's.
    """
    through = lags.get(0, 0)
    if rollout is None or not rollout.shares:
        return through
    own = sum(lags.get(one.slot, 0) for one in rollout.shares if rollout.taker(one).beside == beside)
    candidates = rollout.candidates(live)
    if not candidates:
        return own + (0 if beside else through)
    of_all = sum(one.weight for one in candidates)
    here = sum(one.weight for one in candidates if one.beside == beside)
    return own - (-through * here // of_all)
