"""Evidence of a chaos in which all went well, made by the pure loop itself: what the verdict's tests doctor."""

import copy
import functools
from collections import deque

import msgspec

from cadre.engine.chat import Transcript
from cadre.engine.commands import CallModel, Send, SetTimer
from cadre.journal.arrivals import Arrival, ModelReplied, Toolset
from cadre.journal.entry import ArrivalRecord, BackPointers, Entry
from cadre.journal.events import ApprovalRequested, RequestedCall
from cadre.journal.run import Run
from cadre.loop.decide import decide
from cadre.loop.owed import owed
from cadre.ports import Stored
from cadre.prompting.prompts import prompts_for
from cadre.protocol.cards import AgentCard
from cadre.protocol.code import CodeRequest
from cadre.protocol.messages import (
    CallEdit,
    CodeCall,
    CodeFinished,
    CodeYielded,
    Decision,
    ErrorInfo,
    Record,
    Report,
    Task,
    ToolCall,
    ToolResult,
)
from cadre.protocol.topology import result_id, task_id
from cadre.spec.agent_file import read_agent
from cadre.spec.kinds import decided_by
from cadre.tools.loading import load_tools
from cadre_scripted_model.request import Reply, read_request
from cadre_scripted_model.script_player import Script, read_script, render_reply
from chaos.crew import AGENTS, GROUPS, TEAM
from chaos.evidence import Consumer, Delivered, EffectMessage, Evidence
from chaos.executions import Line
from chaos.expected import AFTER, LOOP, answer_of, coded_answer, coded_of, part_of
from chaos.expected_kinds import CORRECTED
from chaos.load import Order
from chaos.strikes import Strike

EXECUTOR = "here-7"


