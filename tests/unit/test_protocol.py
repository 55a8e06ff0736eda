"""The generated documents say what the code says, and real messages fit their schemas."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from cadre.delivery.codec import decode, encode
from cadre.journal.entry import EVENTS, Entry
from cadre.journal.events import RecordIgnored, WaitBegun, WaitEnded
from cadre.journal.run import Phase
from cadre.loop.owed import owed
from cadre.protocol.cards import AgentCard, Presence, SandboxCard, ToolCard
from cadre.protocol.code import CodeExchange, CodeFunction, CodeReply, CodeRequest
from cadre.protocol.files import FileWritten, WorkspaceFile
from cadre.protocol.messages import (
    Cancel,
    CodeCall,
    CodeFinished,
    CodeYielded,
    Decision,
    Delta,
    EffectClaim,
    EffectResult,
    ErrorInfo,
    ReplyTo,
    Report,
    Spilled,
    Task,
    TimerFired,
    ToolCall,
    ToolResult,
    Usage,
)
from cadre.protocol.topology import Topology
from generate import pages
from generate.asyncapi import document
from generate.channels import CHANNELS
from generate.machine import explore
from generate.schemas import MESSAGES, schema_of, tag_of

HEAD: dict[str, Any] = {"tree": "t", "run": "t_1_0", "at": 1.5}
RESULT = ToolResult(id="t_1_0:result", call="t_1_0", tool="look", output={"found": [1, None]}, **HEAD)
CLAIM = EffectClaim(id="t_1_0:claim", call="t_1_0", executor="one", call_seq=7, **HEAD)

SAMPLES: list[msgspec.Struct] = [
    Task(id="t:task", agent="manager", task="Do.", reply_to=ReplyTo("boss", "t"), path=["boss"], **HEAD),
    ToolCall(id="t_1_0", agent="manager", tool="look", arguments={"where": "here"}, **HEAD),
    RESULT,
    Report(
        id="t_1_0:report",
        child="t_1_0",
        agent="member",
        state="error",
        error=ErrorInfo("AgentMaxStepsError", "Too many."),
        usage=Usage(1, 2, 3),
        **HEAD,
    ),
    Cancel(id="c", reason="enough", **HEAD),
    Decision(id="d", call="t_1_0", verdict="corrected", arguments={"a": 1}, sender="ann", **HEAD),
    CodeCall(
        id="t:code:1:1",
        agent="coder",
        pool="default",
        block="t:code:1",
        code="look()",
        exchanges=[CodeExchange(calls=[CodeRequest("look", {})], replies=[CodeReply(value=1)], clock=[1.0])],
        functions=[CodeFunction(name="look", signature="()")],
        **HEAD,
    ),
    CodeYielded(
        id="t:code:1:0:yielded", block="t:code:1", exchange=0, calls=[CodeRequest("look", {})], **HEAD
    ),
    CodeFinished(id="t:code:1:1:finished", block="t:code:1", exchange=1, text="1", output=1, **HEAD),
    TimerFired(id="t:model-1-1", name="model-1-1", **HEAD),
    CLAIM,
    EffectResult(id="t_1_0:effect", claim=CLAIM, claim_seq=8, result=RESULT, **HEAD),
    WorkspaceFile(
        id="t:file:a.txt:2",
        path="a.txt",
        version=2,
        ref="blob:00",
        history=[FileWritten(2, "t_1_0#1", "blob:00")],
        **HEAD,
    ),
    Spilled(id="t:task", ref="blob:00", size=300_000, **HEAD),
    Delta(run="t", agent="manager", step=1, attempt=1, text="Once", seq=1),
    Presence(
        instance="one",
        host="here",
        pid=1,
        started_at=1.0,
        agent=AgentCard(name="manager", description="Manages.", team=["member"]),
        tool=ToolCard(name="look", description="Looks.", input_schema={"type": "object"}),
        sandbox=SandboxCard(pool="default", tier="ns"),
    ),
    *explore().entries,
]


def refs(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for part in value.values():
            yield from refs(part)
    elif isinstance(value, list):
        for part in value:
            yield from refs(part)


def resolve(root: Any, ref: str) -> Any:
    assert ref.startswith("#/"), ref
    for token in ref[2:].split("/"):
        root = root[token]
    return root


def test_nothing_generated_is_out_of_date() -> None:
    assert [str(path) for path in pages.stale()] == [], "run `make docs`"


def test_a_changed_page_is_noticed(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = pages.pages()
    monkeypatch.setattr(pages, "SCHEMAS", tmp_path)
    (tmp_path / "OfAMessageThatIsNoMore.json").write_text("{}")
    old = pages.stale()
    assert tmp_path / "OfAMessageThatIsNoMore.json" in old
    assert {tmp_path / f"{message.__name__}.json" for message in MESSAGES} < set(old)
    assert len(wanted) == len(pages.pages())


class TestAsyncApi:
    api = document()

    def test_it_has_what_version_3_requires(self) -> None:
        assert self.api["asyncapi"] == "3.0.0"
        assert {"title", "version"} <= self.api["info"].keys()
        for server in self.api["servers"].values():
            assert {"host", "protocol"} <= server.keys()
        for operation in self.api["operations"].values():
            assert operation["action"] in ("send", "receive")
            assert operation["channel"]["$ref"].startswith("#/channels/")
            assert operation["messages"]
        for message in self.api["components"]["messages"].values():
            assert {"name", "contentType", "payload"} <= message.keys()

    def test_every_reference_leads_somewhere(self) -> None:
        found = list(refs(self.api))
        assert len(found) > 100
        for ref in found:
            resolve(self.api, ref)

    def test_the_messages_of_an_operation_are_those_of_its_channel(self) -> None:
        for operation in self.api["operations"].values():
            for message in operation["messages"]:
                assert message["$ref"].startswith(operation["channel"]["$ref"] + "/messages/")

    def test_the_parameters_of_a_channel_are_those_of_its_address(self) -> None:
        for channel in self.api["channels"].values():
            assert set(re.findall(r"{(\w+)}", channel["address"])) == channel["parameters"].keys()

    def test_every_channel_is_sent_to_and_every_message_has_one(self) -> None:
        sent = {op["channel"]["$ref"] for op in self.api["operations"].values() if op["action"] == "send"}
        assert sent == {f"#/channels/{name}" for name in self.api["channels"]}
        assert {message for channel in CHANNELS for message in channel.messages} == set(MESSAGES)

    def test_real_subjects_match_exactly_one_address(self) -> None:
        topology = Topology(4)
        subjects = [
            topology.journal("t", "t_1_0"),
            topology.inbox("manager", "gateway", "t", "t"),
            topology.call("look", "manager", "t", "t_1_0"),
            topology.code("default", "t", "t_1_0"),
            topology.warm("default", "t", "t_1_0"),
            topology.effect("t", "t_1_0"),
            topology.executor("look", "host-7"),
            topology.file("t", "a/b.txt"),
            topology.timer("t", "t", "model-1-1"),
            topology.delta("t", "t"),
            topology.interrupt("t"),
            topology.memory("search"),
            f"$KV.{topology.registry_bucket}.{topology.presence_key('agent', 'manager', 'one')}",
        ]
        matched = [
            [channel.name for channel in CHANNELS if _pattern(channel.address).fullmatch(subject)]
            for subject in subjects
        ]
        assert matched == [[channel.name] for channel in CHANNELS]


def _pattern(address: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\{\w+\\}", "[^.]+", re.escape(address)))


class TestSchemas:
    def test_every_message_has_a_sample(self) -> None:
        assert {type(sample) for sample in SAMPLES} == set(MESSAGES)

    @pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
    def test_real_messages_fit(self, message: type[msgspec.Struct]) -> None:
        validator = jsonschema_rs.validator_for(schema_of(message), offline=True)
        for sample in (sample for sample in SAMPLES if type(sample) is message):
            data = encode(sample)
            validator.validate(json.loads(data))
            assert decode(data, message) == sample

    @pytest.mark.parametrize(
        "message", [m for m in MESSAGES if tag_of(m)], ids=lambda message: message.__name__
    )
    def test_a_message_of_another_type_does_not(self, message: type[msgspec.Struct]) -> None:
        validator = jsonschema_rs.validator_for(schema_of(message), offline=True)
        sample = next(sample for sample in SAMPLES if type(sample) is message)
        assert not validator.is_valid({**json.loads(encode(sample)), "type": "something else"})

    @pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
    def test_no_required_field_may_be_missing(self, message: type[msgspec.Struct]) -> None:
        schema = schema_of(message)
        validator = jsonschema_rs.validator_for(schema, offline=True)
        sample = json.loads(encode(next(sample for sample in SAMPLES if type(sample) is message)))
        for field in schema["required"]:
            assert not validator.is_valid({name: value for name, value in sample.items() if name != field}), (
                field
            )

    def test_an_event_that_nobody_knows_does_not_fit(self) -> None:
        entry = json.loads(encode(next(sample for sample in SAMPLES if type(sample) is Entry)))
        entry["events"][0]["type"] = "run.dreamt"
        assert not jsonschema_rs.validator_for(schema_of(Entry), offline=True).is_valid(entry)

    def test_the_texts_under_fields_reach_the_schema(self) -> None:
        fields = schema_of(Task)["properties"]
        assert fields["images"]["description"].startswith("`blob:`")
        assert fields["tree"]["description"] == "Id of the root run of the delegation tree."


class TestMachine:
    explored = explore()

    def test_it_reaches_every_phase(self) -> None:
        assert {run.phase for run in self.explored.runs} == set(Phase)

    def test_it_sees_every_event_but_those_without_consequence_and_of_waits(self) -> None:
        """No kind that comes with Cadre waits by the clock."""
        seen = {type(event) for entry in self.explored.entries for event in entry.events}
        assert seen == set(EVENTS) - {RecordIgnored, WaitBegun, WaitEnded}

    def test_no_run_that_began_stands_still(self) -> None:
        for run in self.explored.runs:
            if run.phase in (Phase.THINKING, Phase.WAITING, Phase.ACTING):
                asked = any(call.hold is not None for call in run.open_calls())
                # Code that waits for calls has asked for them; their answers go on with it.
                assert owed(run) or asked, f"nothing is owed by {run}"

    def test_nothing_leads_out_of_the_end(self) -> None:
        assert [edge for edge in self.explored.edges if edge.source is Phase.DONE] == []
