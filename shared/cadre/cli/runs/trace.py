"""`cadre trace`: where the time and the tokens of a run went."""

from io import BytesIO
from typing import Any

import click
from rich.console import Console
from rich.text import Text
from rich.tree import Tree as Drawing

from cadre.cli.terminal.gateway import Gateway
from cadre.cli.terminal.options import print_json
from cadre.errors import ExitCode
from cadre.telemetry.tracing import names
from cadre.views.words import brief, number, seconds

_WAITS = (names.WAIT_APPROVAL, names.WAIT_MODEL)


@click.command("trace")
@click.argument("run")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["tree", "otlp", "html", "json"]),
    default="tree",
    show_default=True,
    help="otlp: a file for any backend of OpenTelemetry; html: one page for a browser.",
)
def command(run: str, output: str) -> int:
    """Show the trace of RUN and of all runs below it: an id, a unique beginning of one, or @last.

    It is read from the journals and needs no backend. What has not ended yet is marked as such.
    """
    with Gateway() as gateway:
        path = f"/v1/runs/{gateway.run_id(run)}/trace"
        if output == "html":
            page = BytesIO()
            gateway.download(f"{path}?format=html", page)
            click.echo(page.getvalue().decode())
            return ExitCode.OK
        found = gateway.get(path, format="otlp" if output == "otlp" else None)
    if output == "tree":
        console = Console(highlight=False)
        for drawing in span_trees(found["spans"]):
            console.print(drawing)
    else:
        print_json(found)
    return ExitCode.OK


def span_trees(spans: list[dict[str, Any]]) -> list[Drawing]:
    """Return a tree for each root span. `spans` are ordered parents first, each with its depth."""
    roots: list[Drawing] = []
    above: list[Drawing] = []
    for span in spans:
        del above[span["depth"] :]
        head = _head(span)
        if above:
            above.append(above[-1].add(head))
        else:
            roots.append(Drawing(head, guide_style="bright_black"))
            above.append(roots[-1])
    return roots


def _head(span: dict[str, Any]) -> Text:
    attributes = span.get("attributes", {})
    failed, is_open = span.get("status") == "ERROR", span.get("open", False)
    waits = span["name"].split()[0] in _WAITS
    style = "red" if failed else "magenta" if waits else "yellow" if is_open else ""
    text = Text(brief(span["name"], 80), style=style, no_wrap=True, overflow="ellipsis")
    facts = [seconds((span["end"] - span["start"]) / 1e9) + (" so far" if is_open else "")]
    if names.INPUT_TOKENS in attributes:
        tokens_in, tokens_out = attributes[names.INPUT_TOKENS], attributes.get(names.OUTPUT_TOKENS, 0)
        facts.append(f"{number(tokens_in)} + {number(tokens_out)} tokens")
    elif names.ALL_INPUT_TOKENS in attributes:
        facts.append(f"{number(attributes[names.ALL_INPUT_TOKENS] + attributes[names.ALL_OUTPUT_TOKENS])} tokens")
    if (cost := attributes.get(names.COST, attributes.get(names.ALL_COST))) is not None:
        facts.append(f"cost {cost:.4g}")
    if attributes.get(names.ATTEMPT, 1) > 1:
        facts.append(f"attempt {attributes[names.ATTEMPT]}")
    if span["name"].startswith(names.PROCESS) and span.get("instance"):
        facts.append(f"by {span['instance']}")
    text.append("  " + ", ".join(facts), style="bright_black")
    if names.APPROVAL_OUTCOME in attributes:
        text.append(f"  {attributes[names.APPROVAL_OUTCOME]}", style="magenta")
    if failed:
        text.append(f"  {brief(span.get('message') or 'failed', 120)}", style="red")
    return text
