"""A service does not begin beside replicas of a version that claims calls under other subjects: both could run one."""

import asyncio
import logging

from cadre.adapters.nats.registry import GONE_AFTER_SECONDS, HEARTBEAT_SECONDS, NatsRegistry
from cadre.errors import SetupError
from cadre.protocol.cards import SUBJECTS

log = logging.getLogger("cadre.service")


async def await_older_gone(
    registry: NatsRegistry, seconds: float = GONE_AFTER_SECONDS + 2 * HEARTBEAT_SECONDS
) -> None:
    """Waits until no older replica is live; those that were killed are forgotten within the default time. Raises
    SetupError when one still is."""
    try:
        async with asyncio.timeout(seconds):
            while older := _older(registry):
                log.warning("waiting for replicas of an earlier version to stop: %s", older)
                await registry.changed()
    except TimeoutError:
        raise SetupError(
            f"replicas of an earlier version of Cadre are at work ({_older(registry)}), and this version does not"
            " work beside them: stop all services of the deployment, then start this one; no run is lost"
        ) from None


def _older(registry: NatsRegistry) -> str:
    """Names some of the older replicas; empty when there is none."""
    older = [presence for presence in registry.presences() if presence.subjects < SUBJECTS]
    return ", ".join(f"{presence.instance} on {presence.host}" for presence in older[:5])
