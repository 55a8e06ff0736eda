"""The meaning of the figures: their names and units, the targets, the table and the JSON document."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table


class Target(NamedTuple):
    limit: float
    at_least: bool = False

    def is_reached(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.limit:g}"


class Row(NamedTuple):
    key: str
    what: str
    unit: str = ""
    digits: int = 2
    target: Target | None = None


ROWS = [
    Row("shards", "shards", digits=0),
    Row("delegation_p50_ratio", "delegation / request, median, 1 in flight", "×", 1, Target(15)),
    Row("relay_p50_ratio", "… its messages alone, no agent in them / request", "×", 1),
    Row("delegation_p50_ms", "delegation, 1 in flight, p50", "ms"),
    Row("delegation_p99_ms", "delegation, 1 in flight, p99", "ms"),
    Row("core_rr_p50_ms", "core request, 1 in flight, p50", "ms", 3),
    Row("core_rr_p99_ms", "core request, 1 in flight, p99", "ms", 3),
    Row("append_p50_ms", "one bare append, 1 in flight, p50", "ms", 3),
    Row(
        "delegation_throughput_ratio",
        "delegations / requests per second, 64 in flight",
        "×",
        4,
        Target(0.04, True),
    ),
    Row("relay_throughput_ratio", "… its messages alone, no agent in them / requests", "×", 4),
    Row("delegations_per_second", "delegations, 64 in flight", "/s", 0),
    Row("core_rr_per_second", "core requests, 64 in flight", "/s", 0),
    Row("appends_per_second", "bare appends, 64 in flight", "/s", 0),
    Row("delegation_messages", "messages that a delegation stores", digits=1),
    Row("delegation_at_64_p50_ms", "delegation, 64 in flight, p50", "ms", 1),
    Row("delegation_at_64_p99_ms", "delegation, 64 in flight, p99", "ms", 1),
    Row("delegation_cpu_us_manager", "CPU per delegation: manager", "µs", 0),
    Row("delegation_cpu_us_worker", "CPU per delegation: member", "µs", 0),
    Row("delegation_cpu_us_nats", "CPU per delegation: nats-server", "µs", 0),
    *(
        row
        for name, what in (
            ("10ms", "one server, every 10 ms"),
            ("2m", "one server, every 2 min"),
            ("three_always", "three servers, always"),
            ("three_100ms", "three servers, every 100 ms"),
            ("three_10ms", "three servers, every 10 ms"),
        )
        for row in (
            Row(f"sync_append_p50_ratio_{name}", f"{what} / one server synced always: one bare append, p50", "×"),
            Row(f"sync_append_rate_ratio_{name}", "… appends per second, 64 in flight", "×"),
            Row(f"sync_delegation_p50_ratio_{name}", "… one delegation, p50", "×"),
            Row(f"sync_delegation_rate_ratio_{name}", "… delegations per second, 64 in flight", "×"),
        )
    ),
    Row("step_cpu_ms_first", "CPU per step, steps 1–10", "ms", 3),
    Row("step_cpu_ms_last", "CPU per step, steps 41–50", "ms", 3),
    Row("step_cpu_beyond_bus_ms_first", "… beyond the bus, steps 1–10", "ms", 3, Target(1)),
    Row("step_cpu_beyond_bus_ms_last", "… beyond the bus, steps 41–50", "ms", 3, Target(1)),
    Row("step_cpu_growth", "… beyond the bus, last / first", "×", 2, Target(1.3)),
    Row("step_cpu_ms_first_16_runs", "CPU per step, 16 runs at once, steps 1–10", "ms", 3),
    Row("step_cpu_ms_last_16_runs", "CPU per step, 16 runs at once, steps 41–50", "ms", 3),
    Row("steps_per_second", "steps, one run alone", "/s", 0),
    Row("steps_per_second_16_runs", "steps, 16 runs at once", "/s", 0),
    Row("endpoint_step_cpu_ms_20", "CPU per step with an endpoint, 4 kB each, 20 pieces: step 20", "ms", 1),
    Row("endpoint_step_growth_20", "… step 200 / step 20", "×", 2, Target(2)),
    Row("endpoint_step_cpu_ms_200", "… 200 pieces: step 20", "ms", 1),
    Row("endpoint_step_growth_200", "… step 200 / step 20", "×", 2, Target(2)),
    Row(
        "workflow_step_ratio",
        "a workflow's step without a model / a step with the same call",
        "×",
        2,
        Target(1),
    ),
    Row("tracing_step_rate_ratio", "… with a tracer at work / without", "×", 3, Target(0.95, True)),
    Row("tracing_cpu_us_per_span", "CPU of the tracer per span", "µs", 0),
    Row("metrics_step_rate_ratio", "… with metrics counted / without", "×", 3, Target(0.95, True)),
    Row("metrics_step_rate_spread", "… two stretches without differ by", "×", 3),
    Row("metrics_cpu_us_per_step", "CPU of metrics per step", "µs", 0),
    Row("events_per_step", "journal events per step"),
    Row("entries_per_step", "journal entries per step"),
    Row("journal_ratio_20_1000", "stored / observations, a run of 20 of 1 kB", "×", 2, Target(2)),
    Row("journal_ratio_600_1000", "… 600 of 1 kB", "×", 2, Target(2)),
    Row("journal_ratio_600_4000", "… 600 of 4 kB", "×", 2, Target(2)),
    Row("journal_ratio_3000_1000", "… 3,000 of 1 kB", "×", 2, Target(2)),
    Row("journal_beyond_20_1000", "bytes of an entry besides its events, a run of 20", "B", 0, Target(300)),
    Row("journal_beyond_600_1000", "… of 600", "B", 0, Target(300)),
    Row("journal_beyond_3000_1000", "… of 3,000", "B", 0, Target(300)),
    Row("journal_read_cpu_us_600_1000", "CPU of reading a run of 600 observations, per entry", "µs", 0),
    Row("agent_rss_mb", "resident memory of an agent's process, ready", "MB", 1, Target(60)),
    Row("agent_rss_after_run_mb", "… after runs with tool calls", "MB", 1),
    Row("agent_idle_cpu_percent", "CPU of an idle agent's process", "%", 1),
    Row("waiting_runs", "runs that wait for a person", digits=0),
    Row("waiting_rss_mb_0", "their agent's resident memory: before", "MB", 1),
    Row("waiting_rss_mb_500", "… with 500", "MB", 1),
    Row("waiting_rss_mb_2000", "… with 2,000", "MB", 1),
    Row("waiting_rss_mb_10000", "… with 10,000", "MB", 1),
    Row("waiting_rss_growth_mb", "… from the fewer to the more", "MB", 1, Target(5)),
    Row("waiting_idle_cpu_percent", "… CPU of its process meanwhile", "%", 1),
    Row("waiting_consumers_added", "… consumers that they added", "", 0, Target(0)),
    Row("waiting_begun_per_second", "… runs begun and put aside", "/s", 0),
    Row("code_bus_warm_p50_ms", "a block of code in a warm interpreter, over the bus, p50", "ms"),
    Row("code_bus_alone_p50_ms", "… the bus's own part: the same messages, nothing run", "ms"),
    Row("code_bus_warm_beyond_ms", "… beyond the bus", "ms", target=Target(3)),
    Row("code_bus_warm_request_ratio", "… / core request", "×", 1),
    Row("code_small_ms", "… without the bus", "ms"),
    Row("code_fresh_p50_ms", "a fresh interpreter, p50", "ms", 1, Target(20)),
    Row("code_pool_p50_ms", "… from the pool", "ms"),
    Row("code_late_loop_s", "control back beyond the limit: `while True`", "s", 3, Target(0.5)),
    Row("code_late_c_s", "… a loop in C", "s", 3, Target(0.5)),
    Row("code_late_deaf_s", "… code that catches everything", "s", 3, Target(0.5)),
    Row("code_late_signals_s", "… code that ignores all signals", "s", 3, Target(0.5)),
    Row("code_snapshot_kb", "variables stored after 1 block", "kB", 1),
    Row("code_snapshot_growth", "… after 60 that changed them, as many times", "×", 2, Target(1.1)),
    Row("code_small_peer_ratio", "smolagents' interpreter / a warm block: 3 lines", "×", 2),
    Row("code_loop_peer_ratio", "… a loop of 20,000", "×", 1),
    Row("code_words_peer_ratio", "… counting 7,000 words", "×", 1),
    Row("code_late_shorter_c_s", "control back beyond the limit: some seconds in C", "s", 2),
    Row("code_late_shorter_c_peer_s", "… smolagents' interpreter", "s", 2),
    Row("memory_points", "memories stored in the embedded index", digits=0),
    Row("memory_inserts_per_second_1k", "memories stored per second, up to 1,000", "/s", 0),
    Row("memory_insert_p50_ms_1k", "… one alone, p50", "ms"),
    Row("memory_search_p50_ms_1k", "… a person's searched by words and meaning, p50", "ms"),
    Row("memory_search_p99_ms_1k", "… p99", "ms"),
    Row("memory_search_all_p50_ms_1k", "… all of them searched, p50", "ms"),
    Row("memory_inserts_per_second_10k", "memories stored per second, up to 10,000", "/s", 0),
    Row("memory_insert_p50_ms_10k", "… one alone, p50", "ms"),
    Row("memory_search_p50_ms_10k", "… a person's searched by words and meaning, p50", "ms", target=Target(10)),
    Row("memory_search_p99_ms_10k", "… p99", "ms"),
    Row("memory_search_all_p50_ms_10k", "… all of them searched, p50", "ms"),
    Row("memory_inserts_per_second_100k", "memories stored per second, up to 100,000", "/s", 0),
    Row("memory_insert_p50_ms_100k", "… one alone, p50", "ms"),
    Row("memory_search_p50_ms_100k", "… a person's searched by words and meaning, p50", "ms"),
    Row("memory_search_p99_ms_100k", "… p99", "ms"),
    Row("memory_search_all_p50_ms_100k", "… all of them searched, p50", "ms"),
    Row("recall_steps_sparse", "recall@5 of notes asked for in other words: by words"),
    Row("recall_steps_dense", "… by meaning (local model)"),
    Row("recall_steps_hybrid", "… by both", target=Target(0.9, True)),
    Row("recall_lookalikes_sparse", "recall@5 of log lines that differ in a number: by words"),
    Row("recall_lookalikes_dense", "… by meaning (local model)"),
    Row("recall_lookalikes_hybrid", "… by both", target=Target(0.9, True)),
    Row("cli_start_cpu_s", "CPU of `cadre --help`", "s", 2, Target(0.3)),
    Row("cli_ps_cpu_s", "CPU of `cadre ps`", "s", 2),
    Row("up_ready_s", "`cadre up teams/apollo` until the gateway answers", "s", 2, Target(5)),
    Row("team_pss_mb", "a manager, three members, tools, gateway and NATS: memory", "MB", 0, Target(170)),
    Row("team_start_cpu_s", "… CPU until all are ready", "s", 1),
    Row("team_member_pss_mb", "… memory of a member more", "MB", 1, Target(12)),
    Row("kill_to_report_s", "member killed in its model call, until its report", "s", 2, Target(5)),
]


def verdicts(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """For each target whose figure was taken: `{value, target, reached}`."""
    return {
        row.key: {
            "value": values[row.key],
            "target": str(row.target),
            "reached": row.target.is_reached(values[row.key]),
        }
        for row in ROWS
        if row.target is not None and row.key in values
    }


def document(values: Mapping[str, Any], machine: Mapping[str, Any]) -> dict[str, Any]:
    """Return what build/bench.json holds: every figure under its key, the verdicts under `targets`."""
    return {**values, "targets": verdicts(values), "machine": dict(machine)}


def table(values: Mapping[str, Any]) -> Table:
    found = Table(title="bench", title_justify="left", header_style="bold")
    found.add_column("what")
    for heading in ("measured", "target"):
        found.add_column(heading, justify="right", no_wrap=True)
    found.add_column("")
    for row in ROWS:
        if row.key in values:
            value = values[row.key]
            verdict = "" if row.target is None else "reached" if row.target.is_reached(value) else "MISSED"
            style = "red" if verdict == "MISSED" else None
            # What could not be measured says why.
            shown = value if isinstance(value, str) else f"{value:,.{row.digits}f} {row.unit}".rstrip()
            found.add_row(row.what, shown, str(row.target or ""), verdict, style=style)
    return found


def conclusion(values: Mapping[str, Any]) -> str:
    """One line: how many of the targets, and which were missed."""
    judged = verdicts(values)
    missed = [key for key, verdict in judged.items() if not verdict["reached"]]
    return f"{len(judged) - len(missed)} of {len(judged)} targets reached" + (
        f"; missed: {', '.join(missed)}" if missed else ""
    )


def sweep_table(by_shards: Mapping[int, Mapping[str, Any]]) -> Table:
    found = Table(title="shards", title_justify="left", header_style="bold")
    for heading in ("shards", "p50 ms", "p50 ratio", "per second", "throughput ratio", "p99 ms at 64"):
        found.add_column(heading, justify="right")
    for shards, values in by_shards.items():
        found.add_row(
            str(shards),
            f"{values['delegation_p50_ms']:.2f}",
            f"{values['delegation_p50_ratio']:.1f}",
            f"{values['delegations_per_second']:.0f}",
            f"{values['delegation_throughput_ratio']:.4f}",
            f"{values['delegation_at_64_p99_ms']:.0f}",
        )
    return found


def show(*tables: Table) -> None:
    # A pipe has no width; the table's own is what it needs.
    console = Console()
    if not console.is_terminal:
        console = Console(width=110)
    for one in tables:
        console.print(one)
