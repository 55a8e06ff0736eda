"""Models with little room: how much a request takes, and how far the work has come when a summary says of it."""

import random
import re
from functools import cache

import msgspec

from cadre.engine.chat import base_tokens
from cadre.engine.context.context_budget import IMAGE
from cadre.engine.context.text_size import tokens_of
from cadre.engine.kind import to_begin
from cadre.engine.model_request import ModelRequest
from cadre.journal.arrivals import Toolset
from cadre.prompting.prompts import Prompts, kind_for
from cadre.spec.agent import AgentSpec
from cadre.spec.model import ModelSpec

_ANSWER = 100
"""Tokens kept free for each answer."""

_TOLD = re.compile(r"So far (\d+) steps\.|^Step (\d+)", re.MULTILINE)
"""In a model's summary, and in what stands for one when no model writes it."""

_ASSISTANT = re.compile(r"^assistant:$", re.MULTILINE)


@cache
def prompts_of(name: str) -> Prompts:
    """The shipped prompt file of that name."""
    return Prompts.load(name)


def narrowed(spec: AgentSpec, toolset: Toolset, chance: random.Random) -> AgentSpec:
    """With a context that a few steps fill."""
    run = to_begin(spec)
    run.tools, run.members = toolset.tools, toolset.members
    base = base_tokens(run, prompts_of(kind_for(spec)))
    # What was recalled takes an eighth at most, and makes way for nothing.
    room = base + chance.choice((400, 700)) + (base // 6 if spec.memory.recall else 0)
    fields = msgspec.structs.asdict(spec.model) | {"context": room + _ANSWER, "max_tokens": _ANSWER}
    return msgspec.structs.replace(spec, model=ModelSpec(**fields))


def size_of(request: ModelRequest) -> int:
    """Tokens, with what endpoints count around each message."""
    size = tokens_of(msgspec.json.encode(request.tools).decode())
    for message in request.messages:
        content = message.get("content") or ""
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        size += 8 + sum(tokens_of(part["text"]) if part["type"] == "text" else IMAGE for part in parts)
        for call in message.get("tool_calls", []):
            # The arguments are JSON text already: encoded once more they would count their escapes twice.
            size += 8 + tokens_of(f"{call['id']}{call['function']['name']}") + tokens_of(call["function"]["arguments"])
    return size


def steps_told(text: str) -> int:
    """Return how many steps a summary reports, or a text that holds one."""
    return max((int(one or other) for one, other in _TOLD.findall(text)), default=0)


def summary_of(prompt: str, plan: str) -> str:
    """Return what a model writes that is asked to summarize: no more than it needs to go on."""
    steps = len(_ASSISTANT.findall(prompt)) - prompt.count(plan)
    return f"So far {steps_told(prompt) + steps} steps."
