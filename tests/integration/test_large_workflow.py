"""A workflow over a long list next to small runs of the same agent and tool: no one waits for the list's end."""

from __future__ import annotations

from pathlib import Path

from harness.patience import eventually
from harness.stack import Stack

ITEMS = 1_000
AT_ONCE = 16
SMALL = 6

AGENT = """
apiVersion: cadre.dev/v1
kind: Agent
metadata: {name: clerk}
spec:
  description: Notes things down.
  kind: workflow
  tools: [note]
  workflow:
    start: which
    steps:
      which: {choose: {cases: [{if: inputs.numbers, next: all}], default: first}}
      all: {each: {items: "{{ inputs.numbers }}", step: one, parallel: 16}, next: counted}
      one: {tool: {name: note, arguments: {line: "item {{ item }}"}}}
      counted: {end: "{{ all | length }}"}
      first: {tool: {name: note, arguments: {line: "small {{ task }}"}}, next: second}
      second: {tool: {name: note, arguments: {line: "small {{ task }}"}}}
"""
TOOLS = '''
from pathlib import Path

from cadre import tool


@tool(idempotent=True)
async def note(line: str) -> str:
    """Note a line down.

    Args:
        line: The line.
    """
    with open("FILE", "a") as file:
        file.write(line + "\\n")
    return line
'''


def test_a_long_list_starves_nobody(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    (tmp_path / "clerk.yaml").write_text(AGENT)
    (tmp_path / "tools.py").write_text(TOOLS.replace("FILE", str(notes)))

    def lines() -> list[str]:
        return notes.read_text().splitlines() if notes.exists() else []

    with Stack(tmp_path) as stack:
        stack.agent(tmp_path / "clerk.yaml", start=False)
        stack.tools(tmp_path / "tools.py", start=False)
        gateway = stack.open_gateway()
        items = list(range(ITEMS))
        large = gateway.submit("clerk", "All of them.", inputs={"numbers": items})
        eventually(lambda: len(lines()) >= 3 * AT_ONCE, what="the list is begun")
        small = [gateway.submit("clerk", str(number), inputs={"numbers": []}) for number in range(SMALL)]
        ended = [gateway.finished(run) for run in small]
        assert {one["state"] for one in ended} == {"success"}
        found = gateway.finished(large, within=300.0)
    assert max(one["ended_at"] for one in ended) < found["ended_at"], "the small ones are over first"
    assert (found["state"], found["output"]) == ("success", ITEMS), found["error"]
    written = lines()
    assert sorted(line for line in written if line.startswith("item")) == sorted(f"item {n}" for n in items)
    last = max(at for at, line in enumerate(written) if line.startswith("small"))
    assert last < ITEMS * 3 // 4, f"the last step of a small run came behind {last} of {ITEMS} items"
    order = [int(line.split()[1]) for line in written if line.startswith("item")]
    assert all(at - 4 * AT_ONCE < item < at + 4 * AT_ONCE for at, item in enumerate(order)), "items go in turn"
