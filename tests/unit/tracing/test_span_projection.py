"""From entries to spans: where each hangs, when it ends, what it says, and that it comes out the same every time."""

from collections import Counter
from typing import Any

import msgspec
import pytest

from cadre.journal.arrivals import ModelReplied
from cadre.journal.entry import Entry
from cadre.journal.events import ModelAnswered, RunFinished, ToolAnswered
from cadre.protocol.messages import ErrorInfo, ToolResult, Verdict
from cadre.protocol.usage import Usage
from cadre.spec.model import ModelSpec
from cadre.telemetry.tracing import names
from cadre.telemetry.tracing.ids import agent_span, call_span, root_span, trace_id
from cadre.telemetry.tracing.page import trace_of
from cadre.telemetry.tracing.projection import Projection
from cadre.telemetry.tracing.spans import SpanLink, SpanRecord
from journals import kept
from kinds.code.build import decision
from unit.loop.build import ANSWER, SimulatedRun, call, cancel, report, result, sound, spec

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

KEPT = [(version, name) for version in kept.VERSIONS for name in kept.names(version)]


class Clocked(SimulatedRun):
    """Every entry a second after the one before."""

    def arrive(self, *arguments: Any, **options: Any) -> Any:
        self.at += 1.0
        return super().arrive(*arguments, **options)


def spans_of(sim: SimulatedRun) -> dict[str, SpanRecord]:
    """By name; of several with one name the last."""
    return {span.name: span for span in trace_of(sim.journal(), now=sim.at) if not span.open}


def seconds(span: SpanRecord) -> tuple[float, float]:
    return span.start / 1e9, span.end / 1e9


def simple() -> Clocked:
    sim = Clocked(spec(model=ModelSpec(name="gpt", temperature=0.5)))
    sim.begin(trace=CALLER, session="s1")
    sim.say(call("add", a=1, b=2), usage=Usage(input_tokens=10, output_tokens=2, cost=0.5))
    sim.arrive(worked(sim.id(0), 102.25, 102.75))
    sim.say(ANSWER)
    return sim


def worked(call: str, started_at: float, at: float) -> ToolResult:
    """An executor's result, by its own clock."""
    return msgspec.structs.replace(result(call, 3, executor="here-7", started_at=started_at), at=at)


@pytest.mark.parametrize(
    ("started_at", "at", "shown"),
    [
        (102.5, 102.75, (102.5, 102.75)),
        (90.0, 90.25, (102.0, 102.25)),
        (500.0, 500.25, (102.75, 103.0)),
        (90.0, 100.0, (102.0, 103.0)),
        (102.5, 102.5, (102.5, 102.500001)),
    ],
    ids=["as it tells", "its clock is slow", "its clock is fast", "longer than its call", "no time at all"],
)
def test_an_executor_worked_within_its_call(started_at: float, at: float, shown: tuple[float, float]) -> None:
    """As long as it says, however its clock goes."""
    sim = Clocked().begin()
    sim.say(call("add", a=1, b=2))
    sim.arrive(worked(sim.id(0), started_at, at))
    assert seconds(spans_of(sim)["process cadre.call.add"]) == shown


def test_of_an_executor_that_did_not_tell_when_it_began() -> None:
    """The journals of before that was kept: it ends with the arrival of its result."""
    sim = Clocked().begin()
    sim.say(call("add", a=1, b=2))
    sim.arrive(worked(sim.id(0), 102.25, 102.5))
    entries = sim.journal()
    answered = [
        msgspec.structs.replace(e, started_at=None) if isinstance(e, ToolAnswered) else e for e in entries[-1].events
    ]
    entries[-1] = msgspec.structs.replace(entries[-1], events=answered)
    spans = {span.name: span for span in trace_of(entries, now=0.0)}
    assert seconds(spans["process cadre.call.add"]) == (102.75, 103.0)


