"""Declare the kind `remote` and its records: what the remote agent has said of its task."""

from functools import partial
from typing import Any

from cadre.errors import SpecError
from cadre.journal.parts import Description, JournalEvent, KindState, PieceOfWork
from cadre.protocol.messages import ErrorInfo, RunState
from cadre.protocol.usage import Usage
from cadre.spec.kinds import Document, Facts, KindDeclaration
from cadre.spec.names import check_bounds
from cadre.spec.remote_agent import DOCUMENT, RemoteSpec, agent_document

KIND = "remote"


class RemoteSection(RemoteSpec, frozen=True, kw_only=True, tag=KIND, omit_defaults=True):
    """The section `remote` of an agent's file."""


class RemoteUpdated(JournalEvent, frozen=True, tag="remote.updated"):
    """The remote agent's task is in another state, or says something new."""

    state: str
    task: str = ""
    context: str = ""
    text: str = ""
    status_id: str = ""

    def describe(self) -> Description:
        text = f": {self.text}" if self.text else ""
        line = f"remote task {self.task} is {self.state.replace('_', ' ')}{text}"
        return Description("waiting for the remote agent", [line])


class RemoteProgressed(JournalEvent, frozen=True, tag="remote.progressed", omit_defaults=True):
    """The remote agent has done and used this since it was last asked."""

    activity: list[dict[str, Any]] = []
    """Each with a `type`: `tool`, `message`, `thought` or `plan`."""
    usage: Usage = Usage()
    cursor: str = ""
    """The place at which the next of it begins."""

    def describe(self) -> Description:
        lines = [_line_of(one) for one in self.activity]
        work = [_work_of(one) for one in self.activity if one.get("type") == "tool"]
        return Description("waiting for the remote agent", lines, work, used=self.usage)


def _work_of(one: dict[str, Any]) -> PieceOfWork:
    failed = one.get("status") == "failed"
    return PieceOfWork(
        str(one.get("id")),
        str(one.get("sort") or "other"),
        "failed" if failed else "ok" if one.get("ended") else "open",
        str(one.get("title") or ""),
        one.get("text"),
        began_at=float(one.get("began") or 0.0),
        ended_at=float(one.get("ended") or 0.0),
        key=KIND,
    )


def _line_of(one: dict[str, Any]) -> str:
    match one.get("type"):
        case "tool":
            return f"  {one.get('title') or one.get('id')}: {str(one.get('status')).replace('_', ' ')}"
        case "plan":
            steps = [f"{step.get('content')} ({step.get('status')})" for step in one.get("entries") or []]
            return f"  plan: {'; '.join(steps)}"
        case kind:
            return f"  {'thinks' if kind == 'thought' else 'says'}: {one.get('text')}"


class RemoteUnreachable(JournalEvent, frozen=True, tag="remote.unreachable"):
    """The remote agent does not answer; it is asked again."""

    reason: str

    def describe(self) -> Description:
        return Description(
            "waiting until the remote agent is there", [f"the remote agent is out of reach: {self.reason}"]
        )


class RemoteCancelRequested(JournalEvent, frozen=True, tag="remote.cancel_requested"):
    """The run will end with this state; the remote agent is asked to cancel its task first."""

    state: RunState
    error: ErrorInfo

    def describe(self) -> Description:
        return Description("ending the remote task", ["the remote agent is asked to end its task"])


class RemoteState(KindState, kw_only=True, tag=KIND, omit_defaults=True):
    """The state of a run: what is known of its task."""

    task: str = ""
    context: str = ""
    state: str = ""
    """The state of the task, as the remote agent last said."""
    text: str = ""
    status_id: str = ""
    """The last status, as the remote agent identifies it."""
    answered: str = ""
    """The status of the last question that was answered."""
    unsent: dict[str, Any] = {}
    """The arguments of a message that may not have reached the remote agent: it is sent again as it was."""
    waits: int = 0
    quiet: int = 0
    """Waits since something was new."""
    unreachable_since: float = 0.0
    """Since when the remote agent is out of reach; 0 when it is not."""
    ending: RemoteCancelRequested | None = None
    cursor: str = ""
    used: Usage = Usage()
    """The task's usage until now."""


def remote_of(spec: Any) -> RemoteSection:
    """The section of an agent's spec."""
    return spec.section(RemoteSection) or RemoteSection()


def check(spec: Any) -> None:
    """Raise SpecError for a section that cannot hold."""
    section = remote_of(spec)
    bounds = (("remote.poll", section.poll, 1.0), ("remote.absence", section.absence, 0.0))
    check_bounds(spec.name, bounds)
    ways = (bool(section.card), bool(section.url), section.program is not None, section.nats is not None)
    if ways.count(True) > 1:
        raise SpecError("give either a card, a url, a program or an agent on NATS", key="remote", agent=spec.name)


DECLARATION = KindDeclaration(
    name=KIND,
    behavior={1: "cadre.kinds.remote.kind:REMOTE"},
    records=(
        *(RemoteUpdated, RemoteProgressed, RemoteUnreachable, RemoteCancelRequested),
        *(RemoteState, RemoteSection),
    ),
    # It asks no model: its prompts are those of every agent without its own.
    facts=lambda spec: Facts(
        spec.kind,
        asks_model=False,
        prompt_file="tool_calling",
        writes_calls=False,
        tools="cadre.adapters.remote_agents:tools_of",
        plans_tools=True,
    ),
    check=check,
    document=Document(DOCUMENT, partial(agent_document, KIND)),
)
