"""Push notifications of A2A: the addresses of a task, and the body that they are sent."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import msgspec

from cadre.automation.push import PushTarget
from cadre.errors import SpecError
from cadre_gateway.access.makers import maker_of
from cadre_gateway.access.principal import Principal
from cadre_gateway.automation.pushes import PushNotifications
from cadre_gateway.doors.a2a.request import PushConfig
from cadre_gateway.doors.a2a.task_object import Json, task_object
from cadre_gateway.doors.following import Answers
from cadre_gateway.doors.progress import Place
from cadre_gateway.requests.problems import Problem, invalid


@dataclass(frozen=True)
class TaskWatch:
    """Every method raises Problem, RetryableError."""

    pushes: PushNotifications
    answers: Answers

    async def body(self, run: str) -> bytes:
        """What an address is sent: the task as it is now, an event of a stream."""
        progress = await self.answers.so_far(Place(run))
        if progress.task is None:
            raise Problem(404, "unknown-run", f"there is no task {run!r} (any more)")
        return msgspec.json.encode({"task": task_object(progress, progress.task, 0)})

    async def put(self, run: str, wanted: PushConfig, caller: Principal) -> Json:
        """Keeps an address of a task; it is told at once of what has happened already."""
        target = msgspec.structs.replace(_target_of(wanted), maker=maker_of(caller))
        await self.pushes.put(run, target)
        progress = await self.answers.so_far(Place(run))
        if progress.end is not None:
            await self.pushes.tell(run, [f"{run}:finished"], target.id)
        else:
            await self.pushes.tell(run, [f"{call}:approval" for call in progress.questions], target.id)
        return _shown(run, target)

    async def get(self, run: str, name: str) -> Json:
        """One address."""
        for one in await self.pushes.all(run):
            if one.id == name:
                return _shown(run, one)
        raise Problem(404, "unknown-run", f"task {run} has no push notification {name!r}")

    async def list(self, run: str) -> Json:
        """All addresses of a task."""
        return {"configs": [_shown(run, one) for one in await self.pushes.all(run)], "nextPageToken": ""}

    async def remove(self, run: str, name: str) -> Json:
        """Forgets an address."""
        await self.pushes.remove(run, name)
        return {}


def _target_of(wanted: PushConfig) -> PushTarget:
    """The checked address; without an id it has one that follows from what it says. Raises a 422 problem."""
    said = hashlib.sha256(msgspec.json.encode([wanted.url, wanted.token])).hexdigest()
    about = wanted.authentication
    try:
        return PushTarget(
            id=wanted.id or f"push-{said[:16]}",
            url=wanted.url,
            token=wanted.token,
            scheme=about.scheme if about is not None else "",
            credentials=about.credentials if about is not None else "",
        )
    except SpecError as error:
        raise invalid(f"taskPushNotificationConfig: {error}") from error


def _shown(run: str, target: PushTarget) -> Json:
    """The address without its credentials, which only its receiver is told."""
    found: Json = {"taskId": run, "id": target.id, "url": target.url}
    found |= {"token": target.token} if target.token else {}
    return found | ({"authentication": {"scheme": target.scheme}} if target.scheme else {})