def test_a_run_with_one_call() -> None:
    found = spans_of(simple())
    root, agent, step = found["invoke_workflow boss"], found["invoke_agent boss"], found["step 1"]
    tool, work, sent = (
        found["execute_tool add"],
        found["process cadre.call.add"],
        found["send cadre.call.add"],
    )
    assert (root.span, root.parent, root.trace) == (root_span("r1"), None, trace_id("r1"))
    parents = (agent.parent, step.parent, tool.parent, sent.parent, work.parent)
    assert parents == (root.span, agent.span, step.span, tool.span, sent.span)
    assert (agent.kind, tool.kind, sent.kind, work.kind) == ("INTERNAL", "INTERNAL", "PRODUCER", "CONSUMER")
    assert (agent.attributes[names.PROVIDER], agent.attributes[names.AGENT_DESCRIPTION]) == (
        "openai",
        "Leads.",
    )
    assert seconds(root) == seconds(agent) == (101.0, 104.0)
    assert seconds(step) == (101.0, 103.0)
    assert seconds(tool) == (102.0, 103.0)
    assert seconds(work) == (102.25, 102.75), "the rest of the call is waiting"
    assert (root.status, tool.status, root.attributes[names.RUN_STATUS]) == ("OK", "UNSET", "success")
    assert root.links == [SpanLink(CALLER[3:35], CALLER[36:52])]
    assert (work.service, work.instance, tool.service) == ("add", "here-7", "boss")
    assert {span.attributes[names.SESSION] for span in found.values()} == {"s1"}
    assert {span.attributes[names.RUN] for span in found.values()} == {"r1"}


def test_a_model_call_has_its_tokens_and_a_run_those_of_all_below() -> None:
    sim = simple()
    chats = [span for span in trace_of(sim.journal(), now=0.0) if span.name == "chat gpt"]
    first = chats[0].attributes
    assert (first[names.INPUT_TOKENS], first[names.OUTPUT_TOKENS], first[names.COST]) == (10, 2, 0.5)
    assert first[names.LLM_TOTAL_TOKENS] == 12
    assert (first[names.REQUEST_TEMPERATURE], first[names.KIND]) == (0.5, "LLM")
    for name in ("invoke_workflow boss", "invoke_agent boss"):
        whole = spans_of(sim)[name].attributes
        assert (whole[names.ALL_INPUT_TOKENS], whole[names.ALL_OUTPUT_TOKENS]) == (20, 3)
        assert not whole.keys() & {names.INPUT_TOKENS, names.COST, names.LLM_COST, names.LANGFUSE_COST}, "counted twice"
        assert whole[names.ALL_COST] == 0.5, "of its one priced call"


def test_an_attempt_whose_worker_died_is_an_error_and_the_next_one_names_it() -> None:
    sim = Clocked().begin()
    sim.lose()
    sim.say(ANSWER)
    lost, taken = [span for span in trace_of(sim.journal(), now=0.0) if span.name.startswith("chat")]
    assert (lost.status, lost.attributes[names.ERROR_TYPE]) == ("ERROR", "worker_lost")
    assert seconds(lost) == (101.0, 102.0)
    assert (taken.attributes[names.ATTEMPT], seconds(taken)) == (2, (102.0, 103.0))
    assert [link.span for link in taken.links] == [lost.span]
    assert lost.parent == taken.parent


def test_a_call_to_a_fallback_names_its_model_and_why_the_one_before_was_given_up() -> None:
    models = ModelSpec(name="first", temperature=0.5, fallbacks=[ModelSpec(name="second", max_tokens=9)])
    sim = Clocked(spec(model=models)).begin()
    sim.fail("no such key", status=401, final=True)
    sim.say(ANSWER)
    lost, taken = [span for span in trace_of(sim.journal(), now=0.0) if span.name.startswith("chat")]
    assert (lost.name, lost.status, lost.attributes[names.ERROR_TYPE]) == (
        "chat first",
        "ERROR",
        "model_given_up",
    )
    assert (taken.name, taken.attributes[names.REQUEST_MODEL]) == ("chat second", "second")
    assert taken.attributes[names.REQUEST_MAX_TOKENS] == 9
    assert names.REQUEST_TEMPERATURE not in taken.attributes
    assert [link.span for link in taken.links] == [lost.span]


def test_a_wait_for_the_endpoint_lies_between_two_attempts() -> None:
    sim = Clocked().begin()
    sim.fail("slow down, said the secret", status=429, rate_limited=True, retry_after=30.0)
    sim.wake()
    sim.say(ANSWER)
    failed, wait, *_ = trace_of(sim.journal(), now=0.0)
    assert (failed.status, failed.attributes[names.ERROR_TYPE], failed.message) == ("ERROR", "429", "429")
    assert (wait.name, wait.attributes[names.WAIT_REASON]) == ("wait_model", "rate_limited")
    assert seconds(wait) == (102.0, 133.0)
    assert wait.parent == failed.parent


