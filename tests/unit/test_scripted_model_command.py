"""The command refuses options that do not go together, in one clear line."""

import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from cadre_scripted_model.main import command


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--mode", "script"], "--mode script needs --script FILE"),
        (["--script", "missing.yaml"], "missing.yaml: cannot be read"),
        (["--mode", "auto", "--script", "x"], "--mode auto"),
        (["--mode", "record"], "--mode record needs --cassette"),
        (["--mode", "record", "--cassette", "x"], "--mode record needs --upstream URL"),
        (["--mode", "replay"], "--mode replay needs --cassette"),
        (
            ["--mode", "record", "--context", "9", "--cassette", "x", "--upstream", "http://x"],
            "--context goes",
        ),
    ],
)
def test_options_that_do_not_go_together(options: list[str], complaint: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(command, options)
    assert result.exit_code == 2
    assert complaint in result.output
    assert len(result.output.splitlines()) == 1


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = CliRunner().invoke(command, ["--port", str(port)])
    assert result.exit_code == 2
    assert f"cannot listen on 127.0.0.1 port {port}: Address already in use" in result.output
