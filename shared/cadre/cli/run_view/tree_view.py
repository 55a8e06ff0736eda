"""Draws the delegation tree with rich."""

from rich.text import Text
from rich.tree import Tree as Drawing

from cadre.cli.run_view.plan_lines import PLAN_SIGNS, plan_line
from cadre.cli.run_view.run_tree import CallNode, RunNode, RunTree, missing_lines
from cadre.views.words import brief, call_text, number, seconds

_SIGNS = {
    "queued": ("◌", "bright_black"),
    "running": ("●", "yellow"),
    "waiting": ("◌", "magenta"),
    "success": ("✓", "green"),
    "max_steps_error": ("!", "yellow"),
    "error": ("✗", "red"),
    "cancelled": ("–", "bright_black"),
}
_CALL_SIGNS = {
    "held": ("◌", "magenta"),
    "open": ("…", "yellow"),
    "ok": ("✓", "green"),
    "failed": ("✗", "red"),
    "dropped": ("–", "bright_black"),
}

_MAX_TOLD = 8
"""Lines of a kind's own event that a run shows."""


def draw(tree: RunTree, now: float, *, width: int = 100, recent: int = 6) -> Drawing | Text:
    """Draws the whole tree as of `now` (Unix seconds), with the last `recent` tool calls of each run."""
    root = tree.root
    if root is None:
        return Text("waiting for the run to begin …", style="bright_black")
    drawing = Drawing(_head(tree, root, now, width), guide_style="bright_black")
    _add_calls(drawing, tree, root, now, width, recent)
    return drawing


def _add_calls(drawing: Drawing, tree: RunTree, node: RunNode, now: float, width: int, recent: int) -> None:
    for step in node.plan:
        style = PLAN_SIGNS[step.state][1]
        drawing.add(Text(brief(plan_line(step), width), style=style, no_wrap=True, overflow="ellipsis"))
    shown = _shown(node, tree, recent)
    hidden = len(node.calls) - len(shown)
    if hidden:
        drawing.add(Text(f"… {hidden} earlier", style="bright_black"))
    for call in shown:
        child = tree.nodes.get(call.id)
        if child is None:
            leaf = drawing.add(_call(call, width, is_over=node.ended_at is not None))
            if call.state == "held" and node.ended_at is None:
                leaf.add(Text(f"cadre approve {call.id}", style="bright_black", overflow="fold"))
        else:
            _add_calls(drawing.add(_head(tree, child, now, width)), tree, child, now, width, recent)
    for text, style in _remarks(node):
        drawing.add(Text(brief(text, width), style=style, no_wrap=True, overflow="ellipsis"))


def _shown(node: RunNode, tree: RunTree, recent: int) -> list[CallNode]:
    leaves = [call.id for call in node.calls if call.id not in tree.nodes]
    kept = set(leaves[-recent:])
    return [
        call
        for call in node.calls
        if call.id in tree.nodes or call.id in kept or call.state in ("open", "held")
    ]


def _remarks(node: RunNode) -> list[tuple[str, str]]:
    remarks = [(line, "yellow") for line in missing_lines(node)]
    if node.ended_at is None:
        remarks += [(line, "cyan") for line in node.told[:_MAX_TOLD]]
        remarks += [(f"… {len(node.told) - _MAX_TOLD} more", "bright_black")] if node.told[_MAX_TOLD:] else []
    if node.note:
        remarks.append((f"last step: {node.note}", "red"))
    if node.writing:
        remarks.append((node.writing[::-1][:200][::-1], "italic bright_black"))
    if node.error:
        remarks.append((node.error, "red"))
    return remarks


def _head(tree: RunTree, node: RunNode, now: float, width: int) -> Text:
    sign, style = _SIGNS.get(node.state, ("?", ""))
    text = Text(f"{sign} ", style=style, no_wrap=True, overflow="ellipsis")
    text.append(node.agent or node.run, style="bold")
    if node.step:
        text.append(f"  step {node.step}" + (f"/{node.max_steps}" if node.max_steps else ""), style="cyan")
    if node.doing:
        text.append(f"  {brief(node.doing, width)}", style=style)
    facts = [f"{number(tree.tokens(node.run))} tokens"] if tree.tokens(node.run) else []
    if node.started_at:
        facts.append(seconds((node.ended_at or now) - node.started_at))
    text.append("  " + ", ".join(facts), style="bright_black")
    if node.task:
        text.append(f"  {brief(node.task, max(width - len(text.plain), 20))}", style="bright_black")
    return text


def _call(call: CallNode, width: int, *, is_over: bool) -> Text:
    """One call on a line. In a run that is over, nobody waits for an open call any more: it is shown as dropped."""
    sign, style = _CALL_SIGNS["dropped" if is_over and call.state in ("open", "held") else call.state]
    text = Text(f"{sign} ", style=style, no_wrap=True, overflow="ellipsis")
    if call.state == "held":
        text.append(f"{'waited' if is_over else 'waits'} for approval: ", style=style)
        text.append(call_text(call.name, call.arguments, width // 2))
        text.append(f" ({brief(call.remark, width // 3)})", style="bright_black")
        return text
    text.append(call.name)
    if call.seconds is not None:
        text.append(f" {seconds(call.seconds)}", style="bright_black")
    text.append(f" {brief(call.arguments, width // 3)}", style="bright_black")
    if call.remark and call.state != "failed":
        text.append(f" [{brief(call.remark, width // 3)}]", style="magenta")
    if call.state != "open":
        text.append(f" → {brief(call.result, width // 2)}", style="red" if call.state == "failed" else "")
    return text