def test_parallel_branches_hang_below_their_own_calls() -> None:
    sim = Clocked().begin()
    sim.say(call("kid", task="one"), call("kid", task="two"), call("add", a=1, b=2))
    children = []
    for place in (1, 0):
        child = Clocked(spec(name="kid", team=[], tools=[]), run=sim.id(place)).begin("x")
        child.say(ANSWER)
        children.append(child)
    sim.arrive(result(sim.id(2), 3))
    sim.arrive(report(sim.id(1), "two"))
    sim.arrive(report(sim.id(0), "one"))
    sim.say(ANSWER)
    entries = [entry for one in (sim, *children) for entry in one.journal()]
    spans = {span.span: span for span in trace_of(entries, now=0.0)}
    for run in ("r1_1_0", "r1_1_1"):
        agent, calling = spans[agent_span(run)], spans[call_span(run)]
        assert agent.parent == calling.span
        about = (agent.name, agent.kind, agent.attributes[names.KIND])
        assert about == ("invoke_agent kid", "CONSUMER", "AGENT")
        assert (calling.name, calling.kind, calling.run) == ("invoke_agent kid", "CLIENT", "r1")
        assert spans[str(calling.parent)].name == "step 1"


@pytest.mark.parametrize("verdict", ["approved", "rejected"])
def test_a_person_is_waited_for_before_the_call(verdict: Verdict) -> None:
    sim = Clocked(spec(approvals={"add": "always"})).begin()
    sim.say(call("add", a=11, b=1))
    sim.at += 3600
    sim.arrive(decision(verdict, trace=CALLER))
    if verdict == "approved":
        sim.arrive(result("r1_1_0", 12))
    sim.say(ANSWER)
    found = spans_of(sim)
    wait = found["wait_approval add"]
    assert seconds(wait) == (102.0, 3703.0)
    assert wait.attributes[names.APPROVAL_OUTCOME] == verdict
    assert [moment.attributes for moment in wait.moments] == [
        {names.DECISION: "allow" if verdict == "approved" else "deny"}
    ]
    assert wait.links == [SpanLink(CALLER[3:35], CALLER[36:52])], "to the request that decided"
    assert ("execute_tool add" in found) == (verdict == "approved")
    assert wait.parent == found["step 1"].span


def test_a_refused_call_has_a_span_of_the_least_length() -> None:
    sim = Clocked().begin()
    sim.say(call("nothing", a=1))
    sim.say(ANSWER)
    refused = spans_of(sim)["execute_tool nothing"]
    assert (refused.end - refused.start, refused.status) == (1000, "ERROR")
    assert refused.attributes[names.CALL_STATE] == "refused"


def test_what_is_at_work_when_a_run_is_cancelled_ends_with_it() -> None:
    sim = Clocked(spec(approvals={"look": "always"})).begin()
    sim.say(call("add", a=1, b=2), call("kid", task="help"), call("look", at="x"))
    sim.arrive(cancel())
    spans = trace_of(sim.journal(), now=0.0)
    assert {span.name for span in spans if span.status == "ERROR"} == {
        "invoke_workflow boss",
        "invoke_agent boss",
        "step 1",
        "execute_tool add",
        "invoke_agent kid",
        "wait_approval look",
    }
    assert [span for span in spans if span.open] == []
    assert spans_of(sim)["invoke_agent boss"].moments[0].name == names.CANCEL_EVENT


def test_an_error_says_its_kind_and_not_what_somebody_wrote() -> None:
    sim = Clocked().begin()
    sim.say(call("add", a=1, b=2))
    sim.arrive(result(sim.id(0), error=ErrorInfo("tool-failed", "the secret")))
    sim.say(ANSWER)
    tool = spans_of(sim)["execute_tool add"]
    assert (tool.attributes[names.ERROR_TYPE], tool.message) == ("AgentToolExecutionError",) * 2


@pytest.mark.parametrize(("state", "fault"), [("success", None), ("max_steps_error", None), ("error", "error")])
def test_a_wait_that_is_open_when_a_run_ends_has_failed_only_if_the_run_has(state: Any, fault: str | None) -> None:
    sim = Clocked(spec(approvals={"look": "always"})).begin()
    sim.say(call("look", at="sky"))
    entries = sim.journal()
    last = msgspec.structs.replace(
        entries[-1],
        n=len(entries) + 1,
        at=sim.at + 1,
        events=[RunFinished(state=state, steps=1)],
    )
    spans = {span.name: span for span in trace_of([*entries, last], now=sim.at + 1)}
    wait = spans["wait_approval look"]
    assert (wait.attributes.get(names.ERROR_TYPE), wait.status == "ERROR") == (fault, fault is not None)


