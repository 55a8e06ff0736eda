"""Agents on NATS by Synadia's protocol: found, prompted and answered by its stock client, in its own account."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from string import Template
from typing import Any

import nats
import nats.errors
import pytest
from nats.aio.client import Client
from synadia_ai.agents import (
    Agent,
    Agents,
    Attachment,
    DiscoverFilter,
    Envelope,
    HeartbeatPayload,
    Identity,
    PromptExtras,
    PromptInterceptorContext,
    ProtocolError,
    Query,
    ResponseChunk,
    SenderSignatureRequiredError,
    StatusChunk,
    signer_from_seed,
)

from cadre.adapters.nats.connection.keys import new_key
from cadre.adapters.nats.streams import jetstream
from harness.next_version import NEXT
from harness.patience import eventually, patience, until
from harness.stack import Gateway, Stack

TEAM = Path(__file__).parent / "doors"
HERE = Path(__file__).parent / "synadia"
USERS = ("door", "caller", "member", "agent")
ADMIN_KEY = "an-admin-key-of-more-than-32-characters"


class Headers:
    """A prompt's headers, by its context."""

    async def before_prompt(self, ctx: PromptInterceptorContext) -> PromptExtras | None:
        return PromptExtras(headers={name: str(value) for name, value in ctx.context.items()})


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("stack")
    keys = {user: new_key("") for user in USERS}
    for user, key in keys.items():
        (folder / f"{user}.key").write_text(key.seed)
    public = {user: key.public for user, key in keys.items()}
    conf = Template((HERE / "accounts.conf").read_text()).substitute(public, store=str(folder / "accounts"))
    with Stack(folder, nats=conf) as stack:
        stack.model(TEAM / "script.yaml")
        yield stack


@pytest.fixture(scope="module")
def more(stack: Stack) -> None:
    stack.environment["CADRE_DOORS"] = "openai,synadia"
    stack.environment["CADRE_SYNADIA_CREDENTIALS"] = str(stack.folder / "door.key")


@contextlib.asynccontextmanager
async def connected(stack: Stack, user: str = "caller", *, signs: bool = False) -> AsyncIterator[Agents]:
    seed = (stack.folder / f"{user}.key").read_text()
    nc = await nats.connect(stack.nats.url, nkeys_seed_str=seed)
    identity = Identity(signer=signer_from_seed(seed)) if signs else None
    agents = Agents(nc=nc, identity=identity, interceptors=[Headers()], stream_inactivity_timeout=patience())
    try:
        yield agents
    finally:
        await agents.close()
        await nc.close()


async def found(agents: Agents, name: str, owner: str = "cadre") -> Agent:
    """The agent, once it is there."""
    async with asyncio.timeout(patience()):
        while True:
            wanted = DiscoverFilter(agent="cadre", owner=owner, session_name=name)
            if there := await agents.discover(filter=wanted):
                return there[0]


async def told(
    agent: Agent, text: str | Envelope, *answers: str | Envelope, **headers: str
) -> tuple[str, list[str], list[str]]:
    """The answer, what was asked on the way and answered with these, and what was done."""
    said, asked, doings = [], [], []
    replies = iter(answers)
    async for one in agent.prompt(text, context=headers):
        match one:
            case ResponseChunk():
                said.append(one.text)
            case Query():
                asked.append(one.prompt)
                await one.reply(next(replies))
            case StatusChunk() if one.status not in ("ack", "done"):
                doings.append(one.status)
    return "".join(said), asked, doings


def run_of(doings: list[str]) -> str:
    return doings[0].removeprefix("run ")


async def test_agents_are_found_and_answer(stack: Stack, gateway: Gateway) -> None:
    async with connected(stack) as agents:
        await agents.start_tracking()
        host = await found(agents, "host")
        assert (host.description, host.protocol_version) == ("Talks with guests.", "0.3")
        status = await host.status()
        assert isinstance(status, HeartbeatPayload)
        assert (status.agent, status.owner, status.session) == ("cadre", "cadre", "host")
        assert await agents.ping(host.instance_id)
        text, _, doings = await told(host, "Hi", traceparent=f"00-{'ab' * 16}-{'cd' * 8}-01")
        assert text == "Hello!"
        assert gateway.succeeded(run_of(doings)) == "Hello!"
        accepted = gateway.wait_for(run_of(doings), "run.accepted")["event"]
        assert "ab" * 16 in json.dumps(accepted["task"]["trace"])


async def test_a_team_is_told_of_and_a_held_call_is_asked_about(stack: Stack, gateway: Gateway) -> None:
    async with connected(stack) as agents:
        chief, clerk = await found(agents, "chief"), await found(agents, "clerk")
        book = stack.folder / "book"
        text, asked, doings = await told(chief, f"have clerk: refund {book} 500", "approve")
        assert text.endswith("refunded 500")
        assert len(asked) == 1
        assert asked[0].splitlines()[0] == "Refund 500 €"
        assert '"amount": 500' in asked[0]
        assert any("clerk" in doing for doing in doings)
        edited = Envelope(prompt="approve", arguments={"amount": 50})  # type: ignore[call-arg]
        text, _, _ = await told(clerk, f"refund {book} 700", edited)
        assert text.endswith("refunded 50")
        text, _, doings = await told(clerk, f"refund {book} 800", "Certainly not.")
        assert "Certainly not." in text
        assert book.read_text() == "refund 500\nrefund 50\n"


