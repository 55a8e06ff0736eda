"""Draws the delegation tree with rich."""

from rich.text import Text
from rich.tree import Tree as Drawing

from cadre.cli.run_view.screen import RunTree
from cadre.views.rows import Row, RunFacts
from cadre.views.words import brief, number, seconds

_SIGNS = {
    "queued": ("◌", "bright_black"),
    "open": ("●", "yellow"),
    "held": ("◌", "magenta"),
    "waiting": ("◌", "magenta"),
    "ok": ("✓", "green"),
    "failed": ("✗", "red"),
    "dropped": ("–", "bright_black"),
}
_OUT_OF_STEPS = ("!", "yellow")
_WORK_SIGNS = {**_SIGNS, "queued": ("☐", "bright_black"), "open": ("…", "yellow"), "ok": ("☑", "green")}
_CALL_SIGNS = {**_SIGNS, "open": ("…", "yellow")}

_MAX_LINES = 8
"""Lines of a kind's own event that a run shows."""


def draw(tree: RunTree, now: float, *, width: int = 100, recent: int = 6) -> Drawing | Text:
    """Draw the whole tree as of `now` (Unix seconds), with the last `recent` tool calls of each run."""
    root = tree.root
    if root is None:
        return Text("waiting for the run to begin …", style="bright_black")
    drawing = Drawing(_head(tree, root, now, width), guide_style="bright_black")
    _add_below(drawing, tree, root, now, width, recent)
    return drawing


def _add_below(drawing: Drawing, tree: RunTree, run: Row, now: float, width: int, recent: int) -> None:
    own = tree.of_run(run.run)
    for row in own:
        if row.kind == "work":
            drawing.add(_work(row, width))
    calls = [row for row in own if row.kind == "call"]
    children = {row.parent: row for row in tree.runs()}
    leaves = [row.key for row in calls if row.key not in children]
    kept = {*leaves[-recent:], *children}
    shown = [row for row in calls if row.key in kept or not row.ended_at]
    if hidden := len(calls) - len(shown):
        drawing.add(Text(f"… {hidden} earlier", style="bright_black"))
    for row in shown:
        if (child := children.get(row.key)) is not None:
            _add_below(drawing.add(_head(tree, child, now, width)), tree, child, now, width, recent)
            continue
        leaf = drawing.add(_call(row, width))
        if row.state == "held":
            call = row.key.partition(":")[2]
            leaf.add(Text(f"cadre approve {call}", style="bright_black", overflow="fold"))
    for text, style in _remarks(run, tree.writing.get(run.run, "")):
        drawing.add(Text(brief(text, width), style=style, no_wrap=True, overflow="ellipsis"))


def _remarks(run: Row, writing: str) -> list[tuple[str, str]]:
    facts = run.facts or RunFacts()
    remarks = [(line, "yellow") for line in facts.missing]
    if not run.ended_at:
        remarks += [(line, "cyan") for line in run.lines[:_MAX_LINES]]
        remarks += [(f"… {len(run.lines) - _MAX_LINES} more", "bright_black")] if run.lines[_MAX_LINES:] else []
    if run.remark:
        remarks.append((f"last step: {run.remark}", "red"))
    if writing:
        remarks.append((writing[::-1][:200][::-1], "italic bright_black"))
    if run.error:
        remarks.append((run.error, "red"))
    return remarks


def _head(tree: RunTree, run: Row, now: float, width: int) -> Text:
    facts = run.facts or RunFacts()
    sign, style = _OUT_OF_STEPS if facts.ended == "max_steps_error" else _SIGNS[run.state]
    text = Text(f"{sign} ", style=style, no_wrap=True, overflow="ellipsis")
    text.append(run.name or run.run, style="bold")
    if facts.step:
        text.append(f"  step {facts.step}" + (f"/{facts.max_steps}" if facts.max_steps else ""), style="cyan")
    if run.words:
        text.append(f"  {brief(run.words, width)}", style=style)
    tokens = tree.tokens(run.run)
    numbers = [f"{number(tokens)} tokens"] if tokens else []
    numbers.append(seconds((run.ended_at or now) - run.began_at))
    text.append("  " + ", ".join(numbers), style="bright_black")
    if run.brief:
        text.append(f"  {brief(run.brief, max(width - len(text.plain), 20))}", style="bright_black")
    return text


def _work(row: Row, width: int) -> Text:
    sign, style = _WORK_SIGNS[row.state]
    outcome = row.error or row.result
    text = f"{sign} {row.name} {row.brief}" + (f" → {outcome}" if outcome else "")
    return Text(brief(text, width), style=style, no_wrap=True, overflow="ellipsis")


def _call(row: Row, width: int) -> Text:
    """Return one call on a line."""
    sign, style = _CALL_SIGNS[row.state]
    text = Text(f"{sign} ", style=style, no_wrap=True, overflow="ellipsis")
    if row.state == "held":
        text.append("waits for approval: ", style=style)
        text.append(brief(row.name + row.brief, width // 2))
        text.append(f" ({brief(row.remark, width // 3)})", style="bright_black")
        return text
    text.append(row.name)
    if row.ended_at and row.state != "dropped":
        text.append(f" {seconds(row.ended_at - row.began_at)}", style="bright_black")
    text.append(f" {brief(row.brief, width // 3)}", style="bright_black")
    if row.remark and row.state != "failed":
        text.append(f" [{brief(row.remark, width // 3)}]", style="magenta")
    if row.ended_at:
        text.append(f" → {brief(row.error or row.result, width // 2)}", style="red" if row.state == "failed" else "")
    return text
