"""The cost of metrics for the runs that they count: steps per second and CPU with them, against without."""

from statistics import median
from typing import Any

from bench.deployment import deployment
from bench.paced import STEPS, PacedModel
from bench.steps import Cost, executor, stretches
from cadre.adapters.otel_metrics import OtelForm
from cadre.spec.agent import AgentSpec, Limits


async def measure(rounds: int, group: int) -> dict[str, Any]:
    """`rounds` of `group` runs at once, counted and uncounted in turns, so that both see the same machine."""
    ratios, costs, spreads = [], [], []
    async with deployment() as here, executor(here):
        model, meters = PacedModel(), here.platform.meters
        limits = Limits(max_steps=STEPS + 5)
        spec = AgentSpec(name="stepper", description="Looks up.", tools=["lookup"], limits=limits)
        await here.serve(spec, model)
        await here.offered("lookup")
        form = OtelForm(meters, "stepper", "bench", {})
        await stretches(here, model, group)
        before = await stretches(here, model, group)
        for _ in range(rounds):
            meters.on = True
            counted = await stretches(here, model, group)
            # As Prometheus would.
            assert b"gen_ai_execute_tool_duration_seconds_count" in form.text([])
            meters.on = False
            after = await stretches(here, model, group)
            ratios.append(2 * counted.rate / (before.rate + after.rate))
            costs.append(_cpu(counted) - (_cpu(before) + _cpu(after)) / 2)
            spreads.append(abs(after.rate / before.rate - 1))
            before = after
    return {
        "metrics_step_rate_ratio": median(ratios),
        # What one such ratio may be off by on this machine at this hour.
        "metrics_step_rate_spread": median(spreads),
        "metrics_cpu_us_per_step": 1e3 * median(costs),
    }


def _cpu(cost: Cost) -> float:
    """Milliseconds per step."""
    return (cost.first + cost.last) / 2