async def test_a_word_from_elsewhere_counts_as_well(stack: Stack, gateway: Gateway) -> None:
    async with connected(stack) as agents:
        clerk, book = await found(agents, "clerk"), stack.folder / "elsewhere"
        said = ""
        async for one in clerk.prompt(f"refund {book} 500"):
            if isinstance(one, Query):
                (call,) = gateway.request("GET", "/v1/approvals").json()["approvals"]
                answer = gateway.request("POST", f"/v1/approvals/{call['call']}", json={"verdict": "approved"})
                assert answer.status_code in (200, 202)
            elif isinstance(one, ResponseChunk):
                said += one.text
        assert said.endswith("refunded 500")


async def test_a_session_goes_on_and_files_are_read(stack: Stack, gateway: Gateway) -> None:
    async with connected(stack) as agents:
        host = await found(agents, "host")
        await told(host, Envelope(prompt="my name is Iris", session="iris"))  # type: ignore[call-arg]
        text, _, doings = await told(host, Envelope(prompt="what is my name", session="iris"))  # type: ignore[call-arg]
        assert text == "You are Iris."
        assert gateway.run(run_of(doings))["session"] == "iris"
        pixel = Attachment.from_bytes("dot.png", b"\x89PNG\r\n\x1a\n")
        table = Attachment.from_bytes("a.csv", b"1,2\n")
        text, _, doings = await told(host, Envelope(prompt="a picture", attachments=[pixel, table]))
        assert text == "1 image"
        files = gateway.request("GET", f"/v1/runs/{run_of(doings)}/files").json()
        assert "a.csv" in json.dumps(files)


async def test_the_same_prompt_is_one_run_where_its_key_says_so(stack: Stack, gateway: Gateway) -> None:
    async with connected(stack) as agents:
        clerk, book = await found(agents, "clerk"), stack.folder / "once"
        text, key = f"refund {book} 60", {"Idempotency-Key": "sixty"}
        both = await asyncio.gather(told(clerk, text, **key), told(clerk, text, **key))
        assert both[0] == both[1]
        assert book.read_text() == "refund 60\n"
        with pytest.raises(ProtocolError, match="400: idempotency-key-reused"):
            await told(clerk, "refund nothing 1", **key)
        await told(clerk, text)
        assert book.read_text() == "refund 60\n" * 2, "without a key it is another prompt"


async def test_a_killed_gateway_loses_no_run(stack: Stack, gateway: Gateway) -> None:
    async with connected(stack) as agents:
        clerk, book = await found(agents, "clerk"), stack.folder / "killed"
        text, key = f"refund {book} 900", {"Idempotency-Key": "nine-hundred"}
        async with contextlib.aclosing(clerk.prompt(text, context=key)) as first:  # type: ignore[type-var]
            async for one in first:
                if isinstance(one, Query):
                    gateway.service.kill()
                    break
        await asyncio.to_thread(gateway.service.start)
        clerk = await found(agents, "clerk")
        said, asked, _ = await told(clerk, text, "approve", **key)
        assert (said.endswith("refunded 900"), len(asked)) == (True, 1)
        assert book.read_text() == "refund 900\n"


async def test_a_gateway_that_stops_says_so(stack: Stack, gateway: Gateway) -> None:
    async with connected(stack) as agents:
        clerk, book = await found(agents, "clerk"), stack.folder / "stopped"

        async def stopped_on_the_way() -> None:
            async for one in clerk.prompt(f"refund {book} 900"):
                if isinstance(one, Query):
                    await asyncio.to_thread(gateway.service.terminate)

        with pytest.raises(ProtocolError, match="500"):
            await stopped_on_the_way()
        await asyncio.to_thread(gateway.service.start)


async def test_entries_of_a_newer_version_end_the_answer_and_are_named(stack: Stack, gateway: Gateway) -> None:
    """As while an upgrade is under way, when a newer agent goes on with a run before the gateway is upgraded."""
    async with connected(stack) as agents:
        clerk, book = await found(agents, "clerk"), stack.folder / "newer"

        async def upgraded_on_the_way() -> None:
            run = ""
            async for one in clerk.prompt(f"refund {book} 900"):
                if isinstance(one, StatusChunk) and one.status.startswith("run "):
                    run = run_of([one.status])
                if isinstance(one, Query):
                    about = {"tree": run, "run": run, "n": 99, "events": [{"type": "dreamt"}]}
                    entry = json.dumps({"type": "entry", "v": NEXT, **about}).encode()
                    async with stack.platform() as platform:
                        await jetstream.append(platform.nc, platform.topology.journal(run, run), entry)

        with pytest.raises(ProtocolError, match="newer-version"):
            await upgraded_on_the_way()
        assert not book.exists()


