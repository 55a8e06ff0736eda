"""The sources of kept runs and their specifications: the files that `cadre runs export` writes, and the live replicas
of a revision."""

import gzip
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from cadre.cli.terminal.gateway import Gateway
from cadre.delivery.codec import decode
from cadre.deploy.team_file import read_team
from cadre.errors import CommandFailed, ExitCode, PromptError, SpecError, UnreadableMessage
from cadre.journal.entry import Entry
from cadre.journal.events import RunAccepted
from cadre.local.team_check import read_tool_cards
from cadre.loop.rebase import CannotRebase, TeamFiles, rebase
from cadre.loop.redecide import Divergence, Journaled, Undecided, redecide
from cadre.loop.tool_changes import ToolChange, tool_changes
from cadre.prompting.prompts import Prompts
from cadre.spec.agent import AgentSpec, decode_spec
from cadre.spec.agent_file import read_agent

_VERSION = 1
"""The newest version of the format that is read here."""


class ExportedFile(msgspec.Struct):
    """A file of the run's workspace."""

    path: str
    ref: str | None = None
    by: str = ""


class ExportLine(msgspec.Struct):
    """A line of an exported run, as far as it matters here."""

    line: str = ""
    """The kind of its content: `entry`, `blob`, `file`, `end`, or something else."""
    seq: int = 0
    entry: msgspec.Raw = msgspec.Raw(b"null")
    ref: str = ""
    data: bytes = b""
    """A part of the blob `ref`."""
    file: ExportedFile | None = None
    format: str = ""
    v: int = 1
    """Version of the format, in the first line."""
    entries: int = 0
    """In the first line: how many there are."""
    tree: str = ""
    """In the first line, and set in all others."""


class ExportedTree(NamedTuple):
    """An exported run with those below it."""

    id: str
    journals: dict[str, list[Journaled]]
    """Each run's entries, by its id, in their order."""
    blobs: dict[str, bytes]
    """Contents by their `blob:` references."""
    files: list[ExportedFile]
    """The files of the workspace, as they are in the end."""


def exported_files(paths: Iterable[Path]) -> list[Path]:
    """Return the exported runs among the paths, which may be folders of such. Raises CommandFailed if none is found."""
    files = [file for path in paths for file in (_files_in(path) if path.is_dir() else [path])]
    if not files:
        raise CommandFailed("no exported run there: `cadre runs export RUN -o FILE.cadre` writes one", ExitCode.USAGE)
    return files


def _files_in(folder: Path) -> list[Path]:
    """A team's folder may have its data folder in it, `.cadre`."""
    return sorted(path for path in folder.glob("*.cadre") if path.is_file())


def exported_lines(file: Path) -> Iterator[ExportLine]:
    """Yield the lines, entries in the order of their stream. Raises CommandFailed for a file that is no whole
    export."""
    tree, last = "", ""
    try:
        with gzip.open(file) as stream:
            for number, text in enumerate(stream):
                line = msgspec.json.decode(text, type=ExportLine)
                if number == 0:
                    _check_header(file, line)
                line.tree = tree = tree or line.tree
                last = line.line
                yield line
    except (OSError, EOFError, zlib.error, msgspec.DecodeError) as error:
        raise CommandFailed(f"{file} cannot be read: {error}", ExitCode.USAGE) from error
    if last != "end":
        raise CommandFailed(f"{file} was cut off: export the run again", ExitCode.USAGE)


def _check_header(file: Path, header: ExportLine) -> None:
    if header.format != "cadre-run":
        raise CommandFailed(f"{file} was not written by `cadre runs export`", ExitCode.USAGE)
    if header.v > _VERSION:
        raise CommandFailed(
            f"{file} is of version {header.v}, newer than version {_VERSION}, the newest that this Cadre reads: upgrade"
            " it",
            ExitCode.USAGE,
        )


def read_exported_run(file: Path) -> ExportedTree:
    """Return what is in the file. Raise CommandFailed for a file that is not a whole export."""
    tree = ExportedTree("", {}, {}, [])
    said = 0
    for line in exported_lines(file):
        tree = tree._replace(id=line.tree)
        said = said or line.entries
        if line.line == "blob":
            tree.blobs[line.ref] = tree.blobs.get(line.ref, b"") + line.data
        elif line.file is not None:
            tree.files.append(line.file)
        elif line.line == "entry":
            try:
                entry: Entry = decode(bytes(line.entry), Entry)
            except UnreadableMessage as error:
                raise CommandFailed(f"{file} cannot be read: {error}", ExitCode.USAGE) from error
            tree.journals.setdefault(entry.run, []).append(Journaled(line.seq, entry))
    found = sum(map(len, tree.journals.values()))
    if found != said:
        raise CommandFailed(
            f"{file} was changed: {found} entries are in it, of {said}: export the run again", ExitCode.USAGE
        )
    if tree.id not in tree.journals:
        raise CommandFailed(
            f"{file} was changed: nothing of run {tree.id!r} itself is in it: export the run again",
            ExitCode.USAGE,
        )
    return tree


