"""The generated documents say what the code says, and real messages fit their schemas."""

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from hypothesis import given, settings

from cadre.delivery.codec import encode
from cadre.journal.entry import Entry
from cadre.journal.events import (
    CallDropped,
    EditApplied,
    GraceStarted,
    PolicyDecided,
    RecordIgnored,
    StepStarted,
    ToolPaused,
    ToolsPlanned,
    WaitFinished,
    WaitStarted,
)
from cadre.journal.run import Phase
from cadre.journal.unions import close
from cadre.loop.owed import owed
from cadre.protocol.messages import Task
from cadre.protocol.topology import Topology
from cadre.spec.kinds import declared_kinds
from generate import pages
from generate.asyncapi import document
from generate.channels import CHANNELS
from generate.machine import explore
from generate.schemas import MESSAGES, schema_of, tag_of
from unit.loop.test_wire import values


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
            topology.effect("t", "t_1_0", "manager", "look"),
            topology.executor("look", "host-7"),
            topology.file("t", "a/b.txt"),
            topology.timer("t", "t", "model-1-1"),
            topology.delta("t", "t"),
            topology.chunk("t", "t"),
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
    @pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
    def test_real_messages_fit_and_no_others(self, message: type[msgspec.Struct]) -> None:
        schema = schema_of(message)
        validator = jsonschema_rs.validator_for(schema, offline=True)

        def check(sample: msgspec.Struct) -> None:
            written = json.loads(encode(sample))
            validator.validate(written)
            for field in schema["required"]:
                lacking = {name: value for name, value in written.items() if name != field}
                assert not validator.is_valid(lacking), field
            assert not tag_of(message) or not validator.is_valid({**written, "type": "something else"})

        if message is Entry:
            for entry in explore().entries:
                check(entry)
        else:
            settings(max_examples=15)(given(values(message))(check))()

    def test_an_event_that_nobody_knows_does_not_fit(self) -> None:
        entry = json.loads(encode(explore().entries[0]))
        entry["events"][0]["type"] = "run.dreamt"
        assert not jsonschema_rs.validator_for(schema_of(Entry), offline=True).is_valid(entry)

    def test_the_texts_under_fields_reach_the_schema(self) -> None:
        fields = schema_of(Task)["properties"]
        assert fields["images"]["description"].startswith("`blob:`")
        assert fields["tree"]["description"] == "Id of the root run of the delegation tree."


class TestMachine:
    def test_it_reaches_every_phase(self) -> None:
        assert {run.phase for run in explore().runs} == set(Phase)

    def test_it_sees_every_event_but_those_without_consequence_and_of_waits(self) -> None:
        """The explorer plays the two kinds of smolagents; others have their own stories in `tests/kinds`, calls that
        are unfinished theirs in `tests/unit/loop/test_unfinished.py`, policies in `tests/unit/test_policy_rules.py`."""
        others = [kind for name, kind in declared_kinds().items() if name not in ("tool_calling", "code")]
        of_others = {
            CallDropped,
            EditApplied,
            GraceStarted,
            PolicyDecided,
            StepStarted,
            ToolPaused,
            ToolsPlanned,
            WaitStarted,
            WaitFinished,
        } | {one for kind in others for one in kind.records}
        seen = {type(event) for entry in explore().entries for event in entry.events}
        assert seen == set(close().events) - {RecordIgnored} - of_others

    def test_no_run_that_began_stands_still(self) -> None:
        for run in explore().runs:
            if run.phase in (Phase.THINKING, Phase.WAITING, Phase.ACTING):
                asked = any(call.hold is not None for call in run.open_calls())
                # Code that waits for calls has asked for them; their answers go on with it.
                assert owed(run) or asked, f"nothing is owed by {run}"

    def test_nothing_leads_out_of_the_end(self) -> None:
        assert [edge for edge in explore().edges if edge.source is Phase.DONE] == []
