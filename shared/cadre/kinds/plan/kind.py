"""The kind `plan`: each step of a plan is carried out as soon as what it needs is done, side by side where that can be.

A step is a call of a tool or member, or a run of this agent without its own plan. The plan is state of the
journal; people may edit what has not begun.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from cadre.engine.answers.answer_form import CUT, cut_off, last_answer_form, last_answer_of
from cadre.engine.answers.json_text import ReadingError, read_array
from cadre.engine.calls.call_check import CallNotAllowed, as_written, check_arguments, input_schema
from cadre.engine.calls.call_schema import Schema
from cadre.engine.chat import as_text
from cadre.engine.context.context_budget import known_room
from cadre.engine.context.text_size import fit, observation_of
from cadre.engine.contract import delegation_problems
from cadre.engine.draft import Draft
from cadre.engine.kind import Chat, Editable, EditNotAllowed, Kind, StepAccount
from cadre.engine.model_request import ModelRequest, asked_model
from cadre.journal.arrivals import ModelReplied
from cadre.journal.parts import JournalEvent, KindStep
from cadre.journal.run import CallState, MessageStep, Phase, RecalledStep, Run
from cadre.kinds.plan.fold import APPROVE, EXECUTING, RESULT, edited_items, fold_plan, state_of
from cadre.kinds.plan.progress import PlanProgress
from cadre.kinds.plan.records import PlanItem, PlanMade, PlanNote, PlanState
from cadre.kinds.plan.section import EXECUTE, PlanStep, ResultCall, plan_of, prompt_terms
from cadre.kinds.plan.steps import PlanError, as_steps, numbered
from cadre.kinds.plan.values import PLAN as GIVEN
from cadre.kinds.plan.values import doing_of, objective_of, part_of, shown_state, task_fields, told_items
from cadre.kinds.workflow.fold import StepOutcome, outcome_of
from cadre.protocol.messages import Decision, Edit, ErrorInfo
from cadre.spec.agent import AgentSpec
from cadre.spec.contract import (
    AgentContract,
    ContractProblem,
    TeamReach,
    answer_type,
    argument_problems,
    callee_of,
    inputs_type,
    missing_arguments,
    read_problems,
)
from cadre.spec.expression_types import Typed, shape_of
from cadre.spec.expressions import check_template, templates_in
from cadre.spec.member_call import ADDITIONAL, TASK


class PlanKind(Kind):
    """`cadre.engine.kind.Kind` for runs that carry out a plan."""

    guided = False

    def contract(self, spec: AgentSpec, reach: TeamReach) -> AgentContract:
        return AgentContract(problems_of(spec, reach))

    def graph(self, spec: AgentSpec) -> Iterator[str]:
        return graph_of(spec)

    # --- decide

    def begin(self, draft: Draft) -> None:
        """With the plan that was given, the one that a fork takes over, or the question for one."""
        run, progress, section = draft.run, PlanProgress(draft), plan_of(draft.spec)
        if isinstance(section.result, ResultCall):
            draft.plan([section.result.tool])
        if state_of(run).items:
            progress.carry_out()
            return
        given = task_fields(run).get(GIVEN) or section.steps
        if not given and section.planning:
            progress.ask("make_plan")
            return
        progress.begin_step(GIVEN)
        if not given:
            progress.take("basic", [PlanStep(step=1, task=objective_of(run), needs=[])])
            return
        try:
            steps = numbered(as_steps(given) if given is not section.steps else section.steps, section.most)
            check_actions(run, steps)
        except PlanError as error:
            progress.stop(ErrorInfo("plan-failed", f"The given plan is invalid: {error}"))
        else:
            progress.take("given", steps)

    def answered(self, draft: Draft, reply: ModelReplied) -> None:
        assert draft.asked is not None
        progress, purpose = PlanProgress(draft), draft.asked.purpose
        if reply.finish_reason == CUT:
            progress.refuse(purpose, cut_off())
        elif purpose == "conclude":
            progress.finish(last_answer_of(draft.run, reply.content))
        else:
            try:
                steps, left_out = self._plan_in(draft.run, purpose, reply.content)
            except ReadingError as error:
                progress.refuse(purpose, error.info)
            else:
                progress.take("model" if purpose == "make_plan" else "replan", steps, left_out)

    def _plan_in(self, run: Run, purpose: str, content: str) -> tuple[list[PlanStep], str]:
        """Return the steps that the model wants from now on, and what is left out of them. Raises ReadingError."""
        items = state_of(run).items
        done = [one.step for one in items if one.state == "done"]
        replaced = [one.step for one in items if one.state == "replaced"]
        written = read_plan(content)
        if purpose == "make_plan" and not written:
            raise ReadingError("Your plan has no steps")
        # A new plan may name what is done already.
        written = [step for step in written if isinstance(step, str) or step.step not in done]
        try:
            steps = numbered(written, plan_of(run.spec).most, before=done, taken=replaced)
            steps, left_out = _without_strangers(run, steps)
            check_actions(run, steps)
        except PlanError as error:
            raise ReadingError(str(error)) from error
        return steps, left_out

    def settled(self, draft: Draft, calls: Sequence[CallState]) -> None:
        run, progress, call = draft.run, PlanProgress(draft), calls[0]
        if run.current is None:
            return
        if call.kind == "question":
            _decided(draft, progress)
            return
        outcome = outcome_of(call, draft.event_of(call))
        item = next((one for one in progress.state.items if one.call == call.id), None)
        if item is None:
            _made_of_result(draft, progress, outcome)
            return
        if call.kind != "refused":
            progress.end(item.step, outcome.error)
        progress.end_refused()
        progress.go_on()

    def go_on(self, draft: Draft, error: ErrorInfo | None = None) -> None:
        """The answer was turned down: the model writes it again, from all results."""
        problem = error or ErrorInfo("not-passed", "The answer did not pass.")
        PlanProgress(draft).refuse("conclude", problem)

    def ending(self, draft: Draft, error: ErrorInfo) -> bool:
        """A plan or an answer that the model does not give is done without."""
        if error.code != "no-answer" or draft.asked is None:
            return False
        PlanProgress(draft).refuse(draft.asked.purpose, error)
        return True

    def part(self, run: Run, call: CallState) -> dict[str, Any]:
        items = state_of(run).items
        return next((part_of(run, items, one) for one in items if one.call == call.id), {})

    # --- edits

    def editable(self, run: Run) -> Editable | None:
        state = state_of(run)
        return Editable("plan", state.version, shown_plan(run, state))

    def edit(self, draft: Draft, edit: Edit) -> None:
        """Apply the edit and start the steps that may begin; people who watch read the new plan."""
        run, state = draft.run, state_of(draft.run)
        if state.stage not in (EXECUTING, APPROVE):
            raise EditNotAllowed("the plan is not there, or is being replaced: look again later", "edit-too-late")
        steps = [one.plan for one in edited_items(state.items, edit.operations) if one.state == "pending"]
        try:
            check_actions(run, steps)
        except PlanError as error:
            raise EditNotAllowed(str(error)) from error
        draft.edited(edit)
        draft.note(PlanMade(step=draft.step, origin="edit", steps=steps))
        PlanProgress(draft).plan_actions(steps, by_person=True)
        if state.stage != APPROVE:
            PlanProgress(draft).go_on()

    # --- state and what is read

    def fold(self, run: Run, event: JournalEvent, n: int, at: float) -> None:
        fold_plan(run, event)

    def reads_calls(self, run: Run) -> bool:
        """The model reads what the plan shows of results, and no history."""
        return False

    def account(self, own: KindStep) -> StepAccount:
        assert isinstance(own, PlanNote)
        text = "\n".join(
            f"{one.step}. [{shown_state(own.items, one)}] {one.plan.action}: {doing_of(one)}" for one in own.items
        )
        seen = text if own.stage in (EXECUTING, RESULT) else None
        return StepAccount("Plan", text, text, seen, "Observation:\n(no step of it was done)", with_calls=True)

    def request(self, run: Run, purpose: str, chat: Chat) -> ModelRequest:
        return ask_about_plan(run, purpose, chat)


def _without_strangers(run: Run, steps: list[PlanStep]) -> tuple[list[PlanStep], str]:
    """Return the steps without those that nothing can do, if the model has been corrected often enough and others are
    left; and which those are."""
    strange = strange_steps(run, steps)
    is_last = state_of(run).tries + 1 >= plan_of(run.spec).tries
    if not strange or not is_last or len(strange) == len(steps):
        return steps, ""
    gone = {step.step for step in strange}
    kept = [
        msgspec.structs.replace(step, needs=[need for need in step.needs or [] if need not in gone])
        for step in steps
        if step.step not in gone
    ]
    listed = ", ".join(f"step {step.step} ({step.action})" for step in strange)
    return kept, f"left out, as there is no such action: {listed}"


def _decided(draft: Draft, progress: PlanProgress) -> None:
    """Act on a person's decision about the plan."""
    decision = draft.arrival.what
    if not isinstance(decision, Decision):
        progress.stop(ErrorInfo("expired", "Nobody decided in time about the plan, so nothing of it was done."))
        return
    if decision.verdict != "rejected":
        agreed = [one.plan for one in progress.state.items if one.state == "pending"]
        progress.plan_actions(agreed, by_person=True)
        progress.carry_out()
        return
    said = f" They said: {decision.feedback}" if decision.feedback else ""
    error = ErrorInfo("rejected", f"A person did not agree to the plan.{said}")
    if decision.feedback:
        progress.refuse("replan" if progress.state.replans else "make_plan", error, by_person=True)
    else:
        progress.stop(error)


