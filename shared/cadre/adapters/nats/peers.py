"""Asks another executor of a tool whether it is at work on a call, and answers such questions."""

import asyncio
import logging
from collections.abc import Callable

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from cadre.adapters.nats.connection.connect import seconds_since_return
from cadre.adapters.nats.connection.requests import RequestServer, request
from cadre.errors import BusUnavailable, NotPermitted
from cadre.protocol.topology import Topology

log = logging.getLogger("cadre.tools")

ANSWER_SECONDS = 1.0
"""The timeout of an answer. It takes no computation: a slower process is stopped, cut off or blocked."""

RETURN_SECONDS = 10.0
"""Seconds after a restart of the server in which an executor that is not connected may still be on its way back."""

_ASK_EVERY_SECONDS = 0.2

_IN_HAND, _NOT_IN_HAND = b"+", b"-"


class NatsPeers:
    """Asks other executors (ports.Peers)."""

    def __init__(self, nc: Client, topology: Topology) -> None:
        self._nc = nc
        self._topology = topology

    async def has_in_hand(self, tool: str, instance: str, call: str) -> bool | None:
        subject, warned = self._topology.executor(tool, instance), False
        while True:
            try:
                answer = await request(self._nc, subject, call.encode(), None, ANSWER_SECONDS)
            except nats.errors.NoRespondersError:
                if seconds_since_return(self._nc) > RETURN_SECONDS:
                    return False
            except nats.errors.BadSubjectError:
                return False
            except nats.errors.TimeoutError:
                return None
            except NotPermitted as error:
                # Without the right to ask, a running call cannot be distinguished from an interrupted one.
                log.warning("executor %s is taken for dead, unasked: %s", instance, error)
                return False
            except nats.errors.Error as error:
                raise BusUnavailable(f"asking executor {instance} for call {call}", error) from error
            else:
                return bool(answer.data == _IN_HAND)
            if not warned:
                log.info("executor %s has not come back to NATS yet; asked for call %s again", instance, call)
                warned = True
            await asyncio.sleep(_ASK_EVERY_SECONDS)


async def answer_peers(nc: Client, topology: Topology, tool: str, instance: str, has: Callable[[str], bool]) -> None:
    """Answer the questions of other executors with what `has` says of a call's id, as long as the connection lives."""

    async def answer(message: Msg) -> bytes:
        return _IN_HAND if has(message.data.decode(errors="replace")) else _NOT_IN_HAND

    await RequestServer(nc, topology.executor(tool, instance), answer).start()
