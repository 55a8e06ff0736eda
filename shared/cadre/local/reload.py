"""`cadre up --reload`: restarts the services of a team whose files change, starts new ones, stops those that are gone.

A restart is a rolling one: the new process starts while the old one still runs, which is stopped when the new one is
ready. So no run is lost, and a file with an error costs nothing: its process never becomes ready, and the old one goes
on.
"""

import asyncio
import contextlib
from collections.abc import Iterable
from pathlib import Path

from cadre.deploy.team_file import TeamSpec, named_files, read_team
from cadre.errors import CommandFailed, SetupError
from cadre.local.processes import Stack, source_files
from cadre.local.python_team import write_team
from cadre.local.supervise import ManagedProcess, ProcessSpec

_POLL_SECONDS = 0.5
_QUIET_SECONDS = 0.3
"""The quiet time after which changes are taken up: an editor may write several files, one after another."""

_State = dict[Path, tuple[int, int] | None]
"""Modification time in nanoseconds and size of each file; None for one that is not there."""


class Reloader:
    """Watches the files of a stack's team, by looking at their times: that works on every file system."""

    def __init__(self, stack: Stack, team: TeamSpec, module: Path | None = None) -> None:
        """`stack` has not been started: what changes while it starts is a change. `module` is the Python file that the
        files of the team are written from."""
        self._stack = stack
        self._team = team
        self._module = module
        self._script: ManagedProcess | None = None
        self._children: dict[tuple[str, ...], ManagedProcess] = {}
        self._files: dict[tuple[str, ...], set[Path]] = {}
        """The files of each service."""
        self._seen: _State = {}
        """The watched files, as they were when changes were last taken up."""
        self._problem = ""
        """The problem with the team's files."""
        self._note(named_files(team.file), [team.script] if team.script else [], self._sources())
        self._find_files(stack.services())

    async def watch(self) -> None:
        """Apply changes made after this object was created, forever; the stack has started."""
        stack = self._stack
        self._script = next((one for one in stack.children if self._team.script in one.service.files()), None)
        services = {_key(service) for service in stack.services()}
        self._children = {_key(child.service): child for child in stack.children if _key(child.service) in services}
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            if changed := await self._changed():
                await self._take_up(changed)

    async def _changed(self) -> set[Path]:
        """Return the files that have changed since, once nothing changes any more."""
        now = _states(self._seen)
        while now != self._seen:
            await asyncio.sleep(_QUIET_SECONDS)
            later = _states(self._seen)
            if later == now:
                break
            now = later
        before, self._seen = self._seen, now
        return {path for path in now if now[path] != before[path]}

    async def _take_up(self, changed: set[Path]) -> None:
        stack = self._stack
        # Noted before they are read: what changes afterwards is a change.
        self._note(named_files(self._team.file), self._sources())
        try:
            if self._module is not None:
                changed |= await asyncio.to_thread(self._write_again, self._module)
            stack.team = stack.without_left_out(read_team(self._team.file))
            stack.check_packages()
        except (SetupError, CommandFailed) as error:
            # A service whose own file is wrong says so itself, below.
            own = not changed.isdisjoint(path for files in self._files.values() for path in files)
            if not own and self._problem != str(error):
                stack.on_line("team", f"reload: {error}; what runs goes on as it is")
            self._problem = str(error)
        else:
            self._problem = ""
        if self._script is not None and self._team.script in changed:
            await self._restart_script(self._script)
        wanted = {_key(service): service for service in stack.services()}
        new = [service for key, service in wanted.items() if key not in self._children]
        again = [
            service
            for key, service in wanted.items()
            # If a service's files were wrong at every look, any file may be one of them.
            if key in self._children and not changed.isdisjoint(self._files.get(key, changed))
        ]
        self._find_files(wanted.values())
        await asyncio.gather(*map(self._start, [*new, *again]))
        for key in self._children.keys() - wanted.keys():
            child = self._children.pop(key)
            await stack.remove(child)
            stack.on_line(child.service.name, "reload: stopped, it is in the team no more")

    def _sources(self) -> list[Path]:
        return source_files(str(self._module.resolve()), Path.cwd()) if self._module is not None else []

    def _write_again(self, module: Path) -> set[Path]:
        """Write the files of the team again; return those that changed. Raises SpecError."""
        folder = self._team.file.parent
        before = _states(folder.iterdir())
        write_team(module, folder)
        after = _states(folder.iterdir())
        self._seen |= after
        return {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}

    async def _start(self, service: ProcessSpec) -> None:
        """Start the service in the place of the one that runs, if one does."""
        before = self._children.get(_key(service))
        try:
            child = await self._stack.add(service)
        except CommandFailed as failure:
            goes_on = "; the one before goes on" if before is not None else ""
            self._stack.on_line(service.name, f"reload: not started: {failure}{goes_on}")
            return
        self._children[_key(service)] = child
        if before is not None:
            await self._stack.remove(before)
        self._stack.on_line(service.name, "reload: started" if before is None else "reload: restarted")

    async def _restart_script(self, child: ManagedProcess) -> None:
        """Restart the scripted model at its own port, when its script holds on another one."""
        try:
            await self._stack.remove(await self._stack.add(self._stack.trial_of_script()))
        except CommandFailed as failure:
            self._stack.on_line(child.service.name, f"reload: {failure}; the script before goes on")
            return
        child.restart()
        self._stack.on_line(child.service.name, "reload: restarted")

    def _find_files(self, services: Iterable[ProcessSpec]) -> None:
        """Find out which files each service consists of by now; of one whose files are wrong, those it had."""
        for service in services:
            with contextlib.suppress(SetupError):
                self._files[_key(service)] = {path.resolve() for path in service.files()}
        self._note(*self._files.values())

    def _note(self, *files: Iterable[Path]) -> None:
        """Watch these files as well, from now on."""
        self._seen = _states(path for some in files for path in some) | self._seen


def _key(service: ProcessSpec) -> tuple[str, ...]:
    return tuple(service.argv)


def _states(files: Iterable[Path]) -> _State:
    found: _State = {}
    for file in files:
        try:
            about = file.stat()
            found[file] = (about.st_mtime_ns, about.st_size)
        except OSError:
            found[file] = None
    return found
