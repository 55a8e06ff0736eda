"""An agent whose model answers from the task: `deadly` kills the process, `hanging` blocks it, `wait FILE` waits."""

import asyncio
import os
import re
import signal
import sys

from cadre.engine.model_request import ModelRequest
from cadre.journal.events import RequestedCall
from cadre.ports import ModelReply, OnText
from cadre.service.agent import serve
from cadre.spec.agent import AgentSpec

_HUGE = 9_000_000_000


class Frail:
    """ports.Model"""

    async def complete(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        text = str(request.messages)
        if "deadly" in text:
            os.kill(os.getpid(), signal.SIGKILL)
        if "hanging" in text:
            _ = _HUGE**_HUGE
        if found := re.search(r"wait (/[\w./-]+)", text):
            while not os.access(found[1], os.F_OK):  # noqa: ASYNC110 - other processes make it
                await asyncio.sleep(0.05)
        return ModelReply(calls=[RequestedCall("final_answer", {"answer": "well"})])


if __name__ == "__main__":
    name = sys.argv[1] if len(sys.argv) > 1 else "frail"
    serve(AgentSpec(name=name, description="Dies of some tasks."), model=Frail())
