"""A workflow among real services: for each of its entries one run, whose worker is killed right behind that entry."""

from collections import Counter
from pathlib import Path

from harness.patience import eventually
from harness.stack import Gateway, Stack

AGENT = """
apiVersion: cadre.dev/v1
kind: Agent
metadata: {name: clerk}
spec:
  description: Books rooms.
  kind: workflow
  tools: [keep, stumble]
  workflow:
    start: first
    steps:
      first: {tool: {name: keep, arguments: {what: "{{ task }} first"}}, undo: unfirst, next: fan}
      fan: {each: {items: [1, 2], step: one}, next: both}
      one: {tool: {name: keep, arguments: {what: "{{ task }} item {{ item }}"}}}
      both: {parallel: {branches: {left: lefty, right: righty}}, next: bad}
      lefty: {wait: 1, next: ended}
      ended: {end: "waited"}
      righty: {tool: {name: keep, arguments: {what: "{{ task }} right"}}}
      bad: {tool: stumble, next: ended}
      unfirst: {tool: {name: keep, arguments: {what: "{{ task }} undone"}}}
"""
TOOLS = '''
from cadre import tool


@tool
def keep(what: str) -> str:
    """Keep something.

    Args:
        what: Its name.
    """
    with open("FILE", "a") as file:
        file.write(what + "\\n")
    return what


@tool
def stumble() -> str:
    """Fail."""
    raise ValueError("a stone in the way")
'''


def test_whichever_entry_its_worker_dies_behind_each_effect_happens_once(tmp_path: Path) -> None:
    kept, deaths = tmp_path / "kept", tmp_path / "deaths"
    deaths.mkdir()
    (tmp_path / "clerk.yaml").write_text(AGENT)
    (tmp_path / "tools.py").write_text(TOOLS.replace("FILE", str(kept)))
    script = Path(__file__).parent / "dying_clerk.py"
    with Stack(tmp_path) as stack:
        stack.tools(tmp_path / "tools.py", start=False)
        gateway = stack.open_gateway()
        stack.add("clerk", script, tmp_path / "clerk.yaml", start=False, DEATHS=str(deaths)).start(wait=False)
        eventually(lambda: bool(gateway.request("GET", "/v1/agents").json()["agents"]), what="the clerk is there")
        whole = gateway.submit("clerk", "whole")
        (deaths / whole).write_text("none")
        undone(gateway, whole)
        points = (deaths / f"{whole}.entries").read_text().splitlines()
        assert len(points) == len(set(points)) == 16
        runs = [gateway.submit("clerk", point) for point in points]
        for run, point in zip(runs, points, strict=True):
            (deaths / run).write_text(point)
        for run in runs:
            undone(gateway, run)
    # Where a worker died for another run in the same moment, it died behind this entry as well.
    assert len(list(deaths.glob("*.died"))) > len(points) // 2
    effects = ("first", "item 1", "item 2", "right", "undone")
    expected = [f"{task} {what}" for task in ("whole", *points) for what in effects]
    assert Counter(kept.read_text().splitlines()) == Counter(expected)


def undone(gateway: Gateway, run: str) -> None:
    found = gateway.finished(run, within=120.0)
    assert found["state"] == "error"
    assert found["error"]["message"].endswith("a stone in the way"), found["error"]
