"""The files that `cadre up` leaves in its data folder for the other commands: addresses, process ids, logs."""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

import msgspec

from cadre.errors import CommandFailed
from cadre.settings import (
    ModelSettings,
    Settings,
    prefer_nats,
    preferred_nats,
    read_model_settings,
    read_secret,
)
from cadre.spec.names import TEAM_FILE

SCRIPTED_NAME = "scripted"
"""Name of the model that the scripted model plays."""


class StackState(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `up.json`."""

    gateway: str
    nats: str
    pids: dict[str, int]
    sync: str = ""
    """CADRE_NATS_SYNC of its NATS server."""
    model: str = ""
    """URL of its scripted model; empty when it has none."""


class Ports(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `ports.json`: the ports of a folder's last stack, which the next one takes again; 0: none yet.

    A process that was started next to a stack and outlives it finds the next stack at the same ports.
    """

    gateway: int = 0
    nats: int = 0
    model: int = 0


def own_data() -> Path:
    """Data folder of a `cadre up` in this folder that names none."""
    return Path(".cadre")


def default_data() -> Path:
    """Data folder of this folder's stack, else of the nearest folder above that has one, as git finds its own; this
    folder's where none has."""
    own = own_data()
    if _is_used(own):
        return own
    above = (folder / own for folder in Path.cwd().parents)
    return next((data for data in above if _is_used(data)), own)


def _is_used(data: Path) -> bool:
    return has_stack(data) or _is_locked(data / "up.lock")


def logs_folder(data: Path) -> Path:
    """Folder of the services' log files."""
    return data / "logs"


def index_url(data: Path) -> str:
    """Return where the gateway keeps its index of runs: in the data folder, unless CADRE_INDEX_URL says where."""
    return read_secret("CADRE_INDEX_URL") or (data / "index.db").absolute().as_uri().replace("file:", "sqlite:", 1)


def read_state(data: Path) -> StackState | None:
    """Return the stack that runs on this data folder; None when none does."""
    try:
        running = msgspec.json.decode((data / "up.json").read_bytes(), type=StackState)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise CommandFailed(f"{data / 'up.json'} cannot be read ({error}): remove it") from error
    # A stack that was killed leaves its file behind, but not its lock.
    return running if _is_locked(data / "up.lock") else None


def is_starting(data: Path) -> bool:
    """Return whether a `cadre up` works on this data folder and has not said yet where its services are."""
    return not (data / "up.json").exists() and _is_locked(data / "up.lock")


def has_stack(data: Path) -> bool:
    """Return whether a `cadre up` belongs to this folder: it has run on this data folder, or there is a team for it."""
    return (data / "ports.json").exists() or (data.parent / TEAM_FILE).is_file()


def find_nats() -> None:
    """Make the NATS server of the `cadre up` of this folder the default for a service that is started next to it."""
    if (running := read_state(default_data())) is not None:
        prefer_nats(running.nats)


def nats_now(settings: Settings) -> str:
    """Return where to connect to now: the settings' server, or that of the `cadre up` that runs in this folder by now.

    The latter applies when neither the environment nor an option of the command names a server.
    """
    if settings.nats_url != preferred_nats():
        return settings.nats_url
    running = _running_stack()
    return running.nats if running is not None else settings.nats_url


def model_settings() -> ModelSettings:
    """Return the model endpoint of the environment, or else the scripted model of the `cadre up` of this folder.

    Raises SettingError.
    """
    given = read_model_settings()
    if given.url or (running := _running_stack()) is None or not running.model:
        return given
    return ModelSettings(url=running.model, name=given.name or SCRIPTED_NAME)


def _running_stack() -> StackState | None:
    """Return `read_state` of this folder; None also for a file that cannot be read."""
    try:
        return read_state(default_data())
    except CommandFailed:
        return None


def write_state(data: Path, running: StackState) -> None:
    """Replace `up.json` in one move, so that no reader sees half of it."""
    _write(data / "up.json", running)


def read_ports(data: Path) -> Ports:
    """Return the ports of this folder's last stack, as far as they are known."""
    try:
        return msgspec.json.decode((data / "ports.json").read_bytes(), type=Ports)
    except (OSError, msgspec.DecodeError):
        return Ports()


def write_ports(data: Path, ports: Ports) -> None:
    """Keep the ports for this folder's next stack."""
    _write(data / "ports.json", ports)


def _write(file: Path, content: msgspec.Struct) -> None:
    fresh = file.with_suffix(".json.new")
    fresh.write_bytes(msgspec.json.format(msgspec.json.encode(content)) + b"\n")
    fresh.replace(file)


@contextlib.contextmanager
def locked(data: Path) -> Iterator[None]:
    """Hold the data folder for this process; the kernel releases it however the process ends.

    Raises CommandFailed when another `cadre up` holds it or when it cannot be written.
    """
    try:
        logs_folder(data).mkdir(parents=True, exist_ok=True)
        lock = (data / "up.lock").open("a+")
    except OSError as error:
        raise CommandFailed(
            f"{data}: cannot be used as data folder: {error.strerror}; choose another with --data"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CommandFailed(
                f"another `cadre up` is using {data.resolve()}: stop it, or choose another folder with --data"
            ) from error
        try:
            yield
        finally:
            (data / "up.json").unlink(missing_ok=True)


def _is_locked(path: Path) -> bool:
    try:
        with path.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
