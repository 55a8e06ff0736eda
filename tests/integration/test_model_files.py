"""An agent that names a model file asks that model's endpoint, and its run keeps the model as it was."""

from pathlib import Path

from cadre.spec.agent_file import read_agent
from cadre.testing import ModelServer
from integration.model_runs import played

SCRIPT = """
rules:
  - name: small
    match: {model: ^small$}
    reply: {tool_calls: [{name: final_answer, arguments: {answer: "{{ body.seed }}"}}]}
"""


async def test_a_run_keeps_the_model_that_its_agent_named(server: ModelServer, tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(
        "apiVersion: cadre.dev/v1\nkind: Model\nmetadata: {name: small}\n"
        f"spec: {{url: '{server.url}', capabilities: [tools]}}\n"
    )
    file = tmp_path / "boss.yaml"
    file.write_text(
        "apiVersion: cadre.dev/v1\nkind: Agent\nmetadata: {name: boss}\n"
        "spec: {description: Leads., model: {use: small, seed: 7}}\n"
    )
    run, _ = await played("anything", read_agent(file))
    assert run.result is not None
    assert (run.result.state, run.result.output) == ("success", 7)
    assert run.spec is not None
    assert (run.spec.model.url, run.spec.model.name, run.spec.model.seed) == (server.url, "small", 7)
    assert [line["stream"] for line in server.journal()] == [False]
