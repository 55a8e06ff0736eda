"""With content on, a span of a model call holds what its model read: the very request, reported in so many
characters."""

from typing import Any

import msgspec
import pytest

from cadre.engine.chat import Transcript
from cadre.engine.commands import CallModel
from cadre.engine.model_request import ChatMessage
from cadre.journal.entry import Entry
from cadre.prompting.prompts import prompts_for
from cadre.spec.agent import AgentSpec, Limits
from cadre.spec.model import ModelSpec
from cadre.telemetry.tracing import names
from cadre.telemetry.tracing.content import MAX_CHARS, MAX_PART_CHARS, history, instructions
from cadre.telemetry.tracing.page import trace_of
from cadre.telemetry.tracing.projection import Projection
from cadre.telemetry.tracing.spans import SpanRecord
from kinds.code.build import ANSWER_WITH_CODE, asks, coder, ended, yielded
from unit.loop.build import ANSWER, SimulatedRun, call, report, result, spec

IMAGE = "blob:" + "a" * 64


class Asked(SimulatedRun):
    """Notes each request as its agent would send it."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.requests: list[list[ChatMessage]] = []
        self._transcript = Transcript(prompts_for(self.spec))

    def arrive(self, *arguments: Any, **options: Any) -> Any:
        before = self.run.entries
        events = super().arrive(*arguments, **options)
        for command in self.owed(before):
            if isinstance(command, CallModel):
                self.requests.append(self._transcript.request(self.run, command.purpose).messages)
        return events


def chats(entries: list[Entry]) -> list[SpanRecord]:
    return [span for span in trace_of(entries, now=0.0, content=True) if span.name.startswith("chat")]


def read_of(span: SpanRecord) -> list[Any]:
    """The messages of a span, that of the prompts among them."""
    instructed = span.attributes.get(names.SYSTEM_INSTRUCTIONS)
    system = [{"role": "system", "parts": msgspec.json.decode(str(instructed))}] if instructed is not None else []
    return [*system, *msgspec.json.decode(str(span.attributes[names.INPUT_MESSAGES]))]


def as_in_spans(messages: list[ChatMessage]) -> list[Any]:
    """The same of a request, by a second hand."""
    return [{"role": m["role"], "parts": [*_said(m), *map(_called, m.get("tool_calls", []))]} for m in messages]


def _said(message: ChatMessage) -> list[Any]:
    match message:
        case {"role": "tool", "tool_call_id": id, "content": text}:
            return [{"type": "tool_call_response", "id": id, "response": text}]
        case {"content": str(text)} if text:
            return [{"type": "text", "content": text}]
        case {"content": [*parts]}:
            return [
                {"type": "uri", "modality": "image", "uri": part["image_url"]["url"]}
                if part["type"] == "image_url"
                else {"type": "text", "content": part["text"]}
                for part in parts
            ]
        case _:
            return []


def _called(call: dict[str, Any]) -> Any:
    function = call["function"]
    arguments = msgspec.json.decode(function["arguments"])
    return {"type": "tool_call", "id": call["id"], "name": function["name"], "arguments": arguments}


def calling() -> Asked:
    """Plans, calls, a picture, a failure, an attempt that was lost, the answer after the last step."""
    sim = Asked(spec(planning_interval=2, limits=Limits(max_steps=2), model=ModelSpec(vision=True)))
    sim.begin("Look at it.", images=[IMAGE], inputs={"two": 2})
    sim.say(content="First this, then that.")
    sim.lose()
    sim.say(call("add", a=1, b=2), call("kid", task="help"), content="I begin.")
    sim.arrive(result(sim.id(0), {"$file": {"ref": IMAGE, "media_type": "image/png", "name": "a.png"}}))
    sim.arrive(report(sim.id(1), "helped"))
    sim.say(call("nothing"))
    sim.say(content="This is all.")
    return sim


def writing() -> Asked:
    sim = Asked(coder().spec, coder().toolset)
    sim.begin()
    sim.say(content=ANSWER_WITH_CODE)
    sim.arrive(yielded(asks("add", a=1, b=2)))
    sim.arrive(result("r1_1_0", 3))
    sim.arrive(ended(1, logs="printed", text="3"))
    sim.say(content=ANSWER_WITH_CODE)
    return sim


@pytest.mark.parametrize("sim", [calling(), writing()], ids=["calls", "code"])
def test_it_is_the_request_that_its_agent_sent(sim: Asked) -> None:
    spans = chats(sim.journal())
    assert [read_of(span) for span in spans] == [as_in_spans(messages) for messages in sim.requests]
    assert len(spans) >= 2


def test_plans_pictures_and_the_last_answer_are_among_them() -> None:
    spans = chats(calling().journal())
    assert {span.attributes[names.PURPOSE] for span in spans} == {"plan", "act", "final"}
    assert IMAGE in str(spans[1].attributes[names.INPUT_MESSAGES])


def test_an_open_call_shows_what_its_model_reads_at_the_moment() -> None:
    sim = SimulatedRun().begin("What is it?")
    (span,) = [span for span in trace_of(sim.journal(), now=0.0, content=True) if span.name == "chat"]
    assert span.open
    assert "What is it?" in str(span.attributes[names.INPUT_MESSAGES])


def test_nothing_is_rendered_for_those_who_did_not_ask() -> None:
    entries = calling().journal()
    projection = Projection("r1", "r1")
    spans = [span for entry in entries for span in projection.apply(entry)]
    assert projection._input is None
    assert not {names.INPUT_MESSAGES, names.SYSTEM_INSTRUCTIONS} & {key for s in spans for key in s.attributes}


def test_an_agent_with_prompts_of_its_own_tells_only_what_was_answered() -> None:
    """Its file is on its own machine: another's words in its place would not be what its model read."""
    own = AgentSpec(name="boss", description="Leads.", prompts="/somewhere/else.yaml")
    sim = SimulatedRun(own).begin()
    sim.say(ANSWER)
    (span,) = chats(sim.journal())
    assert names.INPUT_MESSAGES not in span.attributes
    assert names.OUTPUT_MESSAGES in span.attributes


