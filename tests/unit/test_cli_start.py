"""The command line starts fast and loads only what its verb needs."""

import json
import os
import ssl
import subprocess
import sys

import pytest

from cadre.cli.main import VERBS, group
from cadre.client.transport import client_options

HEAVY = ("httpx2", "rich", "nats", "openai", "fastapi", "uvicorn")


def cpu_seconds(code: str) -> float:
    """User and system time of a fresh interpreter that runs the code: the least of three tries."""
    return min(_once(code) for _ in range(3))


def _once(code: str) -> float:
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_it_starts_in_little_more_time_than_click(option: str) -> None:
    floor = cpu_seconds("import click, importlib.metadata")
    taken = cpu_seconds(f"import sys; sys.argv = ['cadre', {option!r}]; from cadre.cli.main import main; main()")
    assert taken < 4 * floor + 0.1


def test_listing_the_commands_imports_no_verb_and_no_service() -> None:
    code = (
        "import sys; from cadre.cli.main import group;"
        "group.main(['--help'], standalone_mode=False);"
        f"print([m for m in sys.modules if m.split('.')[0] in {HEAVY!r}"
        " or m.startswith('cadre_') or (m.startswith('cadre.cli.') and m != 'cadre.cli.main')])"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.splitlines()[-1] == "[]"
    assert all(verb in output for verb in VERBS)


EACH_VERB = """
import json, os, sys
from cadre.cli.main import group
for verb in json.loads(sys.argv[1]):
    sys.stdout.flush()
    if os.fork() == 0:
        group.main([verb, "--help"])
    _, status = os.wait()
    print(f"\\n{verb} ended with {os.waitstatus_to_exitcode(status)}")
"""
"""Each in a process that has loaded the group alone."""


def test_every_verb_has_a_module_and_says_what_it_does() -> None:
    arguments = [sys.executable, "-c", EACH_VERB, json.dumps(list(VERBS))]
    output = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout
    for verb in VERBS:
        said, ended, output = output.partition(f"\n{verb} ended with 0\n")
        assert ended, f"{verb}: {said}"
        assert said.startswith("Usage: "), f"{verb}: {said}"


def test_a_client_without_tls_reads_no_certificates() -> None:
    for url in ("http://127.0.0.1:8080", "http://gateway.example.org"):
        assert client_options(url)["verify"] is False
    for url in ("https://127.0.0.1:8080", "https://gateway.example.org"):
        assert isinstance(client_options(url)["verify"], ssl.SSLContext)


def test_the_group_is_what_the_executable_runs() -> None:
    output = subprocess.run(
        [sys.executable, "-m", "cadre.cli.main", "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert str(group.help) in output