class _World:
    """One run after the other, one record at a time, nothing ever fails but the calls in `unknown`."""

    def __init__(self, unknown: frozenset[str]) -> None:
        self._unknown = unknown
        self._specs = {name: read_agent(TEAM / f"{name}.yaml") for name in AGENTS}
        rules = [rule for rule in read_script(TEAM / "script.yaml").rules if rule.match.times is None]
        self._script = Script(rules)
        self._tools = {tool.name: tool.card for tool in load_tools(str(TEAM / "tools.py"))}
        self._runs: dict[str, Run] = {}
        self._waiting: deque[Record] = deque()
        self._seq = 0
        self.evidence = Evidence()

    def play(self, number: int) -> None:
        root = f"root{number}"
        task = Task(id=task_id(root), tree=root, run=root, at=1.0, agent="boss", task=f"task <{number}>")
        self._waiting.append(task)
        self._deliver_all()
        journals = self.evidence.journals
        seen = sorted(one.seq for run in journals if run.startswith(root) for one in journals[run])
        output = answer_of(root, number, self._unknown)
        self.evidence.orders.append(
            Order(number=number, run=root, seconds=2.0, seen=seen, state="success", output=output)
        )

    def _deliver_all(self) -> None:
        while self._waiting:
            record = self._waiting.popleft()
            self._seq += 1
            self.evidence.inbox.append(Delivered(record.run, record.id, self._seq))
            self._arrive(record, record, record.id)

    def _arrive(self, what: Record | ModelReplied, record: Record, cause: str) -> None:
        run = self._runs.setdefault(record.run, Run(id=record.run, tree=record.tree))
        agent = run.agent or (what.agent if isinstance(what, Task) else "")
        spec = self._specs[agent]
        toolset = Toolset(
            tools={name: self._tools[name] for name in spec.tools},
            members={str(name): AgentCard(name=str(name), description="Helps.") for name in spec.team},
        )
        arrival = Arrival(what=what, at=float(self._seq), cause=record.id, toolset=toolset, spec=spec)
        journal = self.evidence.journals.setdefault(record.run, [])
        pointers = BackPointers()
        for stored in journal:
            pointers.note(stored.seq)
        self._seq += 1
        events = decide(run, arrival, cause)
        entry = Entry(
            arrived=ArrivalRecord("Task"),
            run=record.run,
            agent=agent,
            kind=decided_by(spec),
            n=run.entries,
            cause=cause,
            at=arrival.at,
            events=events,
            prev=pointers.packed(),
        )
        journal.append(Stored(self._seq, entry))
        for command in owed(run, since=entry.n):
            match command:
                case CallModel():
                    self._answer(run, command, record)
                case Send(message=ToolCall() as call):
                    self._execute(call)
                case Send(message=CodeCall() as code):
                    # Its list is the run's own, and grows.
                    self.evidence.code.append(msgspec.structs.replace(code, exchanges=[*code.exchanges]))
                    self._waiting.append(self._code(code))
                case Send(message=Report() as report):
                    self._waiting.append(msgspec.structs.replace(report, text=str(report.output)))
                case Send(message=Task() as task):
                    self._waiting.append(task)
                case SetTimer(timer=timer):
                    self._waiting.append(timer)
        requests = [event for event in entry.events if isinstance(event, ApprovalRequested)]
        self._waiting.extend(_decision(request, record) for request in requests)

    def _answer(self, run: Run, command: CallModel, record: Record) -> None:
        """The very script plays that the chaos itself plays."""
        assert run.spec is not None
        asked = Transcript(prompts_for(run.spec)).request(run, command.purpose)
        view = read_request({"messages": asked.messages, "tools": asked.tools})
        rule, reply = self._script.choose(view) or ("", Reply())
        said = render_reply(reply, view)
        assert said.error is None, rule
        calls = [RequestedCall(call.name, call.arguments) for call in said.tool_calls]
        replied = ModelReplied(attempt=command.attempt, content=said.content or "", calls=calls)
        self._arrive(replied, record, f"{run.id}:model:{command.purpose}:{command.step}:{command.attempt}")

    def _code(self, call: CodeCall) -> CodeYielded | CodeFinished:
        """Return what a sandbox answers: a loop of calls in the first block, some at once in the second."""
        done, number = len(call.exchanges), int(call.tree.removeprefix("root"))
        coded = coded_of(call.tree, number)
        first = call.block.endswith(":1")
        calls: list[CodeRequest] = []
        if first and done < len(LOOP):
            calls = [CodeRequest(LOOP[done], {"job": f"{coded.job}{done}"})]
        elif not first and not done:
            calls = [CodeRequest(tool, {"job": coded.job}) for tool in AFTER]
        place = {"tree": call.tree, "run": call.run, "at": 2.0, "block": call.block, "exchange": done}
        if calls:
            return CodeYielded(id=f"{call.id}:yielded", calls=calls, **place)  # type: ignore[arg-type]
        output = None if first else coded_answer(coded, self._unknown)
        return CodeFinished(
            id=f"{call.id}:finished",
            output=output,
            is_final_answer=not first,
            snapshot=f"blob:{call.block}",
            **place,  # type: ignore[arg-type]
        )

    def _execute(self, call: ToolCall) -> None:
        job, evidence = call.arguments["job"], self.evidence
        error = ErrorInfo("interrupted", "outcome unknown") if call.id in self._unknown else None
        if call.tool == "balk":
            error = ErrorInfo("tool-failed", f"ValueError: {job} is not to be had")
        else:
            evidence.executions.append(Line(call.tool, call.id, job, 7))
        if call.tool not in ("look", "balk"):
            at = float(self._seq)
            evidence.effects[call.id] = [
                EffectMessage("effect_claim", EXECUTOR, at, at, None),
                EffectMessage("effect_result", EXECUTOR, at, at, error),
            ]
        result = ToolResult(
            id=result_id(call.id),
            tree=call.tree,
            run=call.run,
            at=2.0,
            call=call.id,
            tool=call.tool,
            output=None if error else f"ok:{call.tool}:{job}",
            error=error,
        )
        self._waiting.append(result)


def _decision(request: ApprovalRequested, record: Record) -> Decision:
    """Return what the person says who decides on a solution."""
    [first, *_] = request.arguments["calls"]
    return Decision(
        id=f"{request.call}:decision",
        tree=record.tree,
        run=record.run,
        at=2.0,
        call=request.call,
        verdict="corrected",
        edits=[CallEdit(call=1, arguments={"job": first["arguments"]["job"] + CORRECTED})],
        sender="somebody",
    )


def sound_evidence() -> Evidence:
    """Three roots with all their runs; the last one's first `grind` was interrupted, its executor being killed."""
    return copy.deepcopy(_played())


@functools.cache
def _played() -> Evidence:
    unknown = part_of("root2", 2, 0).grind
    world = _World(frozenset({unknown}))
    for number in (0, 1, 2):
        world.play(number)
    evidence = world.evidence
    evidence.consumers = [Consumer("CADRE-0", f"agent-{name}", 0, 0) for name in GROUPS]
    at = evidence.effects[unknown][0].at
    evidence.strikes = [Strike("kill", "tools-1", 7, at, at + 1)]
    return evidence
