"""Runs that do a part of the work of another run of the same agent."""

import msgspec

from cadre.errors import SpecError
from cadre.journal.arrivals import Arrival
from cadre.journal.run import Phase, Run
from cadre.protocol.messages import Task
from cadre.spec.agent import AgentSpec


def as_part(run: Run, arrival: Arrival) -> Arrival:
    """The arrival of such a run's task, with the spec that holds in the run; any other as it is."""
    task = arrival.what
    if not isinstance(task, Task) or not task.spec or run.phase is not Phase.NEW:
        return arrival
    try:
        spec = msgspec.convert({**msgspec.to_builtins(arrival.spec), **task.spec}, AgentSpec)
    except (SpecError, msgspec.ValidationError) as error:
        return msgspec.structs.replace(arrival, problem=f"the part cannot be begun: {error}")
    return msgspec.structs.replace(arrival, spec=spec)
