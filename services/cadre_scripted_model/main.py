"""The command `scripted-model`: reads its options, says what it is, serves."""

import logging
import signal
import socket
import sys
from pathlib import Path

import click
import uvicorn

from cadre.errors import SettingError
from cadre.settings import read_secret
from cadre.telemetry.logs import log_all_output
from cadre_scripted_model import MODEL_ID
from cadre_scripted_model.app import ReplySource, build_app
from cadre_scripted_model.record_replay import Cassettes
from cadre_scripted_model.request_log import RequestLog
from cadre_scripted_model.script_player import Script, ScriptPlayer, read_script

BANNER = (
    "Scripted model: canned replies, not an AI. For a real one set CADRE_MODEL_URL, CADRE_MODEL_KEY and CADRE_MODEL."
)

IGNORED_SERVER_ERRORS = (
    # A scripted cut is an unfinished response on purpose.
    "ASGI callable returned without completing response",
    # A slow answer may be open when the server is stopped.
    "Cancel ",
)
"""The beginnings of messages that the HTTP server logs as errors and that are harmless here."""

MODES = ("script", "auto", "record", "replay")


@click.command("scripted-model")
@click.option("--script", type=click.Path(path_type=Path), help="YAML file with the rules to play.")
@click.option("--mode", type=click.Choice(MODES), help="[default: script with --script, else auto]")
@click.option("--cassette", type=click.Path(path_type=Path), help="Directory of recordings (record, replay).")
@click.option("--upstream", help="Base URL of the endpoint to record, with its /v1.")
@click.option(
    "--context",
    type=click.IntRange(min=1),
    help="Refuse requests of more tokens (four characters each).  [the script's context, or none]",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8090, show_default=True, help="Port to listen on; 0 takes a free one.")
def command(  # noqa: PLR0913 - options
    script: Path | None,
    mode: str | None,
    cassette: Path | None,
    upstream: str | None,
    context: int | None,
    host: str,
    port: int,
) -> None:
    """An OpenAI-compatible endpoint that plays canned replies. It is not an AI.

    Needs no NATS. In record mode the upstream's key is read from CADRE_MODEL_KEY.
    """
    try:
        source, playing = _source(mode or ("script" if script else "auto"), script, cassette, upstream)
        if context is not None:
            if not isinstance(source, ScriptPlayer):
                raise SettingError("--context goes with the modes script and auto")
            source.script.context = context
        listener = _listen(host, port)
    except SettingError as error:
        click.echo(f"cadre: {error}", err=True)
        sys.exit(2)
    log_all_output()
    click.echo(f"{BANNER}\nPlaying {playing}.", err=True)
    shown = f"[{host}]" if ":" in host else host
    click.echo(f"model {MODEL_ID} (not an AI) at http://{shown}:{listener.getsockname()[1]}/v1")
    sys.stdout.flush()
    _serve(source, listener)


def _source(mode: str, script: Path | None, cassette: Path | None, upstream: str | None) -> tuple[ReplySource, str]:
    """Return the source of answers, and what it is in words. Raises SettingError."""
    if mode == "script":
        if script is None:
            raise SettingError("--mode script needs --script FILE")
        rules = read_script(script)
        return ScriptPlayer(rules), f"{script}, {len(rules.rules)} rules; auto where none matches"
    if mode == "auto":
        if script is not None:
            raise SettingError("--mode auto plays no script: leave out --script, or say --mode script")
        return ScriptPlayer(Script([])), "auto replies: every tool once, then an answer"
    # Only these two modes need an HTTP client, whose import takes as long as all the rest.
    from cadre_scripted_model.record_replay import Recorder, Replayer

    if cassette is None:
        raise SettingError(f"--mode {mode} needs --cassette DIRECTORY")
    cassettes = Cassettes(cassette)
    key = read_secret("CADRE_MODEL_KEY").strip()
    if mode == "replay":
        return Replayer(cassettes, key), f"{cassettes.check()} recordings from {cassette}"
    if upstream is None or not upstream.startswith(("http://", "https://")):
        raise SettingError("--mode record needs --upstream URL, such as https://api.example.com/v1")
    return Recorder(cassettes, upstream, key), f"the upstream's answers and recording them in {cassette}"


def _listen(host: str, port: int) -> socket.socket:
    # Bound and listening before the address is printed: readers can connect at once.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        raise SettingError(
            f"cannot listen on {host} port {port}: {getattr(error, 'strerror', None) or error};"
            " choose another --port, or 0 for a free one"
        ) from error


def _serve(source: ReplySource, listener: socket.socket) -> None:
    config = uvicorn.Config(
        build_app(source, RequestLog()),
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=1,
    )
    logging.getLogger("uvicorn.error").addFilter(
        lambda record: not record.getMessage().startswith(IGNORED_SERVER_ERRORS)
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        # The server restores these and raises the signal again once it has shut down.
        signal.signal(number, lambda *_: sys.exit(0))
    uvicorn.Server(config).run(sockets=[listener])
