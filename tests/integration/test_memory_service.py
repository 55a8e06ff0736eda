"""The memory service on a real bus, with its real embedded index: what comes back, to whom, and after what."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from msgspec.structs import replace

from cadre.adapters.nats.streams import jetstream
from cadre.delivery.codec import encode
from cadre.errors import MemoryRefused
from cadre.protocol.memory import ForgetRequest, ListRequest, SearchRequest, Selection, ShowRequest
from cadre.protocol.messages import MemoryScope, Origin
from cadre.settings import Settings
from harness.nats_server import NatsServer
from harness.patience import until
from harness.texts import holds
from integration.memory_bench import EVERY, Bench, running_service
from integration.service_bench import failure


@pytest.fixture(scope="module")
def deployment(nats_server: NatsServer) -> Settings:
    return Settings(nats_url=nats_server.url, prefix=f"mem{uuid4().hex[:8]}", shards=2)


@pytest.fixture(scope="module")
def service(deployment: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One process for all tests: each has its own names."""
    folder = tmp_path_factory.mktemp("memory")
    with running_service(deployment, folder) as url:
        yield url


@pytest.fixture
async def bench(deployment: Settings, service: str, tmp_path: Path) -> AsyncIterator[Bench]:
    async with Bench.open(deployment, tmp_path) as one:
        yield one


def origin(writes: MemoryScope = "agent", reads: list[MemoryScope] | None = None, **whose: Any) -> Origin:
    return Origin(reads=EVERY if reads is None else reads, writes=writes, **whose)


async def test_what_is_remembered_is_recalled_with_where_it_comes_from(bench: Bench) -> None:
    mine = origin(user="anna")
    memory = await bench.remember("The invoice of Bergmann was paid in March.", origin=mine, place="7_2")
    await bench.remember("The printer on the second floor is broken.", origin=mine)
    found = await bench.recall("Was the Bergmann invoice paid?", origin=mine)
    first = found["hits"][0]
    assert first["text"] == "The invoice of Bergmann was paid in March."
    assert (first["memory"], first["run"], first["step"]) == (memory, memory.split("_")[0], 7)
    assert (first["agent"], first["scope"], first["kind"]) == (bench.agent, "agent", "note")
    assert found["degraded"] is True
    assert "CADRE_MEMORY_EMBEDDINGS_URL" in found["why"]


async def test_a_long_text_is_cut_and_found_by_its_end(bench: Bench) -> None:
    text = " ".join(f"Line {number} tells of nothing at all." for number in range(1200))
    result = await bench.ask(
        bench.call("remember", text=f"{text} The combination of the safe is 48-15-16.", origin=origin())
    )
    assert result.output["chunks"] > 3
    hits = (await bench.recall("combination of the safe", k=1, origin=origin()))["hits"]
    assert hits[0]["text"].endswith("The combination of the safe is 48-15-16.")
    whole = await bench.people.show(ShowRequest(memory=result.output["memory"]))
    assert [chunk.index for chunk in whole.memories] == list(range(result.output["chunks"]))


# --- isolation, tried over the bus


WHOSE: dict[MemoryScope, tuple[dict[str, str], list[dict[str, str]]]] = {
    "run": ({"tree": "t1"}, [{"tree": "t2"}]),
    "session": ({"session": "s1"}, [{"session": "s2"}, {}]),
    "agent": ({"agent": "ann"}, [{"agent": "bob"}]),
    "team": ({"team": "red"}, [{"team": "blue"}, {}]),
    "user": ({"user": "anna"}, [{"user": "boris"}, {}]),
}
"""Of each scope: who remembers, and callers that differ in nothing but that."""


@pytest.mark.parametrize("scope", EVERY)
async def test_a_scope_is_shared_and_no_wider(bench: Bench, scope: MemoryScope) -> None:
    mine = {key: bench.own(name) for key, name in WHOSE[scope][0].items()}
    strangers = [{key: bench.own(name) for key, name in other.items()} for other in WHOSE[scope][1]]

    def about(identity: dict[str, str], place: str, reads: list[MemoryScope] | None = None) -> dict[str, Any]:
        return {
            "agent": identity.get("agent", bench.agent),
            "tree": identity.get("tree", "") or uuid4().hex,
            "origin": origin(scope, reads, **_named(identity)),
            "place": place,
        }

    secret = f"The secret of {scope} is marmalade."
    memory = await bench.remember(secret, **about(mine, "1_0"))
    # Anyone who shares it, in another run unless the scope is the run itself.
    assert await bench.texts("secret marmalade", **about(mine, "2_0")) == [secret]
    for stranger in strangers:
        assert await bench.texts("secret marmalade", **about(stranger, "3_0")) == []
        tried = await bench.ask(bench.call("forget_memory", memory=memory, **about(stranger, "4_0")))
        assert tried.output == {"forgotten": 0}
    unread = [one for one in EVERY if one != scope]
    assert await bench.texts("secret marmalade", **about(mine, "5_0", unread)) == [], "it was not asked for"
    gone = await bench.ask(bench.call("forget_memory", memory=memory, **about(mine, "6_0")))
    assert gone.output == {"forgotten": 1}
    assert await bench.everything(Selection(run=memory.split("_")[0])) == []


