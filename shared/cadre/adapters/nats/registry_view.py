"""A listener's view of the deployment's replicas: which are live, which are away, and which agents are at rest.

Liveness does not decide what exists. A replica that stops, or falls silent, stays known as away, with the card by which
it was offered, until something lives in its place, it is retired, or its key expires.
"""

from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from cadre.protocol.cards import RETIRED, Presence


class ServiceKey(NamedTuple):
    """A thing that replicas serve: an agent, a tool or a pool; with a revision, an agent as its replicas serve it."""

    kind: str
    """`agent`, `tool` or `sandbox`, as in the keys of the registry."""
    name: str
    revision: str = ""


class RegistryView:
    """The keys of the registry as one listener has heard them. No I/O, no clock."""

    def __init__(self) -> None:
        self.version = 0
        """Goes up whenever something comes, goes or changes its card."""
        self._live: dict[str, tuple[Presence, float]] = {}
        """With the listener's own time at which each was heard."""
        self._away: dict[str, Presence] = {}
        self._at_rest: dict[str, Presence] = {}
        self._retired: dict[ServiceKey, float] = {}

    # --- what is heard

    def hear(self, key: str, presence: Presence, heard: float) -> None:
        """Take a key that was put at this moment of the listener's time."""
        if _instance(key) == RETIRED:
            self._retire(_service(key), presence.started_at)
        elif presence.is_at_rest:
            if self._at_rest.get(key) != presence:
                self._at_rest[key] = presence
                self.version += 1
        elif presence.away_since:
            self._leave(key, presence)
        else:
            before = self._live.get(key)
            self._live[key] = (presence, heard)
            if self._away.pop(key, None) or before is None or before[0] != presence:
                self.version += 1

    def find(self, key: str, presence: Presence, heard: float, *, silent_since: float = 0.0) -> None:
        """Take a key that lay in the bucket. `silent_since` is when it was put (Unix seconds), where that is longer
        ago than a replica that lives is silent."""
        if not silent_since or not presence.is_live or _instance(key) == RETIRED:
            self.hear(key, presence, heard)
        elif key not in self._live:
            self._leave(key, replace(presence, away_since=silent_since))

    def drop(self, key: str) -> None:
        """Forget a key that was removed, or has expired."""
        known = [self._live.pop(key, None), self._away.pop(key, None), self._at_rest.pop(key, None)]
        if any(known):
            self.version += 1
        if _instance(key) == RETIRED:
            self._retired.pop(_service(key), None)

    def forget(self, before: float) -> None:
        """Forget what is away since before then (Unix seconds)."""
        for key in [key for key, presence in self._away.items() if presence.away_since < before]:
            self.drop(key)

    def kept(self) -> set[str]:
        """Return the keys of what is at rest or away: nothing repeats them."""
        return {*self._at_rest, *self._away}

    def refresh(self, heard: float) -> None:
        """Give every live replica its time again: their silence until now says nothing."""
        self._live = {key: (presence, heard) for key, (presence, _) in self._live.items()}

    def leave_silent(self, before: float, offset: float) -> list[str]:
        """Take the live replicas for away that were not heard since `before`; returns their keys. `offset` makes Unix
        seconds of the listener's time."""
        silent = [key for key, (_, heard) in self._live.items() if heard < before]
        for key in silent:
            presence, heard = self._live[key]
            self._leave(key, replace(presence, away_since=heard + offset))
        return silent

    def heard_since(self, moment: float) -> bool:
        """Return whether every live replica was heard since that moment of the listener's time."""
        return all(heard >= moment for _, heard in self._live.values())

    def _leave(self, key: str, presence: Presence) -> None:
        was_live = self._live.pop(key, None)
        if presence.started_at <= self._retired.get(_service(key), 0.0):
            self.version += was_live is not None
        elif self._away.get(key) != presence:
            self._away[key] = presence
            self.version += 1

    def _retire(self, service: ServiceKey, at: float) -> None:
        self._retired[service] = at
        for away, presence in list(self._away.items()):
            if _service(away) == service and presence.started_at <= at:
                del self._away[away]
                self.version += 1

    # --- what is known

    def live(self) -> list[Presence]:
        """Return every live replica."""
        return [presence for presence, _ in self._live.values()]

    def reachable(self) -> list[Presence]:
        """Return every live replica; of what has none the card at rest, else the replicas that are away."""
        found = self.live()
        served = {_service(key) for key in self._live}
        for kept in (self._at_rest, self._away):
            more = {key: presence for key, presence in kept.items() if _service(key) not in served}
            served |= {_service(key) for key in more}
            found += more.values()
        return found

    def absences(self) -> dict[ServiceKey, float | None]:
        """Return since when each known service is away (Unix seconds), also by revision; None for one that is served
        or at rest."""
        since: dict[ServiceKey, float | None] = {}
        for key, presence in self._away.items():
            for one in (_service(key), _service(key)._replace(revision=presence.revision)):
                since[one] = max(since.get(one) or 0.0, presence.away_since)
        since |= dict.fromkeys(map(_service, self._at_rest))
        for key, (presence, _) in self._live.items():
            since[_service(key)] = since[_service(key)._replace(revision=presence.revision)] = None
        return since

    def retired(self) -> dict[ServiceKey, float]:
        """Return when each service was retired (Unix seconds), of those whose marker is there."""
        return dict(self._retired)

    def superseded(self, own: Iterable[str], before: float) -> list[str]:
        """Return the keys of replicas that are away since before (Unix seconds) and that live ones of these keys stand
        in for."""
        mine = {(_service(key), self._live[key][0].revision) for key in own if key in self._live}
        return [
            key
            for key, presence in self._away.items()
            if presence.away_since < before and (_service(key), presence.revision) in mine
        ]


def _service(key: str) -> ServiceKey:
    _, kind, name, _ = key.rsplit(".", 3)
    return ServiceKey(kind, name)


def _instance(key: str) -> str:
    return key.rpartition(".")[2]
