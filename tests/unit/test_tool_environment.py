"""Tests of what a tool's process does not get from the environment of `cadre up`."""

import os
from pathlib import Path

import pytest

from cadre.adapters.local_stack import Ports
from cadre.deploy.team_file import read_team
from cadre.local.processes import Stack
from cadre.settings import interpreter_environment, without_secrets


def test_tools_get_none_of_cadres_keys_and_all_that_are_their_own() -> None:
    environment = {
        "CADRE_MODEL_KEY": "a",
        "CADRE_SECRET_SHOP": "b",
        "CADRE_INDEX_URL": "postgresql://cadre:word@db/cadre",
        "CADRE_NATS_TLS_KEY": "file",
        "CADRE_NATS_CREDENTIALS": "tools.nk",
        "WEATHER_KEY": "own",
    }
    kept = {name: environment[name] for name in ("CADRE_NATS_TLS_KEY", "CADRE_NATS_CREDENTIALS", "WEATHER_KEY")}
    assert without_secrets(environment) == kept
    assert without_secrets({**environment, "OPENAI_API_KEY": "c"}, "OPENAI_API_KEY") == kept


def test_a_model_key_of_an_agents_file_is_no_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {
        "OPENAI_API_KEY": "a",
        "ELSEWHERE_KEY": "b",
        "QDRANT_API_KEY": "c",
        "EMBED": "d",
        "WEATHER_KEY": "own",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CADRE_MEMORY_EMBEDDINGS_KEY_ENV", "EMBED")
    (tmp_path / "boss.yaml").write_text(
        "apiVersion: cadre.dev/v1\nkind: Agent\nmetadata: {name: boss}\nspec:\n  description: Works.\n"
        "  model: {url: http://a/v1, name: m, key_env: OPENAI_API_KEY,"
        " fallbacks: [{url: http://b/v1, name: n, key_env: ELSEWHERE_KEY}]}\n"
        "  memory: {recall: 3}\n"
    )
    (tmp_path / "own.py").write_text("")
    (tmp_path / "team.yaml").write_text(
        "apiVersion: cadre.dev/v1\nkind: Team\nmetadata: {name: t}\nspec: {agents: [boss.yaml], tools: [./own.py]}\n"
    )
    team = read_team(tmp_path)
    stack = Stack(tmp_path, team, Ports(gateway=1, nats=2, model=3), lambda name, line: None)
    given = {service.name: set(variables) & service.environment.keys() for service in stack.services()}
    assert given["own"] == {"WEATHER_KEY"}
    assert given["boss"] == given["memory"] == set(variables)


def test_the_process_that_services_are_forked_from_is_given_no_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fork can read the environment that the fork server was started with, no matter what its own is."""
    for name in ("OPENAI_API_KEY", "CADRE_MODEL_KEY", "DATABASE_URL", "CADRE_NATS_URL"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("PYTHONPATH", "here")
    given = interpreter_environment()
    assert "secret" not in given.values()
    assert (given["PYTHONPATH"], given["PATH"]) == ("here", os.environ["PATH"])