async def raw(nc: Client, subject: str, payload: bytes) -> list[str]:
    """Return what comes of a payload that no client would send: an error's code, or types of chunks."""
    inbox = nc.new_inbox()
    seen: list[str] = []
    listening = await nc.subscribe(inbox)
    await nc.publish(subject, payload, reply=inbox)
    while True:
        message = await listening.next_msg(timeout=patience())
        code = (message.headers or {}).get("Nats-Service-Error-Code")
        if not message.data and code is None:
            return seen
        seen.append(code or json.loads(message.data)["data"])


async def test_abuse_is_answered_and_begins_nothing(stack: Stack, gateway: Gateway) -> None:
    async with connected(stack) as agents:
        host = await found(agents, "host")
        nc, subject = agents.connection, host.prompt_subject
        before = gateway.request("GET", "/v1/runs").json()
        nested: Any = {"prompt": "x", "attachments": [{"filename": "a", "content": "no base64!"}]}
        for payload in (
            b"",
            b"{",
            b'{"prompt": 5}',
            b'{"text": "no prompt"}',
            b"\xff\xfe",
            b" ",
            json.dumps(nested).encode(),
            json.dumps({"prompt": "x", "session": 5}).encode(),
            json.dumps({"prompt": "x", "session": "no name!"}).encode(),
            b'{"prompt": "x", "y": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        ):
            assert await raw(nc, subject, payload) == ["400"], payload[:60]
        with pytest.raises(nats.errors.NoRespondersError):
            await nc.request("agents.prompt.cadre.cadre.nobody", b"x", timeout=patience())
        with pytest.raises(nats.errors.MaxPayloadError):
            await nc.publish(subject, b"x" * 10_000_000)
        assert gateway.request("GET", "/v1/runs").json() == before
        await nc.publish(subject, b"a prompt whose caller hangs up", reply=nc.new_inbox())
        await nc.flush()
        eventually(
            lambda: (
                [run["state"] for run in gateway.request("GET", "/v1/runs").json()["runs"] if "hangs up" in run["task"]]
                == ["success"]
            ),
            what="its run has ended",
        )


async def test_who_is_asked_for_keys_lets_callers_in_by_one(stack: Stack, gateway: Gateway) -> None:
    keys = {"CADRE_AUTH": "keys", "CADRE_ADMIN_KEY": ADMIN_KEY}
    doors = {"CADRE_DOORS": "openai"}
    guarded = Gateway(stack.add("guarded", "cadre_gateway", start=True, **keys, **doors))
    admin = {"Authorization": f"Bearer {ADMIN_KEY}"}
    made = {}
    for name, roles in (("starter", ["operator"]), ("looker", ["viewer"])):
        body = {"name": name, "roles": roles}
        made[name] = guarded.request("POST", "/v1/keys", json=body, headers=admin).json()["token"]
    refused = stack.add("keyless", "cadre_gateway", start=False, **keys)
    refused.start(wait=False)
    assert refused.process is not None
    assert refused.process.wait(timeout=patience()) != 0
    assert "CADRE_SYNADIA_KEY" in refused.log.read_text()
    for name in made:
        stack.environment |= {"CADRE_SYNADIA_KEY": made[name], "CADRE_SYNADIA_OWNER": name}
        starts_later = stack.add(name, "cadre_gateway", start=False, **keys, CADRE_SYNADIA_TRUST="signed")
        starts_later.start(wait=False)
    async with connected(stack) as agents:
        with pytest.raises(SenderSignatureRequiredError):
            await told(await found(agents, "host", "starter"), "Hi")
    async with connected(stack, signs=True) as agents:
        assert (await told(await found(agents, "host", "starter"), "Hi"))[0] == "Hello!"
        with pytest.raises(ProtocolError, match="403: forbidden"):
            await told(await found(agents, "host", "looker"), "Hi")
        for key in guarded.request("GET", "/v1/keys", headers=admin).json()["keys"]:
            guarded.request("DELETE", f"/v1/keys/{key['id']}", headers=admin).raise_for_status()
        assert await until(partial(refusal, await found(agents, "host", "starter"))) == "401"


async def refusal(agent: Agent) -> str | None:
    """The code by which it refuses a prompt."""
    try:
        await told(agent, "Hi")
    except ProtocolError as error:
        return str(error).removeprefix("service error ")[:3]
    return None


async def test_a_member_in_the_other_account_is_prompted_under_a_key(stack: Stack, gateway: Gateway) -> None:
    key = f"key={stack.folder / 'agent.key'}"
    agent = stack.add("far", HERE / "agent.py", stack.folder, "far", key, "trust=signed", start=False)
    agent.start(wait=False)
    where = "{agent: stock, owner: test, session: far, credentials: member.key}"
    about = f"{{description: Far., nats: {where}, poll: 1s}}"
    (stack.folder / "far.yaml").write_text(
        f"apiVersion: cadre.dev/v1\nkind: RemoteAgent\nmetadata: {{name: far}}\nspec: {about}\n"
    )
    stack.add("member", "cadre.cli.main", "member", stack.folder / "far.yaml")
    said = await asyncio.to_thread(gateway.answer, "far", "echo")
    assert "AGENTS.U" in said, "the prompt was signed"
