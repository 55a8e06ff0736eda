"""No matter what a model says and in any order records come: what must hold of every run."""

from typing import get_args

from hypothesis import given, settings
from hypothesis import strategies as st

from cadre.engine.chat import Transcript
from cadre.engine.commands import Command
from cadre.engine.fold import fold
from cadre.journal import events as ev
from cadre.journal.run import Phase, Run
from cadre.loop.owed import owed
from cadre.prompting.prompts import Prompts
from cadre.protocol.messages import ErrorInfo, Record, RunState
from cadre.protocol.usage import Usage
from cadre.spec.agent import Limits
from cadre.spec.model import ModelSpec
from unit.loop.build import ANSWER, SimulatedRun, call, cancel, report, result, spec, task, timer

PROMPTS = Prompts.load("tool_calling")

CALLS = st.sampled_from(
    [
        call("add", a=1, b=2),
        call("look", at="x"),
        call("kid", task="Help."),
        call("add", a="one"),
        call("nope"),
        ev.RequestedCall("add", "{"),
        ANSWER,
    ]
)
TEXTS = st.sampled_from(["", "I think.", '{"name": "add", "arguments": {"a": 1, "b": 2}}', "{oops}"])
OUTPUTS = st.sampled_from([3, "text", None, {"k": [1]}, "x" * 300])
USAGES = st.builds(Usage, st.integers(0, 99), st.integers(0, 99))
ERRORS = st.none() | st.just(ErrorInfo("tool-failed", "kaput"))
SPECS = st.builds(
    lambda interval, steps, retries, checks: spec(
        planning_interval=interval,
        checks=checks,
        limits=Limits(max_steps=steps, observation_chars=100),
        model=ModelSpec(retries=retries),
    ),
    st.sampled_from([None, 1, 2]),
    st.integers(1, 4),
    st.integers(0, 2),
    st.sampled_from([[], ["look"], ["when: answer != '42'"], ["when: answer", "look", "proofread"]]),
)
STATES = st.sampled_from(list[RunState](get_args(RunState)))
LATE: list[Record] = [result("r1_9_0", 1), report("r1_9_1", "x"), timer("nobodys"), task("Again.")]


class Chance:
    """Takes a run forward by arrivals that hypothesis draws, and keeps what was paid on the way."""

    def __init__(self, data: st.DataObject) -> None:
        self.draw = data.draw
        self.sim = SimulatedRun(self.draw(SPECS))
        self.records: list[Record] = []
        self.paid: list[Command] = []
        self.model_arrivals = 0

    def record(self, record: Record) -> None:
        """As the runner does it: what is accounted for is not journaled again."""
        if record.id not in self.sim.run.seen:
            self.records.append(record)
            self.sim.arrive(record)

    def step(self) -> None:
        run = self.sim.run
        before = run.entries
        move = self.draw(st.sampled_from(["on", "on", "on", "on", "late", "again", "cancel"]))
        if move == "late":
            self.record(self.draw(st.sampled_from(LATE)))
        elif move == "again" and self.records:
            self.record(self.draw(st.sampled_from(self.records)))
        elif move == "cancel" and self.draw(st.integers(0, 5)) == 0:
            self.record(cancel())
        else:
            self._on(run)
        if run.entries > before:
            self.paid += self.sim.owed(since=run.entries)

    def _on(self, run: Run) -> None:
        match run.phase:
            case Phase.NEW:
                self.record(task())
            case Phase.THINKING:
                self.model_arrivals += 1
                self._think()
            case Phase.WAITING:
                assert run.deferral is not None
                self.sim.at = run.deferral.until
                self.record(timer(run.deferral.timer))
            case Phase.ACTING:
                open = self.draw(st.sampled_from(run.open_calls()))
                self.record(self._result(open.id, open.kind))
            case Phase.DONE:
                self.record(self.draw(st.sampled_from(LATE)))

    def _think(self) -> None:
        match self.draw(st.sampled_from(["call", "call", "call", "text", "fail", "refuse", "lose"])):
            case "call":
                calls = self.draw(st.lists(CALLS, min_size=1, max_size=4))
                self.sim.say(*calls, usage=self.draw(USAGES))
            case "text":
                self.sim.say(content=self.draw(TEXTS))
            case "fail":
                self.sim.fail(retry_after=self.draw(st.none() | st.just(5.0)))
            case "refuse":
                self.sim.fail(final=self.draw(st.booleans()))
            case _:
                self.sim.lose()

    def _result(self, id: str, kind: str) -> Record:
        if kind == "member":
            state = self.draw(STATES)
            return report(id, "text", state, usage=self.draw(USAGES))
        return result(id, self.draw(OUTPUTS), self.draw(ERRORS))


@settings(max_examples=150)
@given(st.data())
def test_every_run(data: st.DataObject) -> None:
    chance = Chance(data)
    sim = chance.sim
    transcript = Transcript(PROMPTS)
    for _ in range(data.draw(st.integers(1, 30))):
        chance.step()
        run = sim.run
        alive(run)
        assert sim.owed() == sim.owed(), "asked twice, it says the same"
        assert [command for command in sim.owed() if command not in chance.paid] == []
        if run.model is not None:
            purpose = run.model.purpose
            fresh = Transcript(PROMPTS).request(run, purpose)
            assert transcript.request(run, purpose) == fresh, "kept messages are those made anew"
            well_formed(fresh.messages)
    read_back(sim)
    causes = [entry.cause for entry in sim.journal()]
    assert len(causes) == len(set(causes))
    for record in chance.records:
        assert causes.count(record.id) == 1
    assert len(causes) == len(chance.records) + chance.model_arrivals


def alive(run: Run) -> None:
    if run.phase not in (Phase.NEW, Phase.DONE):
        assert owed(run) or run.open_calls()
    if run.phase is Phase.ACTING:
        assert run.open_calls(), "a step without open calls is over"
    if run.phase is Phase.DONE:
        assert run.result is not None


def well_formed(messages: list[dict[str, object]]) -> None:
    """Each call is answered right behind the message that makes it, as chat endpoints demand."""
    expected: list[object] = []
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] == expected.pop(0)
        else:
            assert expected == []
            calls = message.get("tool_calls", [])
            assert isinstance(calls, list)
            expected = [one["id"] for one in calls]
            assert message["content"] or calls
    assert expected == []


def read_back(sim: SimulatedRun) -> None:
    assert fold(sim.journal(), "r1", "r1") == sim.run


@settings(max_examples=60)
@given(st.data())
def test_results_of_one_step_fold_to_the_same_in_any_order(data: st.DataObject) -> None:
    calls = data.draw(st.lists(CALLS, min_size=2, max_size=6))
    first = SimulatedRun().begin()
    first.say(*calls)
    records: list[Record] = [
        report(open.id, "done", usage=data.draw(USAGES))
        if open.kind == "member"
        else result(open.id, data.draw(OUTPUTS), data.draw(ERRORS))
        for open in first.run.open_calls()
    ]
    second = SimulatedRun().begin()
    second.say(*calls)
    for one, other in zip(records, data.draw(st.permutations(records)), strict=True):
        first.arrive(one)
        second.arrive(other)
    assert first.run.steps == second.run.steps
    assert first.run.usage == second.run.usage
    assert first.run.seen == second.run.seen
    assert Transcript(PROMPTS).request(first.run, "act") == Transcript(PROMPTS).request(second.run, "act")
