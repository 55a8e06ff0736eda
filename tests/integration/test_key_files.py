"""The key of a service's NATS user: read from its file, renewed while the service runs, reported on where it is
wrong."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cadre.adapters.nats.connection.connect import connect
from cadre.deploy import nats_files
from cadre.errors import NotSetUpYet, SettingError
from cadre.settings import Settings
from harness.patience import patience
from integration.secured_world import Secured, secured


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured(tmp_path_factory.mktemp("secured")) as one:
        yield one


class Listening(logging.Handler):
    """Reports when something was logged that has these words in it."""

    def __init__(self, words: str) -> None:
        super().__init__()
        self._words = words
        self.heard = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if self._words in record.getMessage():
            self.heard.set()


@contextmanager
def renewing(folder: Path) -> Iterator[tuple[Secured, Listening]]:
    """Its own server, and an ear for clients that come back to it."""
    one, ear, log = Secured(folder), Listening("connected to NATS again"), logging.getLogger("cadre.nats")
    one.server.start()
    level = log.level
    log.addHandler(ear)
    log.setLevel(logging.INFO)
    try:
        yield one, ear
    finally:
        log.setLevel(level)
        log.removeHandler(ear)
        one.server.stop()


async def test_a_new_key_ends_what_had_the_old_one_and_is_taken_up(tmp_path: Path) -> None:
    with renewing(tmp_path) as (one, ear):
        stolen = tmp_path / "stolen.nk"
        stolen.write_text(nats_files.key_file(one.auth, "tools-desk").read_text())
        served = await connect(one.settings("tools-desk"), "test")
        one.rotate("tools-desk")
        await asyncio.wait_for(ear.heard.wait(), patience())
        await served.flush()
        settings = Settings(nats_url=one.server.url, nats_credentials=str(stolen), shards=1)
        with pytest.raises(NotSetUpYet, match=rf"{stolen}.*`cadre auth init`"):
            await asyncio.wait_for(connect(settings, "test"), patience())
        await served.close()


async def test_a_key_of_another_user_is_not_taken_up(tmp_path: Path) -> None:
    with renewing(tmp_path) as (one, ear):
        served = await connect(one.settings("tools-desk"), "test")
        other = nats_files.key_file(one.auth, "tools-yard").read_text()
        nats_files.key_file(one.auth, "tools-desk").write_text(other)
        one.server.stop()
        one.server.start()
        await asyncio.wait_for(ear.heard.wait(), patience())
        about = await served.request("$JS.API.CONSUMER.INFO.CADRE-0.tool-look_up", timeout=patience())
        assert about.data, "the server answers at the inbox of this user alone"
        await served.close()


async def test_without_a_key_it_says_what_to_do(world: Secured) -> None:
    with pytest.raises(SettingError, match=r"CADRE_NATS_CREDENTIALS .`cadre auth init`"):
        await asyncio.wait_for(connect(Settings(nats_url=world.server.url), "test"), patience())


async def test_with_a_key_that_the_server_does_not_know(world: Secured, tmp_path: Path) -> None:
    other = Secured(tmp_path)
    key = other.settings("gateway").nats_credentials
    with pytest.raises(NotSetUpYet, match=r"gateway\.nk"):
        await asyncio.wait_for(connect(Settings(nats_url=world.server.url, nats_credentials=key), "test"), patience())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read .No such file"),
        ("", r"\bSU\b"),
        ("# user: gateway\nSUCUTSHORT\n", r"\bSU\b"),
    ],
)
async def test_with_a_file_that_holds_no_key(world: Secured, tmp_path: Path, text: str | None, said: str) -> None:
    file = tmp_path / "key.nk"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SettingError, match=f"{said}.*cadre auth init"):
        await connect(Settings(nats_url=world.server.url, nats_credentials=str(file)), "test")
