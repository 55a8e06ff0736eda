"""Model files: found next to the agents that name them, checked, and put in place of their names."""

from pathlib import Path
from typing import Any

import pytest

from cadre.errors import SpecError
from cadre.spec.agent_file import files_of_agent, read_agent
from cadre.spec.model import ModelSpec, Price
from unit.test_agent_file import HEAD

SMALL = """
apiVersion: cadre.dev/v1
kind: Model
metadata: {name: small}
spec:
  url: http://gpu-box:8000/v1
  key_env: GPU_KEY
  temperature: 0
  context: 8000
  price: {input: 0.1, output: 0.2}
  capabilities: [streaming, json_schema]
"""


def written(folder: Path, section: str, model: str = SMALL, where: str = "models/small.yaml") -> Path:
    """An agent's file with this section `model`, and a model next to it."""
    file = folder / "a.yaml"
    file.write_text(f"{HEAD}  model: {section}\n")
    (folder / where).parent.mkdir(exist_ok=True)
    (folder / where).write_text(model)
    return file


RESOLVED: dict[str, Any] = {
    "name": "small",
    "url": "http://gpu-box:8000/v1",
    "key_env": "GPU_KEY",
    "temperature": 0,
    "context": 8000,
    "price": Price(input=0.1, output=0.2),
    "vision": False,
    "calls": "schema",
}


@pytest.mark.parametrize("where", ["models/small.yaml", "small.yaml"])
def test_an_agent_has_the_model_that_it_names(tmp_path: Path, where: str) -> None:
    file = written(tmp_path, "small", where=where)
    assert read_agent(file).model == ModelSpec(**RESOLVED)
    assert files_of_agent(file) == [file, tmp_path / where]


def test_a_model_that_agents_of_all_kinds_share_may_say_how_calls_are_written(tmp_path: Path) -> None:
    file = written(tmp_path, "{use: small, temperature: 1}\n  kind: code", SMALL + "  calls: text\n")
    assert read_agent(file).kind == "code"


def test_what_the_agent_says_itself_wins(tmp_path: Path) -> None:
    file = written(tmp_path, "{use: small, temperature: 1, name: smaller, calls: text}")
    expected = RESOLVED | {"temperature": 1, "name": "smaller", "calls": "text"}
    assert read_agent(file).model == ModelSpec(**expected)


def test_fallbacks_are_named_in_the_same_way(tmp_path: Path) -> None:
    file = written(tmp_path, "{name: gpt-x, fallbacks: [small, {use: small, name: tiny}, {url: 'http://b/v1'}]}")
    model = read_agent(file).model
    assert [(one.name, one.url) for one in model.fallbacks] == [
        ("small", "http://gpu-box:8000/v1"),
        ("tiny", "http://gpu-box:8000/v1"),
        ("", "http://b/v1"),
    ]
    assert files_of_agent(file) == [file, tmp_path / "models" / "small.yaml"]


@pytest.mark.parametrize(
    ("capabilities", "calls", "vision", "stream"),
    [
        ("[tools, vision, streaming]", "native", True, True),
        ("[json_schema, vision]", "schema", True, False),
        ("[]", "text", False, False),
        ("null", "native", True, True),
    ],
)
def test_what_a_model_can_do_decides_how_it_is_asked(
    tmp_path: Path, capabilities: str, calls: str, vision: bool, stream: bool
) -> None:
    model = SMALL.replace("[streaming, json_schema]", capabilities)
    found = read_agent(written(tmp_path, "small", model)).model
    assert (found.calls, found.vision, found.stream) == (calls, vision, stream)


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("big", r"a.yaml: spec.model.*'big': .*models/big.yaml.*big.yaml$"),
        ("../small", "model name '../small': use 1 to 64 of the letters"),
        ("{use: [small]}", r"spec.model"),
        ("{use: small, temprature: 1}", "unknown key 'temprature' in spec.model"),
        (
            "{use: small, vision: true}",
            "spec.model.vision: true .* vision.* 'small'",
        ),
        ("{use: small, calls: native}", "spec.model.calls: native .* tools.* 'small'"),
        ("{fallbacks: [big]}", r"spec\.model\.fallbacks\[0\]: .*'big'"),
        ("{fallbacks: [{nam: x}]}", r"unknown key 'nam' in spec.model.fallbacks\[0\]; known keys: name, url"),
        ("{fallbacks: [{url: x}]}", r"spec\.model\.fallbacks\[0\]\.url\b.*http"),
        ("{fallbacks: [{}]}", r"model.fallbacks\[0\]: name another model"),
        ("{fallbacks: small}", "spec.model.fallbacks: Expected `array`"),
        ("{use: small, context: 1}", r"model.context.*1000"),
    ],
)
def test_what_is_wrong_in_the_agents_file(tmp_path: Path, section: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        read_agent(written(tmp_path, section))


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("kind: Model", "kind: Agent", "kind: Invalid enum value 'Agent'"),
        ("name: small", "name: large", "metadata.name"),
        ("temperature: 0", "temprature: 0", "unknown key 'temprature' in spec; known keys: name, url"),
        ("temperature: 0", "temperature: cold", "spec.temperature: Expected `float | null`, got `str`"),
        ("temperature: 0", "timeout: soon", "spec.timeout: 'soon'"),
        ("http://gpu", "gpu", "spec.url"),
        (
            "json_schema]",
            "speed]",
            "spec.capabilities",
        ),
        ("price: {input: 0.1, output: 0.2}", "price: {in: 1}", "unknown key 'in' in spec.price"),
        ("spec:", "spec: [", "not YAML"),
    ],
)
def test_what_is_wrong_in_the_models_file(tmp_path: Path, before: str, after: str, said: str) -> None:
    with pytest.raises(SpecError) as refused:
        read_agent(written(tmp_path, "small", SMALL.replace(before, after)))
    assert f"{tmp_path / 'models' / 'small.yaml'}: " in str(refused.value)
    assert said in str(refused.value)
