"""The sandbox: finds the best isolation that the kernel gives, keeps a few interpreters ready, opens sessions."""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from cadre_sandbox.interpreters.contract import TIERS, BlockLimits, Python, SandboxError, Tier
from cadre_sandbox.interpreters.process import DiedAtStart, InterpreterProcess, ProcessPlan, TierRefused
from cadre_sandbox.interpreters.scratch import remove_abandoned
from cadre_sandbox.interpreters.session import InterpreterSession
from cadre_sandbox.interpreters.zygote import ZygoteProcess
from cadre_sandbox.wire.frames import MACHINE, MACHINES

log = logging.getLogger("cadre.sandbox")

NOBODY_UID = 65_534


class Sandbox:
    """Interpreters in the best isolation that the kernel gives.

    Args:
        minimum: the tier below which no code is run.
        best: the tier to begin with; below `ns` for tests, and where a kernel's namespaces are not to be trusted.
        pool: interpreters kept ready; each costs a few megabytes.
        most: limits that no request exceeds.
        python: the interpreter of the code.
    """

    def __init__(
        self,
        *,
        minimum: Tier = "landlock",
        best: Tier = "ns",
        pool: int = 2,
        most: BlockLimits | None = None,
        python: Python | None = None,
    ) -> None:
        self._tiers = TIERS[TIERS.index(best) : TIERS.index(minimum) + 1]
        self._size = pool
        self._most = most or BlockLimits()
        self._python = python or Python()
        self._zygote: ZygoteProcess | None = None
        self._plan: ProcessPlan | None = None
        self._ready: deque[InterpreterProcess] = deque()
        self._processes: set[InterpreterProcess] = set()
        self._filling: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()

    @property
    def tier(self) -> Tier:
        """The tier that was reached. Raises SandboxError before the start."""
        if self._plan is None:
            raise SandboxError("the sandbox is not started")
        return self._plan.tier

    @property
    def python(self) -> str:
        """Version of the code's Python, once started; a snapshot is read by the same minor version only."""
        return self._zygote.python if self._zygote else ""

    def lacks(self, imports: Sequence[str]) -> list[str]:
        """Return the modules, or the packages that they are in, that the code's Python lacks, once started."""
        installed = self._zygote.modules if self._zygote else None
        wanted = dict.fromkeys(name.partition(".")[0] for name in imports if name != "*")
        return [] if installed is None else [name for name in wanted if name not in installed]

    @property
    def zygote_pid(self) -> int | None:
        """Pid of the process that forks the interpreters; None before the start."""
        return self._zygote.pid if self._zygote else None

    async def start(self) -> None:
        """Find the best tier and make the first interpreters ready.

        Raises SandboxError, which says what each tier lacked, when none is good enough.
        """
        if MACHINE not in MACHINES:
            raise SandboxError(f"code runs on {' and '.join(MACHINES)} only, this is {MACHINE}")
        zygote = await self._living_zygote()
        lacks = []
        for tier in self._tiers:
            plan = ProcessPlan(tier, self._most, NOBODY_UID if self._python.uid is None else self._python.uid)
            try:
                self._ready.append(await _first_process(zygote, plan))
            except TierRefused as refused:
                lacks.append(f"{tier}: {refused}")
            else:
                self._plan = plan
                if tier == "landlock":
                    await asyncio.to_thread(remove_abandoned, plan.uid)
                self._fill()
                return
        await self.close()
        raise SandboxError(
            f"code is refused: no isolation of tier {self._tiers[-1]} is available here ({'; '.join(lacks)})"
        )

    async def open(self) -> InterpreterSession:
        """Return a session in a fresh interpreter, at once when one is ready. Raises SandboxError."""
        while self._ready:
            process = self._ready.popleft()
            if process.alive:
                break
            await process.close()
        else:
            process = await self._new_process()
        self._fill()
        self._processes = {process, *(other for other in self._processes if not other.closed)}
        return InterpreterSession(process, self._most)

    async def _new_process(self) -> InterpreterProcess:
        if self._plan is None:
            raise SandboxError("the sandbox is not started")
        try:
            return await InterpreterProcess.open(await self._living_zygote(), self._plan)
        except TierRefused as refused:
            raise SandboxError(f"no interpreter of tier {self._plan.tier}: {refused}") from None

    async def _living_zygote(self) -> ZygoteProcess:
        async with self._starting:
            if self._zygote and not self._zygote.alive:
                await self._zygote.close()
                self._zygote = None
            if self._zygote is None:
                self._zygote = await ZygoteProcess.start(self._python)
            return self._zygote

    def _fill(self) -> None:
        if len(self._ready) < self._size and (self._filling is None or self._filling.done()):
            self._filling = asyncio.create_task(self._refill())

    async def _refill(self) -> None:
        """Make interpreters ready; give up at the first failure, which `open` meets again and can report."""
        try:
            while len(self._ready) < self._size:
                self._ready.append(await self._new_process())
        except SandboxError:
            return

    async def filled(self) -> None:
        """Wait until as many interpreters are ready as there shall be, or no more can be had."""
        if self._filling:
            await asyncio.gather(self._filling, return_exceptions=True)

    async def close(self) -> None:
        """End every interpreter, those of open sessions too."""
        if self._filling:
            self._filling.cancel()
            await asyncio.gather(self._filling, return_exceptions=True)
        while self._ready:
            await self._ready.popleft().close()
        for process in self._processes:
            await process.close()
        if self._zygote:
            await self._zygote.close()
            self._zygote = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def _first_process(zygote: ZygoteProcess, plan: ProcessPlan) -> InterpreterProcess:
    """Return the first interpreter of a tier. Raises TierRefused, SandboxError.

    A process that dies is tried once more: one accidental death must not cost all later ones their tier.
    """
    try:
        return await InterpreterProcess.open(zygote, plan)
    except DiedAtStart as died:
        log.warning("tier %s: %s; tried once more", plan.tier, died)
        return await InterpreterProcess.open(zygote, plan)
