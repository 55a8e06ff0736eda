"""A plan that people edit while its steps are carried out: over HTTP, by command, and in an editor."""

import json
import sys
from pathlib import Path

from harness.command import Commands
from harness.stack import Gateway, Stack

TOOLS = '''
import asyncio
from pathlib import Path

from cadre import tool


@tool(read_only=True)
async def linger(until: str) -> str:
    """Wait until there is such a file."""
    while not Path(until).exists():
        await asyncio.sleep(0.05)
    return "seen"


@tool(read_only=True)
def add(a: int, b: int) -> int:
    """Add."""
    return a + b
'''
AGENT = """
apiVersion: cadre.dev/v1
kind: Agent
metadata: {name: planner}
spec:
  description: Works by a plan.
  kind: plan
  tools: [linger, add]
  plan:
    replans: 0
    steps:
      - {step: 1, action: linger, args: {until: FLAG}, needs: []}
      - {step: 2, action: add, args: {a: 1, b: 2}, needs: [1]}
"""
EDITOR = """
import sys

file = sys.argv[1]
text = open(file).read()
before, after = ("FLAG", "elsewhere") if "# refused: " not in text else ("elsewhere", "FLAG")
with open(file, "w") as out:
    out.write(text.replace(before, after).replace("b: 20", "b: 30") if after == "FLAG" else text.replace(before, after))
"""


def begun(stack: Stack, flag: Path) -> tuple[Gateway, str]:
    folder = stack.folder
    (folder / "tools.py").write_text(TOOLS)
    (folder / "planner.yaml").write_text(AGENT.replace("FLAG", str(flag)))
    (folder / "editor.py").write_text(EDITOR.replace("FLAG", str(flag)))
    stack.agent(folder / "planner.yaml", start=False)
    stack.tools(folder / "tools.py", start=False)
    gateway = stack.open_gateway(1)
    run = gateway.submit("planner", "Add up.")
    gateway.wait_for(run, "tool.called")
    return gateway, run


def test_a_plan_is_edited_while_its_steps_are_carried_out(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    with Stack(tmp_path) as stack:
        gateway, run = begun(stack, flag)
        url = {"CADRE_GATEWAY_URL": gateway.service.url}
        command = Commands(tmp_path, {**stack.environment, **url})
        plan = json.loads(command("plan", "show", run, "-o", "json").stdout)
        assert (plan["version"], plan["state"]["state"]) == (1, "WAITING_FOR_TOOLS")
        steps = plan["state"]["steps"]
        assert [step["state"] for step in steps] == ["running", "pending"]

        steps[1]["args"]["b"] = 20
        edited = command("plan", "edit", run, "-", "--by", "ann", said=json.dumps(steps))
        assert edited.returncode == 0, edited.stderr
        assert '2 add {"a": 1, "b": 20} (needs 1)' in edited.stdout

        path = f"/v1/runs/{run}/plan"
        change = {"version": 2, "operations": [{"op": "change", "step": 1, "args": {"until": "never"}}]}
        late = gateway.request("PATCH", path, json=change)
        assert (late.status_code, late.json()["code"]) == (409, "edit-too-late")
        assert "step 1" in late.json()["detail"]
        stale = gateway.request("PATCH", path, json={**change, "version": 1})
        assert (stale.status_code, stale.json()["code"], stale.json()["version"]) == (409, "stale-version", 2)
        wrong = gateway.request("PATCH", path, json={"version": 2, "operations": [{"op": "drop", "step": 9}]})
        assert (wrong.status_code, wrong.json()["code"]) == (422, "invalid-request")
        assert "step 9" in wrong.json()["detail"]

        # The plan as edited is what another process goes on with.
        stack.services["planner"].kill()
        stack.services["planner"].start()
        editor = f"{sys.executable} {tmp_path / 'editor.py'}"
        again = command("plan", "edit", run, EDITOR=editor)
        assert again.returncode == 0, again.stderr
        assert '"b": 30' in again.stdout
        flag.touch()
        assert gateway.succeeded(run) == 31
        assert command("plan", "edit", run, "-", said=json.dumps(steps)).returncode != 0
        shown = command("show", run).stdout
        assert '☑ 2 add {"a": 1, "b": 30} (needs 1) → 31' in shown
        applied = [data["event"] for name, data in gateway.events(run) if name == "edit.applied"]
        assert [(one["base"], one["sender"]) for one in applied] == [(1, "ann"), (2, applied[1]["sender"])]
        assert command("replay", run).returncode == 0
