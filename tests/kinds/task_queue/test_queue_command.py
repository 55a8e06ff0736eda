"""`cadre queue` and `cadre show` on a real run whose first task waits for a person."""

from pathlib import Path

from cadre.errors import ExitCode
from harness.command import Commands
from harness.patience import eventually
from harness.stack import Gateway, Stack
from harness.texts import holds

AGENT = """
apiVersion: cadre.dev/v1
kind: Agent
metadata: {name: clerk}
spec:
  description: Works through a queue.
  kind: task_queue
  tools: [keep]
  approvals: {keep: always}
  task_queue: {goals: [Keep all.], most: 6}
"""
TOOLS = '''
from cadre import tool


@tool
def keep(what: str) -> str:
    """Keep something.

    Args:
        what: Its name.
    """
    return f"kept {what}"
'''
SCRIPT = r"""
rules:
  - match: {user: You break goals down}
    reply: {content: '["one", "two", "three"]'}
  - match: {user: 'Current task: '}
    reply:
      content: |-
        {%- set task = find(messages | map(attribute='content') | join(' '), 'Current task: (\w+)') -%}
        {"thoughts": {"text": "On it."}, "tool": {"name": "keep", "args": {"what": "{{ task }}"}}}
  - match: {user: Put the tasks that wait}
    reply: {content: '[]'}
  - match: {user: The task done last}
    reply: {content: '[]'}
  - reply: {content: All is kept.}
"""


def test_a_person_sees_and_edits_the_queue_of_a_run(tmp_path: Path) -> None:
    for name, text in (("clerk.yaml", AGENT), ("tools.py", TOOLS), ("script.yaml", SCRIPT)):
        (tmp_path / name).write_text(text)
    with Stack(tmp_path) as stack:
        stack.model(tmp_path / "script.yaml")
        stack.agent(tmp_path / "clerk.yaml", start=False)
        stack.tools(tmp_path / "tools.py", start=False)
        gateway = stack.open_gateway()
        cadre = Commands(tmp_path, {**stack.environment, "CADRE_GATEWAY_URL": gateway.service.url})
        run = gateway.submit("clerk", "Keep them.")

        def queue(*edit: object) -> list[str]:
            done = cadre("queue", run, *edit)
            assert done.returncode == 0, done.stderr
            return [" ".join(line.split()) for line in done.stdout.splitlines()[1:]]

        call = _next_call(gateway, run)
        assert queue() == ["begun one", "1 two", "2 three"]
        assert queue("add", "four", "--at", 1) == ["begun one", "1 four", "2 two", "3 three"]
        assert queue("move", 3, 1) == ["begun one", "1 three", "2 four", "3 two"]
        assert queue("edit", 2, "five") == ["begun one", "1 three", "2 five", "3 two"]
        assert queue("drop", 3) == ["begun one", "1 three", "2 five"]
        absent = cadre("queue", run, "drop", 9)
        assert absent.returncode == ExitCode.USAGE
        assert holds(absent.stderr, "'9'", "2")
        assert "now" in cadre("queue", run, "drop", 1, "--version", 1).stderr
        shown = cadre("show", run).stdout
        assert "queue    0 done, 2 to be begun\n  begun  one\n  1      three\n  2      five\n" in shown
        for _ in range(3):
            assert cadre("approve", call).returncode == 0
            call = _next_call(gateway, run, call)
        assert gateway.succeeded(run) == "All is kept."
        shown = cadre("show", run).stdout
        assert "queue    3 done, 0 to be begun\n  done   one\n  done   three\n  done   five\n" in shown


def _next_call(gateway: Gateway, run: str, last: str = "") -> str:
    """The call that waits for a person behind this one; "" where the run has ended."""
    found: list[str] = []

    def there() -> bool:
        waiting = gateway.request("GET", "/v1/approvals", params={"run": run}).json()["approvals"]
        found[:] = [one["call"] for one in waiting if one["call"] != last]
        return bool(found or gateway.run(run)["ended_at"])

    eventually(there, what="the next task waits for a person")
    return found[0] if found else ""