def test_a_span_never_ends_before_it_begins() -> None:
    """Two workers, two clocks."""
    sim = Clocked().begin()
    sim.at -= 50
    sim.say(ANSWER)
    assert all(span.end >= span.start for span in trace_of(sim.journal(), now=0.0))


def test_an_open_run_shows_what_is_open() -> None:
    sim = Clocked().begin()
    sim.say(call("add", a=1, b=2))
    spans = trace_of(sim.journal(), now=500.0)
    assert {span.name for span in spans if span.open} == {
        "invoke_workflow boss",
        "invoke_agent boss",
        "step 1",
        "execute_tool add",
    }
    assert {span.end / 1e9 for span in spans if span.open} == {500.0}


def entries_of(version: str, name: str) -> list[list[Entry]]:
    return [[one.entry for one in journal] for journal in kept.journals(version, name)]


@pytest.mark.parametrize(("version", "name"), KEPT)
def test_kept_journals_are_whole_traces(version: str, name: str) -> None:
    """One root, no orphan, no span twice, nothing left open: of everything that earlier versions have stored."""
    journals = entries_of(version, name)
    spans = [span for journal in journals for span in trace_of(sorted(journal, key=lambda entry: entry.n), now=0.0)]
    known = {span.span for span in spans}
    assert [span.name for span in spans if span.open] == []
    assert [span for span, times in Counter(span.span for span in spans).items() if times > 1] == []
    trees = {entry.tree for journal in journals for entry in journal}
    assert len([span for span in spans if span.parent is None]) == len(trees)
    assert [span.name for span in spans if span.parent is not None and span.parent not in known] == []


@pytest.mark.parametrize(("version", "name"), KEPT)
def test_it_comes_out_byte_for_byte_the_same(version: str, name: str) -> None:
    """Also when the entries were folded by several processes, each from the beginning up to its own."""
    for journal in entries_of(version, name):
        if len(journal) > 40:
            journal = journal[:40]
        first = Projection(journal[0].tree, journal[0].run)
        at_once = [msgspec.json.encode(first.apply(entry)) for entry in journal]
        for place, entry in enumerate(journal):
            again = Projection(entry.tree, entry.run)
            for earlier in journal[:place]:
                again.apply(earlier)
            assert msgspec.json.encode(again.apply(entry)) == at_once[place]
            assert again.apply(entry) == [], "an entry is taken once"


def test_a_model_call_says_who_asked_whom_and_when_the_answer_began() -> None:
    """The journal names a replica and an endpoint again only where they are others."""
    sim = Clocked(spec(model=ModelSpec(name="gpt"), version="7"))
    sim.begin()
    for number, (server, worker) in enumerate(
        [("[::1]:8000", "w-1"), ("[::1]:8000", "w-1"), ("llm.example:443", "w-2")], start=1
    ):
        assert sim.run.model is not None
        sim.arrive(
            ModelReplied(
                attempt=sim.run.model.attempt,
                content="",
                calls=[call("look", at=str(number)) if number < 3 else ANSWER],
                response=f"chatcmpl-{number}",
                first_seconds=0.25,
                server=server,
                worker=worker,
            )
        )
        if number < 3:
            sim.arrive(result(sim.id(0), number))
    sound(sim)
    answered = [event for entry in sim.journal() for event in entry.events if isinstance(event, ModelAnswered)]
    assert [(one.server, one.worker) for one in answered] == [
        ("[::1]:8000", "w-1"),
        ("", ""),
        ("llm.example:443", "w-2"),
    ]
    chats = [span for span in trace_of(sim.journal(), now=sim.at) if span.name == "chat gpt"]
    assert [span.instance for span in chats] == ["w-1", "w-1", "w-2"]
    assert {span.version for span in chats} == {"7"}
    assert [span.attributes[names.RESPONSE_ID] for span in chats] == [f"chatcmpl-{n}" for n in (1, 2, 3)]
    assert [(span.attributes[names.SERVER_ADDRESS], span.attributes[names.SERVER_PORT]) for span in chats] == [
        ("::1", 8000),
        ("::1", 8000),
        ("llm.example", 443),
    ]
    assert {span.attributes[names.TIME_TO_FIRST] for span in chats} == {0.25}
