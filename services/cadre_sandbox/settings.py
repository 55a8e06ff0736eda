"""What one sandbox process is: the variables `CADRE_SANDBOX_…`."""

from typing import Annotated

import msgspec
from msgspec import Meta

from cadre.errors import SettingError
from cadre.settings import NAME, read
from cadre_sandbox.interpreters.contract import Tier


class SandboxSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What one `cadre sandbox` is: each field is set by `CADRE_SANDBOX_<FIELD>`."""

    pool: str = "default"
    """Whose code it runs: that of agents which name this pool."""
    tier: Tier = "landlock"
    """The least isolation; below it no code is run."""
    sessions: Annotated[int, Meta(ge=1)] = 32
    """Interpreters at once, those at work and those kept warm between the steps of a run."""
    concurrency: Annotated[int, Meta(ge=0)] = 0
    """Blocks of code at work at once; 0: two per processor."""
    ready: Annotated[int, Meta(ge=0)] = 2
    """Fresh interpreters that wait for their run."""
    idle_seconds: Annotated[float, Meta(ge=0)] = 600.0
    """How long an interpreter is kept for a run that does not come back."""
    seconds: Annotated[float, Meta(ge=0.1)] = 300.0
    """The most that any block may compute, whatever its agent asks for."""
    memory_mb: Annotated[int, Meta(ge=16)] = 2048
    """The most that any interpreter may have, whatever its agent asks for."""
    modules: str = ""
    """Imported once for all interpreters, separated by commas: numpy,pandas."""
    python: str = ""
    """The Python that runs the code, with the packages that code may import; empty: this one."""

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.pool):
            raise SettingError(
                f"CADRE_SANDBOX_POOL={self.pool!r}: use 1 to 64 letters, digits, '_' and '-'"
                " (it becomes part of NATS subjects)"
            )


def read_sandbox_settings(**options: object) -> SandboxSettings:
    """Read the settings as `cadre.settings.read` does. Raises SettingError."""
    return read(SandboxSettings, "CADRE_SANDBOX_", **options)
