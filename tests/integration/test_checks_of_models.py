"""`cadre doctor` and `cadre memory --check` ask models for what agents and memories will ask them."""

import asyncio
from pathlib import Path

import pytest

from cadre.adapters.models.probing.report import ModelReport
from cadre.cli.team.doctor import Finding, memory, model_calls
from cadre.local.service_check import check_service
from cadre.service.tested_models import keep_report
from harness.texts import holds
from integration.probed_server import Body, Refused, able, probed_server, weak
from unit.team_files import write_team


def findings(folder: Path) -> list[Finding]:
    async def collected() -> list[Finding]:
        return [finding async for finding in model_calls(folder)]

    return asyncio.run(collected())


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for variable in ("CADRE_MODEL_URL", "CADRE_MODEL"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


def test_the_model_of_the_environment_is_asked_for_a_call(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert findings(folder) == []
    with probed_server(able) as server:
        monkeypatch.setenv("CADRE_MODEL_URL", server.url)
        monkeypatch.setenv("CADRE_MODEL", "m-1")
        [found] = findings(folder)
        [asked] = server.asked
    assert (found.verdict, holds(found.text, "m-1", server.url)) == ("ok", True)
    assert (asked["stream"], asked["tool_choice"], asked["max_tokens"]) == (True, "auto", 200)


def test_each_model_of_the_team_is_asked_as_its_agents_ask_it(folder: Path) -> None:
    def picky(body: Body) -> Body:
        if body["model"] == "refusing":
            raise Refused(404, "no such model")
        return weak(body)

    with probed_server(picky) as server:

        def asks(name: str, more: str = "") -> str:
            return f"model: {{url: '{server.url}', name: {name}{more}}}"

        agents = {
            "boss": asks("m-1", ", tool_choice: auto"),
            "clerk": asks("small", ", calls: schema"),
            "lost": asks("refusing"),
            "writer": f"output_schema: {{type: string}}, {asks('m-1')}",
        }
        write_team(folder, agents)
        found = findings(folder)
        models = [(body["model"], "tools" in body, "response_format" in body) for body in server.asked]
    assert models == [
        ("m-1", True, False),
        ("m-1", False, True),
        ("small", False, True),
        ("refusing", True, False),
    ]
    assert [finding.verdict for finding in found] == ["warn", "ok", "ok", "fail"]
    assert "answered in text instead of calling" in found[0].text
    assert "`cadre model test` says what works" in found[0].text
    assert "answered 404: no such model" in found[3].text


def test_a_model_with_less_context_or_of_which_nothing_is_known_is_told(folder: Path) -> None:
    with probed_server(able) as server:
        server.entry |= {"max_model_len": 8192}
        write_team(folder, {"boss": f"model: {{url: '{server.url}', name: m-1, calls: auto}}"})
        untested, too_large, works = findings(folder)
        for found in (untested, too_large, works):
            assert holds(found.text, "m-1", server.url)
        assert (untested.verdict, too_large.verdict, works.verdict) == ("warn", "warn", "ok")
        assert holds(untested.text, "calls: auto", "`cadre model test`")
        assert holds(too_large.text, "model.context", "128000", "context: 8192")
        keep_report(ModelReport(url=server.url, model="m-1"))
        write_team(folder, {"boss": f"model: {{url: '{server.url}', name: m-1, calls: auto, context: 8192}}"})
        assert [found.verdict for found in findings(folder)] == ["ok"]


def test_a_model_that_is_asked_for_neither_is_asked_plainly(folder: Path) -> None:
    with probed_server(able) as server:
        write_team(folder, {"boss": f"model: {{url: '{server.url}', name: m-1, calls: text}}"})
        [found] = findings(folder)
        assert (found.verdict, holds(found.text, "m-1", server.url)) == ("ok", True)
        assert not {"tools", "response_format"} & server.asked[0].keys()


async def test_a_memory_is_asked_for_one_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    with probed_server(able) as server:
        monkeypatch.setenv("CADRE_MEMORY_EMBEDDINGS_URL", server.url)
        monkeypatch.setenv("CADRE_MEMORY_EMBEDDINGS_MODEL", "e-1")
        code, output, errors = await check_service("cadre_memory")
        assert (code, errors) == (0, "")
        assert memory(code, output, errors).verdict == "ok"
        assert [body["input"] for body in server.asked] == [["dimension"]]
