"""A workflow as real services run it, without any model."""

from pathlib import Path

from harness.stack import Stack

AGENT = """
apiVersion: cadre.dev/v1
kind: Agent
metadata: {name: clerk}
spec:
  description: Doubles numbers.
  kind: workflow
  tools: [double]
  workflow:
    start: all
    steps:
      all: {each: {items: "{{ inputs.numbers }}", step: one, parallel: 3}, next: both}
      one: {tool: {name: double, arguments: {number: "{{ item }}"}}}
      both: {parallel: {branches: {left: first, right: rest}}, next: done}
      first: {end: "{{ all[0] }}"}
      rest: {wait: 1.5, next: last}
      last: {end: "{{ all[1:] }}"}
      done: {end: {output: {all: "{{ all }}", both: "{{ both }}"}}}
"""
TOOLS = '''
from cadre import tool


@tool
def double(number: int) -> int:
    """Double a number.

    Args:
        number: Which one.
    """
    return 2 * number
'''


def test_lists_branches_and_waits_need_no_model(tmp_path: Path) -> None:
    (tmp_path / "clerk.yaml").write_text(AGENT)
    (tmp_path / "tools.py").write_text(TOOLS)
    with Stack(tmp_path) as stack:
        stack.agent(tmp_path / "clerk.yaml", start=False)
        stack.tools(tmp_path / "tools.py", start=False)
        gateway = stack.open_gateway()
        run = gateway.submit("clerk", "Double.", inputs={"numbers": [1, 2, 3, 4, 5]})
        found = gateway.finished(run)
    assert found["state"] == "success", found
    assert found["output"] == {"all": [2, 4, 6, 8, 10], "both": {"left": 2, "right": [4, 6, 8, 10]}}
    assert found["usage"]["model_calls"] == 0