def _named(identity: dict[str, str]) -> dict[str, Any]:
    return {key: value for key, value in identity.items() if key in ("user", "session", "team")}


async def test_a_session_of_the_same_name_is_another_one_with_each_agent(bench: Bench) -> None:
    """Whichever agent of the tree remembers: the session is one of the tree's root."""
    session = bench.own("talk")

    def about(root: str, agent: str, place: str) -> dict[str, Any]:
        origin_of = origin("session", session=session, root=root)
        return {"agent": agent, "tree": uuid4().hex, "origin": origin_of, "place": place}

    await bench.remember("The boss likes marmalade.", **about("boss", "clerk", "1_0"))
    await bench.remember("The clerk likes marmalade.", **about("clerk", "clerk", "2_0"))
    for agent in ("boss", "clerk"):
        assert await bench.texts("likes marmalade", **about("boss", agent, "3_0")) == ["The boss likes marmalade."]
    assert await bench.texts("likes marmalade", **about("clerk", "clerk", "4_0")) == ["The clerk likes marmalade."]
    assert {one.root for one in await bench.everything(Selection(session=session))} == {"boss", "clerk"}


async def test_a_session_of_the_same_name_is_another_one_for_each_person(bench: Bench) -> None:
    session, agent = bench.own("talk"), bench.own("boss")

    def about(user: str | None, place: str) -> dict[str, Any]:
        named: dict[str, Any] = {"session": session} | ({"user": bench.own(user)} if user else {})
        return {"agent": agent, "tree": uuid4().hex, "origin": origin("session", **named), "place": place}

    texts = {"anna": "Anna likes marmalade.", "boris": "Boris likes marmalade.", None: "Some like marmalade."}
    for number, (user, text) in enumerate(texts.items()):
        await bench.remember(text, **about(user, f"{number}_0"))
    for user, text in texts.items():
        assert await bench.texts("likes marmalade", **about(user, "9_0")) == [text], user
    everything = await bench.everything(Selection(session=session))
    assert {one.text for one in everything} == set(texts.values()), "people select by name, of all persons"
    annas = await bench.everything(Selection(session=session, user=bench.own("anna")))
    assert [one.text for one in annas] == [texts["anna"]]


async def test_without_an_owner_the_memory_stays_with_its_run(bench: Bench) -> None:
    tree = bench.own("aaa")
    await bench.remember("The code word is hazelnut.", tree=tree, origin=origin("user"))
    assert await bench.texts("code word", tree=tree, place="2_0", origin=origin("user")) != []
    assert await bench.texts("code word", origin=origin("user")) == []
    assert [one.scope for one in await bench.everything()] == ["run"]


async def test_a_call_without_an_origin_recalls_nothing(bench: Bench) -> None:
    tree = bench.own("aaa")
    await bench.remember("The code word is hazelnut.", tree=tree)
    found = await bench.recall("code word", tree=tree, place="2_0")
    assert found["hits"] == []
    assert "memory.reads" in found["why"]


@pytest.mark.parametrize("tool", ["recall", "remember", "forget_memory"])
async def test_nobody_calls_in_the_name_of_another(bench: Bench, tool: str) -> None:
    ann, mallory = bench.own("ann"), bench.own("mallory")
    memory = await bench.remember("Ann's secret is marmalade.", agent=ann, origin=origin())
    arguments = {
        "recall": {"query": "secret"},
        "remember": {"text": "lies"},
        "forget_memory": {"memory": memory},
    }
    forged = bench.call(tool, agent=ann, origin=origin(), **arguments[tool])
    await bench.publish(forged, sender=mallory)
    assert holds((await bench.dead_letter(forged.tree)).reason, f"{mallory!r}", f"{ann!r}")
    told = await bench.answer(forged)
    assert failure(told).type == "Poisoned"
    kept = await bench.everything(Selection(agent=ann)) + await bench.everything(Selection(agent=mallory))
    assert [one.text for one in kept] == ["Ann's secret is marmalade."]


async def test_a_call_says_its_own_place(bench: Bench) -> None:
    lies = bench.call("recall", query="secret", origin=origin("run"))
    tree = bench.own("bbb")
    subject = bench.topology.call("recall", bench.agent, tree, f"{tree}_1_0")
    await jetstream.append(bench.nc, subject, encode(lies))
    assert f"was sent to '{tree}_1_0'" in (await bench.dead_letter(tree)).reason


# --- again and again


async def test_a_call_that_comes_twice_is_remembered_once(bench: Bench) -> None:
    call = bench.call("remember", text="Once is enough.", origin=origin())
    for _ in range(3):
        await bench.publish(call)
    assert (await bench.answer(call)).error is None
    await until(bench.all_acked)
    assert [one.memory for one in await bench.everything()] == [call.id]


async def test_the_same_text_is_shown_once(bench: Bench) -> None:
    for _ in range(4):
        await bench.remember("The lift is out of order.", origin=origin())
    await bench.remember("The lift of the other house works.", origin=origin())
    texts = await bench.texts("lift", origin=origin())
    assert sorted(texts) == ["The lift is out of order.", "The lift of the other house works."]


