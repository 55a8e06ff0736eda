"""Whether two replicas of an agent are the same: a digest of what they were started from."""

import hashlib
from collections.abc import Iterable

import msgspec

from cadre.prompting.prompt_file import locate
from cadre.prompting.prompts import shipped_for
from cadre.protocol.cards import AgentCard, Presence
from cadre.spec.agent import AgentSpec

_HEX_DIGITS = 12


def revision_of(spec: AgentSpec) -> str:
    """Digest of the spec and of the text of its prompts, wherever their file lies. Raises PromptError."""
    prompts = locate(shipped_for(spec) or str(spec.prompts)).read_bytes()
    fields = msgspec.json.encode(msgspec.structs.replace(spec, prompts=None), order="deterministic")
    digest = hashlib.sha256(hashlib.sha256(fields).digest() + hashlib.sha256(prompts).digest())
    return digest.hexdigest()[:_HEX_DIGITS]


def differing_replicas(card: AgentCard, revision: str, presences: Iterable[Presence]) -> list[Presence]:
    """Replicas of this agent in this version with another revision; those of earlier versions of Cadre have none."""
    return [
        presence
        for presence in presences
        if presence.agent is not None
        and (presence.agent.name, presence.agent.version) == (card.name, card.version)
        and presence.revision not in ("", revision)
    ]