def test_with_a_gap_in_the_journal_nothing_is_made_up() -> None:
    sim = SimulatedRun().begin("What is it?")
    sim.say(call("add", a=1, b=2))
    sim.arrive(result(sim.id(0), 3))
    sim.say(ANSWER)
    first, _, *rest = sim.journal()
    spans = chats([first, *rest])
    assert [names.INPUT_MESSAGES in span.attributes for span in spans] == [True, False]


# --- in so many characters


def user(text: str) -> ChatMessage:
    return {"role": "user", "content": text}


def test_of_a_long_conversation_its_beginning_and_its_end_are_told() -> None:
    messages = [user(f"number {n}: {'x' * 500}") for n in range(1000)]
    text = history(messages, MAX_CHARS)
    assert MAX_CHARS - 1000 < len(text) <= MAX_CHARS
    first, note, *latest = msgspec.json.decode(text)
    assert first["parts"][0]["content"].startswith("number 0:")
    assert [m["parts"][0]["content"].split(":")[0] for m in latest] == [
        f"number {n}" for n in range(1000 - len(latest), 1000)
    ]
    assert note["parts"] == [{"type": "text", "content": f"[… {999 - len(latest)} messages left out here …]"}]


@pytest.mark.parametrize("character", ["x", "é", '"', "\n", "\x01"])
def test_long_texts_are_cut_and_say_so(character: str) -> None:
    instructed: ChatMessage = {"role": "assistant", "content": character * 30_000, "tool_calls": []}
    for n in range(9):
        function = {"name": "add", "arguments": msgspec.json.encode({"it": character * 9_000}).decode()}
        instructed["tool_calls"].append({"id": f"c{n}", "function": function})
    heard: ChatMessage = {"role": "tool", "tool_call_id": "c0", "content": character * 30_000}
    text = history([user(character * 30_000), instructed, heard], MAX_CHARS)
    assert len(text) <= MAX_CHARS
    asked, answered, observed = msgspec.json.decode(text)
    for part in (
        asked["parts"][0]["content"],
        answered["parts"][0]["content"],
        observed["parts"][0]["response"],
    ):
        assert part.endswith(" characters left out]")
        assert len(msgspec.json.encode(part).decode()) <= MAX_PART_CHARS + 2
    assert "parts left out here" in answered["parts"][-1]["content"]
    first = instructions({"role": "system", "content": character * 30_000}, MAX_CHARS)
    assert len(first) <= MAX_CHARS
    assert msgspec.json.decode(first)[0]["content"].endswith(" characters left out]")


def test_what_fits_is_whole() -> None:
    messages = [user("x" * 4_000), user("y" * 4_000), user("z" * 4_000)]
    assert [m["parts"][0]["content"] for m in msgspec.json.decode(history(messages, MAX_CHARS))] == [
        m["content"] for m in messages
    ]
