"""Leaves a message that only a newer Cadre can read to a replica that can.

During a rolling upgrade a replica of the former version meets records, calls and journals of the next one. It
hands the message back with a pause, so that another replica takes it. Only when none could for about a minute
the message becomes a dead letter, which `cadre dead retry` delivers again once the service has been upgraded;
the run goes on waiting for it.
"""

import logging

from cadre.errors import NewerKind, NewerSchema
from cadre.ports import Delivery

log = logging.getLogger("cadre.newer")

MAX_REDELIVERIES = 10
"""Deliveries after which no replica seems able to read the message; about 63 seconds with the pauses below."""

_LONGEST_PAUSE_SECONDS = 8.0


async def defer_to_newer(delivery: Delivery, error: NewerSchema) -> None:
    """Hands the delivery back after a pause, or gives it up after MAX_REDELIVERIES."""
    if delivery.deliveries <= MAX_REDELIVERIES:
        pause = min(2.0 ** (delivery.deliveries - 1), _LONGEST_PAUSE_SECONDS)
        log.warning("%s is left to a newer replica for %g s: %s", delivery.subject, pause, error)
        await delivery.nak(pause)
        return
    why = (
        f"agent kind version {error.found}, this service knows {error.known or 'none'}"
        if isinstance(error, NewerKind)
        else f"schema {error.found}, this one reads up to {error.known}"
    )
    reason = f"written by a newer Cadre ({why}): upgrade this service, then `cadre dead retry`"
    log.error("dead letter %s: %s", delivery.subject, reason)
    await delivery.term(reason)
