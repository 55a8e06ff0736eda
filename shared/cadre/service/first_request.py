"""How much the first request of an agent's runs takes at the very least: no manager begins it with a smaller budget."""

import msgspec

from cadre.engine.budget import least_tokens
from cadre.engine.chat import Transcript
from cadre.journal.arrivals import Arrival, Offer
from cadre.journal.events import ModelCalled
from cadre.journal.run import Run
from cadre.loop.decide import decide
from cadre.prompting.prompts import Prompts
from cadre.protocol.messages import Task
from cadre.spec.agent import AgentSpec, MemorySpec


def prompt_tokens(spec: AgentSpec, prompts: Prompts) -> int:
    """Tokens of the first request, less its task and whatever it is offered; 0 for an agent that begins otherwise than
    by asking its model."""
    spec = msgspec.structs.replace(spec, memory=MemorySpec())
    run = Run(id="first", tree="first")
    task = Task(id="first:task", tree=run.tree, run=run.id, at=0.0, agent=spec.name, task="")
    arrival = Arrival(what=task, at=0.0, cause=task.id, offer=Offer(), spec=spec)
    called = decide(run, arrival, task.id)[-1]
    if not isinstance(called, ModelCalled):
        return 0
    request = Transcript(prompts).request(run, called.purpose)
    texts = [message["content"] for message in request.messages]
    return sum(least_tokens(text) for text in texts if isinstance(text, str))