class ReplayedRun(msgspec.Struct, kw_only=True):
    """An exported run and the runs below it, as the files of a team decide them."""

    file: str
    """The file in which it was kept; empty for one that was read from its deployment."""
    id: str
    agent: str
    revision: str = ""
    """The one that the run began with."""
    agents: list[str] = []
    """Those that took part: its own, and those of the runs below it."""
    entries: int = 0
    """The number of entries decided again: those of each run up to its first different decision."""
    divergences: list[Divergence] = []
    """The first other decision of each run that has one."""
    undecided: list[Undecided] = []
    """The cases on which the files say nothing; such a run fails only if nothing else of its tree was decided."""
    tools: list[ToolChange] = []
    """Of each run the tools that are not offered as they were then."""
    problem: str = ""
    """The reason why the file could not be read."""

    @property
    def is_as_it_was(self) -> bool:
        """Return whether every decision that could be made is the journaled one, and one could be made."""
        return not self.divergences and self.entries > 0


def team_files(path: Path) -> TeamFiles:
    """Raise SpecError, CommandFailed."""
    team = read_team(path)
    modules = read_tool_cards(team.tools)
    for module in modules:
        if module.problem:
            raise CommandFailed(f"{team.file}: spec.tools: {module.problem}", ExitCode.USAGE)
    agents = {name: read_agent(file) for name, file in team.agents.items()}
    return TeamFiles(agents, [card for module in modules for card in module.cards])


def replayed(file: Path, team: TeamFiles) -> ReplayedRun:
    """Return what they make of it. Raise CommandFailed."""
    tree, journals = read_exported_run(file)[:2]
    rebased: list[list[Journaled]] = []
    undecided: list[Undecided] = []
    tools: list[ToolChange] = []
    for run, journal in journals.items():
        try:
            rebased.append(rebase(journal, team))
            tools += tool_changes(journal, team)
        except CannotRebase as why:
            undecided.append(Undecided(run, 1, str(why)))
    replay = redecide(rebased, decisions_only=True)
    first = journals[tree][0].entry
    begun = [event for event in first.events if isinstance(event, RunAccepted)]
    return ReplayedRun(
        file=str(file),
        id=tree,
        agent=first.agent,
        revision=begun[0].revision if begun else "",
        agents=[*dict.fromkeys(journal[0].entry.agent for journal in journals.values())],
        entries=replay.decided,
        divergences=replay.divergences,
        undecided=undecided + replay.undecided,
        tools=tools,
    )


def lines_of(found: ReplayedRun) -> Iterator[str]:
    """Yield the account in full."""
    if found.problem:
        yield f"{found.file}: NOT READ\n    {found.problem}"
        return
    verdict = "as before" if found.is_as_it_was else "OTHERWISE" if found.divergences else "NOT DECIDED"
    yield f"{found.file or found.id}: {found.agent}, {found.entries} entries: {verdict}"
    for one in found.divergences:
        yield f"    {one.run} entry {one.n}"
        yield from (f"        {line}" for line in one.lines)
    for left in found.undecided:
        yield f"    {left.run} entry {left.n} not decided: {left.reason}"


class LiveRevision(NamedTuple):
    """An agent as a live revision of it says it."""

    name: str
    spec: AgentSpec
    prompts: str
    """`blob:` reference."""


def live_revision(gateway: Gateway, agent: str, revision: str) -> LiveRevision:
    """Return the one that begins with these digits. Raises CommandFailed."""
    replicas = [
        replica for one in gateway.get("/v1/agents")["agents"] if one["name"] == agent for replica in one["replicas"]
    ]
    known = {str(one["revision"]): one for one in replicas if one["spec"]}
    named = [one for one in known if one == revision] or [one for one in known if revision and one.startswith(revision)]
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
    """Return its prompts. Raises CommandFailed."""
    try:
        return Prompts.decode(revision.name, _blob(gateway, revision.prompts))
    except PromptError as error:
        raise CommandFailed(f"the prompts of {revision.name} are another version's: {error}") from error


def _blob(gateway: Gateway, ref: str) -> bytes:
    with tempfile.TemporaryFile() as blob:
        gateway.download(f"/v1/blobs/{ref.removeprefix('blob:')}", blob)
        blob.seek(0)
        return blob.read()
