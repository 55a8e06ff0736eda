"""What the model of an agent with a plan is asked: for a plan, for another one, for the answer from all results."""

from cadre.engine.answers.answer_form import last_answer_form
from cadre.engine.calls.call_schema import Schema
from cadre.engine.chat import as_text
from cadre.engine.context.context_budget import known_room
from cadre.engine.context.observation import observation_of
from cadre.engine.context.tokens import fit
from cadre.engine.kind import Chat
from cadre.engine.model_choice import asked_model
from cadre.engine.model_request import ModelRequest
from cadre.journal.run import Run
from cadre.journal.steps import MessageStep, RecalledStep
from cadre.kinds.plan.fold import state_of
from cadre.kinds.plan.offered import plan_schema
from cadre.kinds.plan.section import plan_of, prompt_terms
from cadre.kinds.plan.values import objective_of, told_items


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
        text = chat.rendered(
            "plan.conclude", steps=told_items(run, state.items), output_schema=told_form, **shown
        )
        schema = last_answer_form(run)
    # What an endpoint refused, or a model could not keep to, is asked for by the prompt alone.
    is_held = asked_model(run).calls != "text" and not state.tries
    asked = as_text([*chat.earlier(run), {"role": "user", "content": text}])
    messages = [{"role": "system", "content": frame}, *asked]
    return ModelRequest(messages=messages, schema=schema if is_held else None)
