"""An agent that speaks Synadia's protocol by Synadia's own host: it does what the lines of its prompt say.

python agent.py FOLDER SESSION [OPTION=VALUE…]: what it has begun stands in FOLDER/deeds.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

import nats
from synadia_ai.agent_service import (
    AgentService,
    CallNext,
    PromptStream,
    RequestInterceptorContext,
    RequestRejectedError,
)
from synadia_ai.agents import Attachment, Envelope, ResponseChunk, StatusChunk

FOLDER, SESSION = Path(sys.argv[1]), sys.argv[2]
OPTIONS = dict(option.split("=", 1) for option in sys.argv[3:])


async def do(envelope: Envelope, stream: PromptStream) -> None:
    for line in envelope.prompt.splitlines():
        verb, _, rest = line.partition(" ")
        if not verb.islower():
            continue
        with (FOLDER / "deeds").open("a") as deeds:
            deeds.write(f"{line}\n")
        match verb:
            case "say":
                await stream.send(rest)
            case "think":
                await stream.send(StatusChunk(status=rest))
            case "wait":
                while not (FOLDER / rest).exists():  # noqa: ASYNC110
                    await asyncio.sleep(0.05)  # what it waits for is a file
            case "die":
                if not (FOLDER / rest).exists():
                    (FOLDER / rest).touch()
                    os.kill(os.getpid(), signal.SIGKILL)
            case "ask":
                answer = await stream.ask(rest, timeout=600)
                await stream.send(f"told: {answer.prompt}")
            case "echo":
                names = [one.filename for one in envelope.attachments or []]
                await stream.send(f"{envelope.prompt}\nfiles: {names}\nsender: {stream.sender}")
            case "attach":
                file = Attachment.from_bytes(rest, b"a,b\n1,2\n")
                await stream.send(ResponseChunk(text="see there", attachments=[file]))
            case "fail":
                raise RuntimeError(rest)
            case "refuse":
                raise RequestRejectedError(int(rest), "not you")


class Busy:
    """Takes no prompt that says `busy FILE` until there is such a file."""

    async def around_request(self, ctx: RequestInterceptorContext, call_next: CallNext) -> None:
        verb, _, rest = ctx.envelope.prompt.partition(" ")
        if verb == "busy" and not (FOLDER / rest.split("\n")[0]).exists():
            raise RequestRejectedError(429, "too much to do")
        await call_next()


KEY = {"nkeys_seed_str": Path(OPTIONS["key"]).read_text()} if "key" in OPTIONS else {}
if "creds" in OPTIONS:
    KEY = {"user_credentials": OPTIONS["creds"]}


async def main() -> None:
    nc = await nats.connect(os.environ["CADRE_NATS_URL"], max_reconnect_attempts=-1, **KEY)
    service = AgentService(
        agent="stock",
        owner="test",
        session_name=SESSION,
        nc=nc,
        keepalive_interval_s=1,
        interceptors=[Busy()],
        max_concurrent_prompts=8,
        attachments_ok=OPTIONS.get("files") != "no",
        min_sender_trust="signed" if OPTIONS.get("trust") == "signed" else "any",
    )
    service.on_prompt(do)
    await service.start()
    await asyncio.Event().wait()


asyncio.run(main())