def _made_of_result(draft: Draft, progress: PlanProgress, outcome: StepOutcome) -> None:
    """Act on the outcome of the tool that makes the answer of the result."""
    error = outcome.error
    if error is None:
        draft.answer(outcome.value)
    else:
        progress.stop(error.saying(f"The tool that makes the answer has failed: {error.message}"))


PLAN = PlanKind()


_LONGEST_LABEL = 40


def graph_of(spec: AgentSpec) -> Iterator[str]:
    """The lines of a Mermaid flowchart."""
    section = plan_of(spec)
    steps = numbered(section.steps, section.most)
    first = "approve" if section.approve_plan else "steps"
    end = "conclude" if section.conclude else "result"
    yield "flowchart TD"
    if not steps:
        yield f'    start([start]) --> make["make_plan"] --> {first}'
        yield '    steps[["steps, side by side<br/>where they can"]]'
    elif section.approve_plan:
        yield "    start([start]) --> approve"
    if section.approve_plan:
        yield '    approve{{"a person agrees"}}'
        yield from ([] if steps else ["    approve --> steps"])
    for step in steps:
        yield f'    step_{step.step}["{step.step}. {step.action}<br/>{_label(step.task)}"]'
        for need in step.needs or []:
            yield f"    step_{need} --> step_{step.step}"
        if not step.needs:
            yield f"    {'approve' if section.approve_plan else 'start([start])'} --> step_{step.step}"
    needed = {need for step in steps for need in step.needs or []}
    for last in [f"step_{step.step}" for step in steps if step.step not in needed] or ["steps"]:
        yield f"    {last} --> {end}"
        if section.replans:
            yield f'    {last} -. "a step has failed" .-> replan["replan"]'
    yield f"    {end} --> stop([end])"


