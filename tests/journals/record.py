"""Records journals of the Cadre that is installed: `python record.py FOLDER`; README.md says when and how.

Needs `tests` and, for another version than that of this checkout, its `shared` and `services` on PYTHONPATH.
"""

import asyncio
import itertools
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cadre.protocol.messages import Cancel, Report, Task, ToolResult
from cadre.service.platform import Platform
from cadre.spec.agent_file import read_agent
from harness.patience import eventually
from harness.people import decide, waiting
from harness.stack import Stack
from journals.recorder import Recorder, entries_of, save_messages

TESTS = Path(__file__).parents[1]
TEAM = Path(__file__).parent / "team"
APOLLO = TESTS.parent / "teams" / "apollo"
FEATURES = TESTS / "e2e" / "features"
RULED = TESTS / "e2e" / "ruled"
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)

_numbers = itertools.count(1)


# --- runs that end by themselves


def ordinary(recorder: Recorder) -> None:
    features: dict[str, tuple[str, str, dict[str, Any]]] = {
        "wrong_arguments": ("solo", "a mismatch", {}),
        "variables": (
            "solo",
            "work with variables",
            {"inputs": {"city": "Oslo", "numbers": [1, 2]}},
        ),
        "image": ("solo", "a picture", {"images": [PIXEL]}),
        "max_steps": ("solo", "never end", {"max_steps": 3}),
        "call_in_text": ("solo", "call in text", {}),
        "no_call": ("solo", "chatty", {}),
        "parallel_tools": ("solo", "both at once", {}),
        "refused_delegation": ("one", "begin", {}),
        "selected_member": ("picker", "begin", {}),
        "refused_key": ("locked", "begin", {}),
        "missing_offer": ("lacking", "begin", {}),
        "long_output": ("solo", "long story", {}),
        "long_task": ("solo", "a long task: " + "abcde " * 50_000, {}),
        "unreachable": ("unreachable", "begin", {}),
    }
    for name, (agent, task, fields) in features.items():
        recorder.save(name, recorder.finished(agent, task, **fields))
    recorder.save("long_run", recorder.finished("solo", "count to 90", max_steps=100))
    first = recorder.finished("solo", "remember the hoopoe", session="birds")
    second = recorder.finished("solo", "what did I say?", session="birds")
    recorder.save("session", first, second)


def faults(recorder: Recorder) -> None:
    own: dict[str, tuple[str, str, dict[str, Any]]] = {
        "plans": ("planner", "do it in three steps", {}),
        "many_faults": ("mender", "many faults", {}),
        "all_refused": ("mender", "all refused", {}),
        "stumbling_model": ("mender", "stumble", {}),
        "rate_limit": ("mender", "be patient", {}),
        "no_last_word": ("mender", "no last word", {"max_steps": 1}),
        "parallel_members": ("head", "begin", {}),
        "effect": ("mender", "leave a mark", {}),
    }
    for name, (agent, task, fields) in own.items():
        recorder.save(name, recorder.finished(agent, task, **fields))


# --- runs that something happens to


def of(run: str) -> dict[str, Any]:
    """Return what every message of a root run has, at this moment."""
    return {"tree": run, "run": run, "at": time.time()}


def cancelled_tree(recorder: Recorder) -> None:
    """Its open calls are answered after the end."""
    gateway = recorder.gateway
    run = gateway.submit("head", "begin")
    child = f"{run}_1_0"
    gateway.wait_for(run, "delegate.started", run=child)
    gateway.request("POST", f"/v1/runs/{run}/cancel", json={"reason": "enough"})
    gateway.finished(run)
    # The member's own report comes first.
    settle(recorder, run, at_least=1, kind="delegate.finished")

    async def late(platform: Platform) -> None:
        call = f"{run}_1_2"
        result = ToolResult(id=f"{call}:result:late", **of(run), call=call, tool="say", output=1)
        await platform.bus.send(result, "say", to="head")
        member: dict[str, Any] = {"child": child, "agent": "middle", "state": "success"}
        await platform.bus.send(Report(id=f"{child}:report:late", **of(run), **member), "middle", to="head")
        again = Cancel(id=f"{run}:again", **of(run), reason="again", sender="test")
        await platform.bus.send(again, "test", to="head")

    recorder.with_platform(late)
    gateway.wait_for(f"{child}_1_0", "run.finished")
    settle(recorder, run, at_least=1, kind="record.ignored")
    recorder.save("cancelled_tree", run)


def cancelled_tool(recorder: Recorder) -> None:
    run = recorder.gateway.submit("mender", "take long")
    recorder.gateway.wait_for(run, "tool.answered")
    recorder.gateway.request("POST", f"/v1/runs/{run}/cancel", json={})
    recorder.gateway.finished(run)
    settle(recorder, run, at_least=2, kind="tool.answered")
    recorder.save("cancelled_tool", run)


