"""Compute the revision of an agent, a digest of what it was started from, and compare its replicas by it."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from cadre.prompting.prompts import Prompts
from cadre.protocol.cards import AgentCard, Presence, ToolCard
from cadre.spec.agent import AgentSpec

_HEX_DIGITS = 12


def revision_of(spec: AgentSpec, prompts: Prompts) -> str:
    """Digest of the spec and of the texts of its prompts, wherever their file lies.

    Tools count by their names: their schemas are those of whoever serves them, journaled with each run's toolset, and
    have a digest of their own (`schemas_of`).
    """
    fields = msgspec.json.encode(msgspec.structs.replace(spec, prompts=None), order="deterministic")
    digest = hashlib.sha256(hashlib.sha256(fields).digest() + hashlib.sha256(prompts.encoded).digest())
    return digest.hexdigest()[:_HEX_DIGITS]


def schemas_of(cards: Mapping[str, ToolCard], names: Iterable[str]) -> str:
    """Digest of what the tools of these names say of themselves to a model and to its agent; empty where none is there.

    Their order does not count.
    """
    there = [cards[name].decisive for name in sorted({*names}) if name in cards]
    if not there:
        return ""
    return hashlib.sha256(msgspec.json.encode(there, order="deterministic")).hexdigest()[:_HEX_DIGITS]


def blob_ref(data: bytes) -> str:
    """The reference that the bytes have once they are stored."""
    return f"blob:{hashlib.sha256(data).hexdigest()}"


def differing_replicas(card: AgentCard, revision: str, presences: Iterable[Presence]) -> list[Presence]:
    """Replicas of this agent in this version with another revision; those of earlier versions of Cadre have none."""
    return [
        presence
        for presence in presences
        if presence.agent is not None
        and (presence.agent.name, presence.agent.version) == (card.name, card.version)
        and presence.revision not in ("", revision)
    ]


def objects_of(presences: Iterable[Presence], agent: str) -> dict[str, str]:
    """Return what the objects of each live revision of the agent are called; empty for the first's, which go before
    others."""
    found: dict[str, str] = {}
    for one in presences:
        if one.agent is not None and one.agent.name == agent and one.revision:
            found[one.revision] = min(one.beside, found.get(one.revision, one.beside))
    return found


def live_revisions(presences: Iterable[Presence], agent: str) -> dict[str, int]:
    """The number of live replicas of each revision of the agent, the one first that has the oldest replica."""
    by_age = sorted(presences, key=lambda one: one.started_at)
    return Counter(
        one.revision for one in by_age if one.agent is not None and one.agent.name == agent and one.revision
    )
