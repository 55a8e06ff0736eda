"""The cost before anything is asked: memory of an agent's process and of a team, CPU of the command line and of a
team's start."""

import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from bench.processes import cpu_of_command, cpu_seconds, descendants, pss_mb, rss_mb
from harness.stack import Stack

TEAM = Path(__file__).parents[2] / "tests" / "e2e" / "team"
APOLLO = Path(__file__).parents[2] / "teams" / "apollo"
CADRE = Path(sys.executable).parent / "cadre"
UP_WITHIN = 60.0


def measure(idle_seconds: float, runs: int, repeats: int) -> dict[str, Any]:
    return {
        **_agent(idle_seconds, runs),
        "cli_start_cpu_s": median(cpu_of_command(str(CADRE), "--help") for _ in range(repeats)),
        "cli_ps_cpu_s": median(cpu_of_command(str(CADRE), "ps") for _ in range(repeats)),
        "up_ready_s": median(_up() for _ in range(min(repeats, 3))),
        **_team(min(repeats, 3)),
    }


def _agent(idle_seconds: float, runs: int) -> dict[str, float]:
    """An agent's process with the real model client, as ready; then after `runs` runs with a tool call each."""
    with tempfile.TemporaryDirectory(prefix="cadre-bench-") as folder, Stack(Path(folder)) as stack:
        del stack.environment["CADRE_SHARDS"]  # the default is what is measured
        stack.model(TEAM / "script.yaml")
        agent = stack.add("worker", "cadre.cli.main", "agent", TEAM / "worker.yaml")
        pid = agent.pid
        ready = rss_mb(pid)
        before = cpu_seconds(pid)
        time.sleep(idle_seconds)
        idle = (cpu_seconds(pid) - before) / idle_seconds
        stack.tools(TEAM / "tools.py", start=False)
        gateway = stack.open_gateway()
        task = f"use look {folder}/marks 0"
        for run in [gateway.submit("worker", task) for _ in range(runs)]:
            result = gateway.finished(run)
            if result["output"] != "look is done":
                raise RuntimeError(f"run {run} did not succeed: {result}")
        return {
            "agent_rss_mb": ready,
            "agent_rss_after_run_mb": rss_mb(pid),
            "agent_idle_cpu_percent": idle * 100,
        }


def _up() -> float:
    """Seconds from starting `cadre up` on the shipped team until it names the gateway's address."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CADRE_")}
    with tempfile.TemporaryDirectory(prefix="cadre-bench-") as folder:
        started = time.perf_counter()
        with subprocess.Popen(
            [str(CADRE), "up", str(APOLLO), "--port", "0", "--data", folder],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            try:
                _wait_for_gateway(process)
                return time.perf_counter() - started
            finally:
                process.terminate()


def _team(repeats: int) -> dict[str, float]:
    """A manager, three members, tools, the gateway and NATS by `cadre up`: memory and CPU once all are ready. `cadre
    up` itself is not counted, nor the scripted model."""
    small, large = [_weighed(3) for _ in range(repeats)], [_weighed(6) for _ in range(repeats)]
    memory = median(one["memory"] for one in small)
    return {
        "team_pss_mb": memory,
        "team_start_cpu_s": median(one["cpu"] for one in small),
        "team_member_pss_mb": (median(one["memory"] for one in large) - memory) / 3,
    }


def _weighed(members: int) -> dict[str, float]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CADRE_")}
    environment |= {
        "CADRE_MODEL_URL": "http://127.0.0.1:9/v1",
        "CADRE_MODEL": "none",
        "CADRE_MODEL_KEY": "none",
    }
    with tempfile.TemporaryDirectory(prefix="cadre-bench-") as name:
        folder = Path(name)
        names = [f"member-{number}" for number in range(members)]
        for agent in ["manager", *names]:
            spec = (
                f"{{description: Works., team: [{', '.join(names)}]}}"
                if agent == "manager"
                else ("{description: Works., tools: [look]}")
            )
            (folder / f"{agent}.yaml").write_text(
                f"apiVersion: cadre.dev/v1\nkind: Agent\nmetadata: {{name: {agent}}}\nspec: {spec}\n"
            )
        (folder / "tools.py").write_text((TEAM / "tools.py").read_text())
        agents = ", ".join(f"{agent}.yaml" for agent in ["manager", *names])
        (folder / "team.yaml").write_text(
            "apiVersion: cadre.dev/v1\nkind: Team\nmetadata: {name: bench}\n"
            f"spec: {{agents: [{agents}], tools: [tools.py]}}\n"
        )
        data = folder / "data"
        with subprocess.Popen(
            [str(CADRE), "up", str(folder), "--port", "0", "--data", str(data)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            try:
                _wait_for_gateway(process)
                pids = descendants(process.pid)
                return {"memory": sum(map(pss_mb, pids)), "cpu": sum(map(cpu_seconds, pids))}
            finally:
                process.terminate()


def _wait_for_gateway(process: subprocess.Popen[bytes]) -> None:
    """Raises RuntimeError when the address does not come."""
    assert process.stdout is not None
    output, deadline = b"", time.monotonic() + UP_WITHIN
    while not any(line.startswith(b"gateway ") for line in output.splitlines(keepends=True)[:-1]):
        readable, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
        piece = os.read(process.stdout.fileno(), 65536) if readable else b""
        if not piece:
            raise RuntimeError(f"`cadre up` did not name its gateway; it said: {output.decode()!r}")
        output += piece
