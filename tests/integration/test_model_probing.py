"""`cadre model test` and `model.calls: auto`: what an endpoint can do is asked of it, kept, and used."""

import itertools
import json
import os
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner, Result

from cadre.cli.team.model import command
from cadre.errors import CadreError, CommandFailed
from cadre.service.tested_models import doubtful_calls, report_of, with_tested_calls
from cadre.settings import ModelSettings
from cadre.spec.agent import AgentSpec
from cadre.spec.model import PROFILE_KEYS, ModelSpec
from cadre.testing import running_model
from harness.texts import holds
from integration.probed_server import Body, Refused, able, probed_server, weak


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for variable in ("CADRE_MODEL_URL", "CADRE_MODEL", "CADRE_MODEL_KEY"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


def ask_what_it_can(*words: str) -> Result:
    return CliRunner().invoke(command, ["test", *words], standalone_mode=False)


def found_by(*words: str) -> dict[str, Any]:
    result = ask_what_it_can("-o", "json", *words)
    assert result.exception is None, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def verdicts(found: dict[str, Any]) -> dict[str, str]:
    return {probe["name"]: probe["verdict"] for probe in found["probes"]}


def test_a_model_that_can_do_everything() -> None:
    with probed_server(able) as server:
        server.entry |= {"meta": {"n_ctx": 8192, "n_ctx_train": 32768}}
        found = found_by(server.url, "--embeddings", "e-1")
    assert set(verdicts(found).values()) == {"yes"}
    assert list(verdicts(found)) == [
        *("models", "streaming", "usage in streams", "token_limit", "tools", "tool_choice: required"),
        *("parallel calls", "user_after_tool", "reasoning_back", "stop"),
        *("json_schema", "strict", "json_object", "images", "api: responses"),
        *("max_completion_tokens", "seed", "reasoning", "embeddings"),
    ]
    assert (found["calls"], found["probes"][-1]["value"]) == ("native", 3)
    assert found["spec"] == {
        "url": server.url,
        "name": "m-1",
        "context": 8192,
        "capabilities": ["vision", "streaming", "tools", "json_schema"],
        "tool_choice": "required",
        "stop": True,
    }


def test_a_weak_model_is_asked_for_calls_under_a_schema_from_then_on() -> None:
    with probed_server(weak) as server:
        result = ask_what_it_can(server.url)
        url = server.url
    assert (result.exception, result.return_value) == (None, 0)
    assert holds(result.output, "tool_choice", "200 tokens; set tool_choice")
    assert "capabilities: [streaming, json_schema]" in result.output
    report = report_of(f"{url}/", "m-1")
    assert report is not None
    assert report.lacks("images", "reasoning", "tools")
    agent = AgentSpec(
        name="a",
        description="d",
        model=ModelSpec(
            calls="auto",
            name="m-1",
            fallbacks=[ModelSpec(name="other", calls="auto"), ModelSpec(name="m-1", url=url, calls="text")],
        ),
    )
    begun = with_tested_calls(agent, ModelSettings(url=url))
    assert [begun.model.calls, *(one.calls for one in begun.model.fallbacks)] == ["schema", "native", "text"]
    # Nothing is known of an endpoint elsewhere.
    assert with_tested_calls(agent, ModelSettings(url="http://elsewhere/v1")).model.calls == "native"


def test_what_an_endpoint_wants_back_and_refuses_is_its_profile() -> None:
    """The lines for the model's file hold it, as YAML."""

    def strict(body: Body) -> Body:
        roles = [one["role"] for one in body["messages"]]
        if "stop" in body:
            raise Refused(400, "Argument not supported on this model: stop")
        if ((body.get("response_format") or {}).get("json_schema") or {}).get("strict"):
            raise Refused(400, "response_format.json_schema.strict: Extra inputs are not permitted")
        if ("tool", "user") in itertools.pairwise(roles):
            raise Refused(400, "Unexpected role 'user' after role 'tool'")
        if any(one["role"] == "assistant" and "reasoning_content" not in one for one in body["messages"][:2]):
            raise Refused(400, "Missing `reasoning_content` field in the assistant message")
        if body.get("tool_choice") == "required":
            raise Refused(400, "this model does not support this tool_choice")
        return able({**body, "messages": [one for one in body["messages"] if one["role"] == "user"]})

    with probed_server(strict) as server:
        result = ask_what_it_can(server.url)
    assert (result.exception, result.return_value) == (None, 0)
    section = yaml.safe_load(result.output.partition("docs/models.md):")[2])["spec"]
    profile = {key: value for key, value in section.items() if key in PROFILE_KEYS}
    assert profile == {
        "tool_choice": "auto",
        "strict": False,
        "user_after_tool": False,
        "reasoning_back": "required",
    }
    assert "json_schema" in section["capabilities"]


def test_short_prompts_are_for_calls_under_a_schema_unless_native_ones_are_known_to_work() -> None:
    auto = AgentSpec(name="a", description="d", prompts="short", model=ModelSpec(name="m-1", calls="auto"))
    nowhere = ModelSettings(url="http://elsewhere/v1")
    assert with_tested_calls(auto, nowhere).model.calls == "schema"
    with probed_server(able) as server:
        native = msgspec.structs.replace(auto, model=ModelSpec(name="m-1", url=server.url))
        assert doubtful_calls(native) is not None
        found_by(server.url)
    assert doubtful_calls(native) is None
    assert with_tested_calls(auto, ModelSettings(url=server.url)).model.calls == "native"
    assert doubtful_calls(msgspec.structs.replace(native, prompts=None)) is None


def test_a_model_that_wants_the_other_name_for_the_limit_and_tells_its_context_by_refusing() -> None:
    def picky(body: Body) -> Body:
        if "max_tokens" in body:
            raise Refused(400, "Unsupported parameter: 'max_tokens', use 'max_completion_tokens' instead")
        if body["max_completion_tokens"] > 10_000:
            raise Refused(400, "This model's maximum context length is 16,384 tokens")
        return able(body)

    with probed_server(picky) as server:
        server.usage = False
        found = found_by(server.url, "--model", "m-1")
    assert (found["spec"]["token_limit"], found["spec"]["context"]) == ("max_completion_tokens", 16_384)
    assert verdicts(found)["usage in streams"] == "no"


def test_a_broken_endpoint_has_a_line_for_each_probe_and_an_exit_code() -> None:
    def broken(body: Body) -> Body:
        raise Refused(500, "CUDA out of memory")

    with probed_server(broken) as server:
        result = ask_what_it_can(server.url)
        unasked = [name for name, verdict in verdicts(found_by(server.url)).items() if verdict == "unknown"]
    assert (result.exception, result.return_value) == (None, 1)
    lines = result.output.splitlines()[2:]
    assert "tools" in unasked
    assert {*unasked} <= {line.split("  ")[0] for line in lines}, "each has its line"
    assert sum("answered 500: CUDA out of memory" in line for line in lines) == 2
    assert not Path(".cadre/models.json").exists()


def test_what_a_later_test_cannot_find_out_stays_known() -> None:
    out = threading.Event()

    def failing(body: Body) -> Body:
        if out.is_set() and body.get("tools"):
            raise Refused(503, "busy")
        return weak(body)

    with probed_server(failing) as server:
        ask_what_it_can(server.url)
        out.set()
        again = found_by(server.url)
        assert verdicts(again)["tools"] == "unknown"
        report = report_of(server.url, "m-1")
    assert report is not None
    assert (report.calls, report.lacks("tools")) == ("schema", True)


def test_a_server_that_closes_its_connections_behind_an_answer_is_asked_again() -> None:
    requests = itertools.count()

    def lossy(body: Body) -> Body:
        if next(requests) % 2:
            raise ConnectionResetError
        return able(body)

    with probed_server(lossy) as server:
        found = found_by(server.url)
    assert [name for name, verdict in verdicts(found).items() if verdict != "yes"] == ["context"]


def test_an_endpoint_that_is_not_there_or_silent() -> None:
    with probed_server(able) as server:
        server.silent.set()
        result = ask_what_it_can(server.url, "--timeout", "1")
        assert result.return_value == 1
        assert "sent nothing for 1 s" in result.output or "within 1 s" in result.output
    gone = ask_what_it_can(server.url)
    assert gone.return_value == 5
    assert holds(gone.output, server.url, "CADRE_MODEL_URL")


def test_files_of_models_and_of_agents(folder: Path) -> None:
    with probed_server(able) as server:
        (folder / "m.yaml").write_text(
            "apiVersion: cadre.dev/v1\nkind: Model\nmetadata: {name: m}\n"
            f"spec: {{url: '{server.url}', name: m-1, key_env: OTHER_KEY}}\n"
        )
        (folder / "agent.yaml").write_text(
            "apiVersion: cadre.dev/v1\nkind: Agent\nmetadata: {name: a}\n"
            "spec: {description: d, model: {use: m, calls: auto, fallbacks: [m]}}\n"
        )
        assert "key_env: OTHER_KEY" in ask_what_it_can("m.yaml").output
        both = json.loads(ask_what_it_can("agent.yaml", "-o", "json").stdout)
        assert [one["model"] for one in both] == ["m-1", "m-1"]


@pytest.mark.parametrize(("target", "words"), [((), "CADRE_MODEL_URL"), (("gone.yaml",), "gone.yaml")])
def test_what_is_no_model(target: tuple[str, ...], words: str) -> None:
    result = ask_what_it_can(*target)
    assert isinstance(result.exception, CommandFailed | CadreError)
    assert words in str(result.exception)


def test_what_a_file_says_that_a_model_can_do_decides_before_any_test(folder: Path) -> None:
    from cadre.spec.agent_file import read_agent

    (folder / "m.yaml").write_text(
        "apiVersion: cadre.dev/v1\nkind: Model\nmetadata: {name: m}\n"
        "spec: {url: 'http://x/v1', calls: auto, capabilities: [json_schema]}\n"
    )
    (folder / "agent.yaml").write_text(
        "apiVersion: cadre.dev/v1\nkind: Agent\nmetadata: {name: a}\n"
        "spec: {description: d, model: {use: m, calls: auto}}\n"
    )
    assert read_agent(folder / "agent.yaml").model.calls == "schema"


def test_a_folder_that_cannot_be_written_does_not_matter(folder: Path) -> None:
    (folder / ".cadre").write_text("in the way")
    with probed_server(able) as server:
        result = ask_what_it_can(server.url)
    assert (result.exception, result.return_value) == (None, 0)
    assert holds(result.output, "cadre: ", ".cadre")
    assert os.path.isfile(".cadre")


def test_a_model_that_is_asked_through_the_responses_api(folder: Path) -> None:
    file = folder / "other.yaml"
    file.write_text(
        "apiVersion: cadre.dev/v1\nkind: Model\nmetadata: {name: other}\nspec: {url: URL, api: responses}\n"
    )
    with running_model() as server:
        file.write_text(file.read_text().replace("URL", server.url))
        found = found_by(str(file))
    said = verdicts(found)
    assert (said["streaming"], said["usage in streams"], said["tools"], said["api: responses"]) == ("yes",) * 4
    assert (said["json_schema"], "seed" in said, "token_limit" in said) == ("yes", False, False)
    assert found["spec"]["api"] == "responses"
