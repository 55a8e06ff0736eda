"""The explored machine as a mermaid diagram and as a table."""

from generate.machine import Edge, explore


def state_diagram(edges: list[Edge] | None = None) -> str:
    """Phases and the arrivals that lead from one to another; the rest changes nothing."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for edge in explore().edges if edges is None else edges:
        labels = arrows.setdefault((edge.source.name, edge.target.name), [])
        if edge.arrival not in labels:
            labels.append(edge.arrival)
    lines = [f"    {source} --> {target}: {', '.join(labels)}" for (source, target), labels in arrows.items()]
    return "\n".join(["```mermaid", "stateDiagram-v2", "    [*] --> NEW", *lines, "    DONE --> [*]", "```"])


def state_table(edges: list[Edge] | None = None) -> str:
    """One row per phase and arrival: where it leads, and the events that may tell of it."""
    rows: dict[tuple[str, str], tuple[list[str], list[str]]] = {}
    for edge in explore().edges if edges is None else edges:
        targets, events = rows.setdefault((edge.source.name, edge.arrival), ([], []))
        targets += [edge.target.name] if edge.target.name not in targets else []
        events += [event for event in edge.events if event not in events]
    lines = [
        f"| {source} | {arrival} | {', '.join(targets)} | {', '.join(f'`{event}`' for event in events)} |"
        for (source, arrival), (targets, events) in sorted(rows.items(), key=lambda row: _rank(row[0][0]))
    ]
    return "\n".join(["| phase | arrival | leads to | events, as the case may be |", "|---|---|---|---|", *lines])


def _rank(phase: str) -> int:
    return ["NEW", "THINKING", "WAITING", "ACTING", "DONE"].index(phase)