async def test_no_answer_is_sent_where_none_is_awaited(bench: Bench) -> None:
    text = "Step two found a bug."
    made = bench.call("remember", origin=origin(), place="2_memory", text=text, kind="step", step=2)
    call = replace(made, reply=False)
    await bench.bus.send(call, call.agent)
    await until(bench.all_acked)
    [kept] = await bench.everything()
    assert (kept.text, kept.kind, kept.step, kept.memory) == ("Step two found a bug.", "step", 2, call.id)
    assert bench.unread(call) == 0


async def test_wrong_arguments_are_an_observation(bench: Bench) -> None:
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("recall", {"query": "x", "k": 500}),
        ("recall", {"k": 5}),
        ("remember", {"text": "   \n "}),
        ("forget_memory", {"memory": 5}),
    ]
    for tool, arguments in wrong:
        result = await bench.ask(bench.call(tool, origin=origin(), **arguments))
        assert result.error is not None, (tool, arguments)
        assert result.error.type == "AgentToolCallError"
    assert await bench.everything() == []


async def test_kinds_narrow_a_recall(bench: Bench) -> None:
    await bench.remember("Berlin was the answer.", kind="answer", origin=origin())
    await bench.remember("Berlin came up in a step.", kind="step", origin=origin())
    assert await bench.texts("Berlin", kinds=["answer"], origin=origin()) == ["Berlin was the answer."]


# --- forgetting


async def test_forgetting_is_previewed_confirmed_and_complete(bench: Bench) -> None:
    anna, boris = bench.own("anna"), bench.own("boris")
    for text in ("Anna likes tea.", "Anna lives in Riga.", " ".join(f"Anna said {n}." for n in range(1500))):
        await bench.remember(text, origin=origin("user", user=anna))
    await bench.remember("Anna's session note.", origin=origin("session", user=anna, session=bench.own("s")))
    kept = await bench.remember("Boris likes coffee.", origin=origin("user", user=boris))
    hers = Selection(user=anna)
    there = len(await bench.everything(hers))
    assert there > 5
    preview = await bench.people.forget(ForgetRequest(selection=hers))
    assert (preview.confirmed, preview.matched, preview.forgotten, preview.left) == (False, there, 0, there)
    receipt = await bench.people.forget(ForgetRequest(selection=hers, confirm=True))
    assert (receipt.confirmed, receipt.forgotten, receipt.left) == (True, there, 0)
    assert await bench.texts("Anna", origin=origin("user", user=anna)) == []
    assert [one.memory for one in await bench.everything()] == [kept]


@pytest.mark.parametrize("selection", [Selection(), Selection(scope="user"), Selection(user="")])
async def test_a_selection_that_says_too_little_is_refused(bench: Bench, selection: Selection) -> None:
    await bench.remember("Still here.", origin=origin())
    for ask in (
        bench.people.forget(ForgetRequest(selection=selection, confirm=True)),
        bench.people.list(ListRequest(selection=selection)),
        bench.people.search(SearchRequest(selection=selection, query="here")),
        bench.people.export(ListRequest(selection=selection)),
    ):
        with pytest.raises(MemoryRefused):
            await ask
    assert len(await bench.everything()) == 1


async def test_readiness_tells_what_is_compared(service: str) -> None:
    told = httpx2.get(f"{service}/readyz").json()
    assert told["index"] == "sqlite"
    assert "CADRE_MEMORY_EMBEDDINGS_URL" in told["embeddings"]


async def test_a_whole_document_may_be_the_query(bench: Bench) -> None:
    await bench.remember("The ferry leaves at nine.", origin=origin())
    document = "When does the ferry leave? " + " ".join(f"Paragraph {n} is about apples." for n in range(5000))
    assert await bench.texts(document, k=50, origin=origin()) == ["The ferry leaves at nine."]


async def test_an_index_that_is_new_where_there_was_one_says_so(deployment: Settings, tmp_path: Path) -> None:
    settings = replace(deployment, prefix=f"mem{uuid4().hex[:8]}")
    async with Bench.open(settings, tmp_path) as bench:
        with running_service(settings, tmp_path) as url:
            await bench.remember("The spare key is under the mat.", origin=origin())
            assert httpx2.get(f"{url}/readyz").json()["index"] == "sqlite", "the first one replaces none"
        with running_service(settings, tmp_path) as url:
            assert httpx2.get(f"{url}/readyz").json()["index"] == "sqlite", "it is the same index"
            assert (await bench.recall("Where is the spare key?", origin=origin()))["hits"]
        empty = tmp_path / "another-volume"
        empty.mkdir()
        with running_service(settings, empty) as url:
            index = httpx2.get(f"{url}/readyz").json()["index"]
            assert index.startswith("sqlite; ")
            found = await bench.recall("Where is the spare key?", origin=origin())
            assert found["hits"] == []
            assert index.partition("; ")[2] in found["why"]
            await bench.remember("The spare key is in the drawer.", origin=origin())
            found = await bench.recall("Where is the spare key?", origin=origin())
            assert len(found["hits"]) == 1
            assert "this index" not in found["why"]
