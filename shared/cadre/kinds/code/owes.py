"""What a block of code owes the world: the sandbox that runs it, or goes on with it, is asked to."""

from cadre.engine.commands import Command, Send
from cadre.journal.run import Run
from cadre.kinds.code.fold import state_of
from cadre.kinds.code.section import code_of
from cadre.prompting.python_types import named_in_code
from cadre.prompting.tool_text import docstring_of, signature_of
from cadre.protocol.cards import AgentCard
from cadre.protocol.code import BASE_IMPORTS, CodeFunction
from cadre.protocol.messages import CodeCall
from cadre.protocol.topology import code_call_id


def owed_code(run: Run, since: int) -> list[Command]:
    """The call of the block in work, where an entry from `since` on has made it owed."""
    state, task, spec = state_of(run), run.task, run.spec
    work = state.work
    if work is None or not work.since or work.since < since or task is None or spec is None:
        return []
    code = code_of(spec)
    ends = [run.deadline] if run.deadline is not None else []
    if code.limits.wall_seconds is not None and work.started_at is not None:
        ends.append(work.started_at + code.limits.wall_seconds)
    return [
        Send(
            CodeCall(
                id=code_call_id(work.block, len(work.exchanges)),
                tree=run.tree,
                run=run.id,
                at=work.at,
                agent=run.agent,
                pool=code.pool,
                block=work.block,
                code=work.code,
                # A copy: the run may move on before the call is on its way.
                exchanges=list(work.exchanges),
                snapshot=state.snapshot,
                # Later blocks find them in the snapshot, as the code has left them, unless it was lost.
                inputs=task.inputs if state.snapshot in (None, state.inherited_snapshot) else {},
                functions=_functions(run),
                imports=[*BASE_IMPORTS, *code.imports],
                limits=code.limits,
                deadline=min(ends) if ends else None,
                trace=task.trace,
            )
        )
    ]


def _functions(run: Run) -> list[CodeFunction]:
    """Tools and team members as code calls them."""
    return [
        CodeFunction(
            name=name,
            signature=signature_of(card),
            kind="member" if isinstance(card, AgentCard) else "tool",
            doc=docstring_of(card),
        )
        for name, card in named_in_code([*run.tools.values(), *run.members.values()]).items()
    ]