def cancelled_before(recorder: Recorder) -> None:
    """The cancel overtakes the task."""
    run = "c0ffee" + "0" * 10 + str(next(_numbers))

    async def overtaken(platform: Platform) -> None:
        cancel = Cancel(id=f"{run}:cancel", **of(run), reason="not today", sender="test")
        await platform.bus.send(cancel, "test", to="mender")
        await asyncio.to_thread(settle, recorder, run, at_least=1, kind="cancel.requested")
        await platform.bus.send(Task(id=f"{run}:task", **of(run), agent="mender", task="too late"), "test")

    recorder.with_platform(overtaken)
    settle(recorder, run, at_least=1, kind="run.finished")
    recorder.save("cancelled_before", run)


def stray_records(recorder: Recorder) -> None:
    """Records that a run does not wait for, while it thinks."""
    run = recorder.gateway.submit("mender", "think long")
    recorder.gateway.wait_for(run, "model.called")

    async def stray(platform: Platform) -> None:
        call = f"{run}_9_9"
        result = ToolResult(id=f"{call}:result", **of(run), call=call, tool="say", output="?")
        await platform.bus.send(result, "say", to="mender")
        await platform.bus.send(Task(id=f"{run}:task:2", **of(run), agent="mender", task="another"), "test")

    recorder.with_platform(stray)
    recorder.gateway.finished(run)
    recorder.save("stray_records", run)


def lost_model_call(recorder: Recorder) -> None:
    run = recorder.gateway.submit("mender", "think long")
    recorder.gateway.wait_for(run, "model.called")
    recorder.stack.services["mender"].kill()
    recorder.stack.services["mender"].start()
    recorder.gateway.finished(run)
    recorder.save("lost_model_call", run)


def settle(recorder: Recorder, run: str, *, at_least: int, kind: str) -> None:
    """Waits until the tree's journals hold so many events of a kind."""

    def enough() -> bool:
        lines = recorder.with_platform(lambda platform: entries_of(platform, [run]))
        kinds = [event["type"] for line in lines for event in line["entry"]["events"]]
        return kinds.count(kind) >= at_least

    eventually(enough, what=f"{at_least} {kind} in {run}")


def ruled(recorder: Recorder) -> None:
    """Calls that policies let pass, hold and deny, also for what other runs of the day have paid."""
    gateway, books = recorder.gateway, "books"  # in the folder of the tools' service
    account = "US133000000121212121212"
    runs = [recorder.finished("clerk", f"Pay {account} and note it in ./{books} {euros}") for euros in (200, 6000)]
    held = gateway.submit("clerk", f"Pay the bill, note it in ./{books} 200")
    (call,) = waiting(gateway, held)
    decide(gateway, call["call"], "approved")
    gateway.finished(held)
    daily = [recorder.finished("teller", f"Pay it and note it in ./{books} 300", user="ann") for _ in range(2)]
    recorder.save("policies", *runs, held, *daily)


# --- stacks


def with_stack(
    folder: Path, agents: list[Path], tools: list[Path], script: Path, *acts: Callable[[Recorder], None]
) -> None:
    with tempfile.TemporaryDirectory() as scratch, Stack(Path(scratch)) as stack:
        stack.model(script)
        for file in agents:
            stack.agent(file, start=False)
        for file in tools:
            stack.tools(file, start=False)
        if any(read_agent(file).kind == "code" for file in agents):
            stack.add("sandbox", "cadre_sandbox", start=False)
        gateway = stack.open_gateway()
        for act in acts:
            act(Recorder(folder, stack, gateway))


def agents_in(folder: Path) -> list[Path]:
    return [file for file in sorted(folder.glob("*.yaml")) if file.name not in ("script.yaml", "team.yaml")]


def apollo(recorder: Recorder) -> None:
    recorder.save("apollo", recorder.finished("manager", "Write a brief for a museum case with Moon rock."))


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with_stack(folder, agents_in(APOLLO), sorted((APOLLO / "tools").glob("*.py")), APOLLO / "script.yaml", apollo)
    with_stack(folder, agents_in(FEATURES), sorted(FEATURES.glob("*.py")), FEATURES / "script.yaml", ordinary)
    with_stack(folder, agents_in(RULED), sorted(RULED.glob("*.py")), RULED / "script.yaml", ruled)
    with_stack(
        folder,
        agents_in(TEAM),
        sorted(TEAM.glob("*.py")),
        TEAM / "script.yaml",
        faults,
        cancelled_before,
        stray_records,
        lost_model_call,
        cancelled_tool,
        cancelled_tree,
        save_messages,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
