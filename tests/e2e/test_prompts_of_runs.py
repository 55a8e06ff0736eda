"""A run that waits while its agent is started again from other prompts, and the texts that it goes on with."""

from pathlib import Path

from cadre.prompting.prompt_file import locate
from harness.people import decide, events_of, waiting
from harness.stack import Gateway, Stack

AGENT = """
apiVersion: cadre.dev/v1
kind: Agent
metadata: {name: clerk}
spec:
  description: Pays bills.
  tools: [pay]
  approvals: {pay: always}
  prompts: prompts.yaml
"""

TOOLS = '''
from cadre import tool


@tool(idempotent=True)
def pay() -> str:
    """Pay the bill."""
    return "paid"
'''

SCRIPT = """
rules:
  - match: {has_tool: false}
    reply: {tool_calls: [{name: pay, arguments: {}}]}
  - match: {system: FIRST WORDING}
    reply: {tool_calls: [{name: final_answer, arguments: {answer: first}}]}
  - match: {system: SECOND WORDING}
    reply: {tool_calls: [{name: final_answer, arguments: {answer: second}}]}
"""


def worded(folder: Path, words: str) -> None:
    text = locate("tool_calling").read_text()
    assert "You settle a task" in text
    (folder / "prompts.yaml").write_text(text.replace("You settle a task", f"{words}: you settle a task", 1))


def paid(gateway: Gateway, run: str) -> object:
    (call,) = waiting(gateway, run)
    assert decide(gateway, call["call"], "approved").status_code == 200
    return gateway.succeeded(run)


def test_a_run_keeps_its_prompts_when_its_agent_is_started_from_others(tmp_path: Path) -> None:
    for name, text in {"clerk.yaml": AGENT, "bills.py": TOOLS, "script.yaml": SCRIPT}.items():
        (tmp_path / name).write_text(text)
    worded(tmp_path, "FIRST WORDING")
    with Stack(tmp_path) as stack:
        stack.model(tmp_path / "script.yaml")
        clerk = stack.agent(tmp_path / "clerk.yaml", start=False)
        stack.tools(tmp_path / "bills.py", start=False)
        gateway = stack.open_gateway()
        older, erased = gateway.submit("clerk", "Pay."), gateway.submit("clerk", "Pay.")
        assert paid(gateway, erased) == "first"
        waiting(gateway, older)
        clerk.kill()
        worded(tmp_path, "SECOND WORDING")
        clerk.start()
        assert gateway.request("DELETE", f"/v1/runs/{erased}").status_code == 200
        newer = gateway.submit("clerk", "Pay.")
        assert (paid(gateway, newer), paid(gateway, older)) == ("second", "first")

        before, after = gateway.run(older)["revision"], gateway.run(newer)["revision"]
        assert len(before) == len(after) == 12
        assert before != after
        live = {replica["revision"] for replica in gateway.request("GET", "/v1/agents").json()["agents"][0]["replicas"]}
        assert after in live
        assert gateway.request("GET", f"/v1/runs/{older}/replay").json()["divergences"] == []

        # The prompts of a live agent outlive the last run that names them.
        (accepted,) = events_of(gateway, newer, "run.accepted")
        assert gateway.request("DELETE", f"/v1/runs/{newer}").status_code == 200
        digest = accepted["prompts"].removeprefix("blob:")
        kept = gateway.request("GET", f"/v1/blobs/{digest}")
        assert kept.status_code == 200
        assert b"SECOND WORDING" in kept.content
