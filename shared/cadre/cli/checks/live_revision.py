"""What the live replicas of a revision of an agent were started from, by the gateway."""

import tempfile
from typing import NamedTuple

import msgspec

from cadre.cli.terminal.gateway import Gateway
from cadre.errors import CommandFailed, ExitCode, PromptError, SpecError
from cadre.prompting.prompts import Prompts
from cadre.spec.agent import AgentSpec, decode_spec


class LiveRevision(NamedTuple):
    """An agent as a live revision of it says it."""

    name: str
    spec: AgentSpec
    prompts: str
    """`blob:` reference."""


def live_revision(gateway: Gateway, agent: str, revision: str) -> LiveRevision:
    """The one that begins with these digits. Raises CommandFailed."""
    replicas = [
        replica
        for one in gateway.get("/v1/agents")["agents"]
        if one["name"] == agent
        for replica in one["replicas"]
    ]
    known = {str(one["revision"]): one for one in replicas if one["spec"]}
    named = [one for one in known if one == revision] or [
        one for one in known if revision and one.startswith(revision)
    ]
    if len(named) != 1:
        raise CommandFailed(
            f"{revision!r} is no live revision of {agent} (there is: {', '.join(known) or 'none'}) and no file: start a"
            " replica of it, or name its files",
            ExitCode.NOT_FOUND,
        )
    replica = known[named[0]]
    try:
        spec = decode_spec(_blob(gateway, str(replica["spec"])))
    except (msgspec.DecodeError, SpecError) as error:
        raise CommandFailed(f"the specification of {named[0]} is another version's: {error}") from error
    return LiveRevision(named[0], spec, str(replica["prompts"]))


def prompts_of(gateway: Gateway, revision: LiveRevision) -> Prompts:
    """Its prompts. Raises CommandFailed."""
    try:
        return Prompts.decode(revision.name, _blob(gateway, revision.prompts))
    except PromptError as error:
        raise CommandFailed(f"the prompts of {revision.name} are another version's: {error}") from error


def _blob(gateway: Gateway, ref: str) -> bytes:
    with tempfile.TemporaryFile() as blob:
        gateway.download(f"/v1/blobs/{ref.removeprefix('blob:')}", blob)
        blob.seek(0)
        return blob.read()