def _label(text: str) -> str:
    flat = " ".join(text.split())
    short = flat if len(flat) <= _LONGEST_LABEL else flat[: _LONGEST_LABEL - 1] + "…"
    return short.replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")


def ask_about_plan(run: Run, purpose: str, chat: Chat) -> ModelRequest:
    """The request: what the agent is about, and one question with all that it needs to know."""
    assert run.spec is not None
    state, form = state_of(run), run.spec.output_schema
    told_form = observation_of(form) if form is not None else ""
    terms = prompt_terms(run.spec)
    frame = chat.rendered(
        "plan.frame",
        tools=list(run.tools.values()),
        managed_agents=list(run.members.values()),
        custom_instructions=run.spec.instructions.strip(),
        output_schema=told_form,
        **{name: terms[name] for name in ("prompt", "role", "objective")},
    )
    shown = {
        "objective": fit(objective_of(run), known_room(run) // 4),
        "messages": [step.text for step in run.steps if isinstance(step, MessageStep)],
        "complaint": state.complaint,
    }
    schema: Schema | None = plan_schema(run)
    if purpose == "make_plan":
        recalled = [step for step in run.steps if isinstance(step, RecalledStep)]
        memories = [fit(memory.text, known_room(run) // 32) for step in recalled for memory in step.memories]
        text = chat.rendered("plan.make", recalled=memories, most=str(plan_of(run.spec).most), **shown)
    elif purpose == "replan":
        left = plan_of(run.spec).most - sum(item.state == "done" for item in state.items)
        text = chat.rendered("plan.replan", steps=told_items(run, state.items), most=str(left), **shown)
    else:
        text = chat.rendered("plan.conclude", steps=told_items(run, state.items), output_schema=told_form, **shown)
        schema = last_answer_form(run)
    # What an endpoint refused, or a model could not keep to, is asked for by the prompt alone.
    is_held = asked_model(run).calls != "text" and not state.tries
    asked = as_text([*chat.earlier(run), {"role": "user", "content": text}])
    messages = [{"role": "system", "content": frame}, *asked]
    return ModelRequest(messages=messages, schema=schema if is_held else None)


WAITS = "waiting"


def shown_plan(run: Run, state: PlanState) -> dict[str, Any]:
    """`state` of the run and all `steps`, each with its own `state`."""
    return {"state": state_in_words(run, state), "steps": [_shown(run, state, item) for item in state.items]}


def state_in_words(run: Run, state: PlanState) -> str:
    """INITIALIZING, PLANNING, EXECUTING, WAITING_FOR_TOOLS, COMPLETED or ERROR."""
    if run.result is not None:
        return "COMPLETED" if run.result.state == "success" else "ERROR"
    if run.phase is Phase.NEW or not state.stage:
        return "INITIALIZING"
    if state.stage in (APPROVE, "make_plan", "replan", "plan"):
        return "PLANNING"
    return "WAITING_FOR_TOOLS" if any(call.kind == "tool" for call in run.open_calls()) else "EXECUTING"


def _shown(run: Run, state: PlanState, item: PlanItem) -> dict[str, Any]:
    calls = run.current.calls if run.current is not None else []
    held = any(call.id == item.call and call.hold is not None for call in calls)
    shown = {
        "step": item.step,
        "action": item.plan.action,
        **msgspec.to_builtins(item.plan),
        "needs": item.needs,
        "state": WAITS if held and item.state == "running" else shown_state(state.items, item),
    }
    if item.call:
        shown["call"] = item.call
    if item.state == "done":
        shown["result"] = item.result
    if item.error is not None:
        shown["error"] = item.error.message
    return shown


def problems_of(spec: AgentSpec, reach: TeamReach) -> Iterator[ContractProblem]:
    """Yield what the steps and the result expect and what does not hold; a plan that a model makes is checked then."""
    section = plan_of(spec)
    steps = numbered(section.steps, section.most)
    names: dict[str, Typed] = {f"step_{step.step}": _result_of(step, reach) for step in steps}
    names["inputs"] = inputs_type(spec)
    for index, step in enumerate(steps):
        path = f"spec.plan.steps[{index}]"
        for key, text in _call_problems(step, reach):
            yield ContractProblem(agent=spec.name, path=f"{path}.{key}", text=text)
        for key, written in (("task", step.task), ("details", step.details), ("args", step.args)):
            for template in templates_in(written):
                yield from read_problems(spec, f"{path}.{key}", template, names)
    hook = section.result
    if steps and hook is not None and not section.conclude:
        known: Mapping[str, Typed] = {**names, "result": names[f"step_{steps[-1].step}"]}
        for template in templates_in(hook.arguments if isinstance(hook, ResultCall) else hook):
            yield from read_problems(spec, "spec.plan.result", template, known)


def _result_of(step: PlanStep, reach: TeamReach) -> Typed:
    if step.action in reach.tools:
        return shape_of(reach.tools[step.action].output_schema, f"the output_schema of tool {step.action}")
    return answer_type(reach.agents[step.action]) if step.action in reach.agents else None


def _call_problems(step: PlanStep, reach: TeamReach) -> Iterator[tuple[str, str]]:
    """Keys of a step, and why it cannot be called so."""
    if step.action in reach.tools:
        callee = callee_of(reach.tools[step.action])
        for name, text in argument_problems(callee, step.args):
            yield f"args.{name}", text
        if lacks := missing_arguments(callee, step.args):
            yield "args", f"{callee.who} needs {', '.join(lacks)}: add it"
    elif step.action in reach.agents:
        yield from delegation_problems(reach.agents[step.action], step.args, "args")


def read_plan(content: str) -> list[str | PlanStep]:
    """The steps that a model has written. Raises ReadingError."""
    try:
        return as_steps(read_array(content, "steps"))
    except PlanError as error:
        raise ReadingError(str(error)) from error


def strange_steps(run: Run, steps: Iterable[PlanStep]) -> list[PlanStep]:
    """Return the steps whose actions are neither there nor away."""
    known = {EXECUTE, *run.tools, *run.members, *run.missing}
    return [step for step in steps if step.action not in known]


def check_actions(run: Run, steps: Iterable[PlanStep]) -> None:
    """Raise PlanError for a step that nothing can do, or whose arguments can be seen to be wrong."""
    known = [EXECUTE, *run.tools, *run.members]
    for step in steps:
        if strange_steps(run, [step]):
            raise PlanError(f"Step {step.step}: there is no action {step.action!r}; use one of {', '.join(known)}")
        _check_arguments(run, step)
        # Whether a name that is not there at the moment is a tool's, which needs no task, is unknown.
        if step.action not in {*run.tools, *run.missing} and not step.task.strip():
            raise PlanError(f"Step {step.step} says no task")


def _check_arguments(run: Run, step: PlanStep) -> None:
    """Raise PlanError where what the action takes is known, and no template may become anything."""
    schema = input_schema(run, step.action) if step.action != EXECUTE else None
    if schema is None or check_template(step.args):
        return
    arguments = step.args
    if step.action not in run.tools:
        arguments = as_written(run, step.action, {TASK: step.task, ADDITIONAL: step.args})
    try:
        check_arguments(step.action, schema, arguments)
    except CallNotAllowed as error:
        raise PlanError(f"Step {step.step}: {error}") from error


def plan_schema(run: Run) -> Schema:
    """JSON Schema of a plan that the run's model writes."""
    number = {"type": "integer", "minimum": 1}
    step = {
        "step": number,
        "action": {"type": "string", "enum": [EXECUTE, *run.tools, *run.members]},
        "task": {"type": "string"},
        "args": {"type": "object"},
        "details": {"type": "string"},
        "needs": {"type": "array", "items": number},
    }
    item = {"type": "object", "properties": step, "required": ["step", "action", "task", "needs"]}
    return {
        "type": "object",
        "properties": {"steps": {"type": "array", "items": item}},
        "required": ["steps"],
    }
