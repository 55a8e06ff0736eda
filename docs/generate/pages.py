"""Every generated file, as it should be now: whole files, and blocks between markers in written pages."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from generate import (
    alerts,
    chart,
    commands,
    diagram,
    endpoint_answers,
    metrics,
    names,
    offered_tools,
    prompt_templates,
    release,
    rooms,
    settings_page,
    shapes,
    tables,
    tool_types,
)
from generate.asyncapi import document
from generate.machine import explore
from generate.schemas import MESSAGES, schema_of

DOCS = Path(__file__).parents[1]

SCHEMAS = DOCS / "protocol" / "schemas"


def pages() -> dict[Path, str]:
    """The text of each file that is generated, in whole or in part. Raises LookupError for a missing marker."""
    edges = explore().edges
    blocks: dict[Path, dict[str, Callable[[], str]]] = {
        DOCS / "protocol.md": {
            "subjects": tables.subjects,
            "error codes": tables.error_codes,
            "ignored codes": tables.ignored_codes,
            "edit codes": tables.edit_codes,
            "messages": tables.messages,
            "events": tables.events,
        },
        DOCS / "observability.md": {
            "metrics": metrics.table,
            "alerts": lambda: alerts.table("alerts.yml"),
            "alerts of Kubernetes": lambda: alerts.table("kubernetes-alerts.yml"),
        },
        DOCS / "tools.md": {
            "types": tool_types.table,
            "standard tools": partial(offered_tools.table, "cadre_standard_tools"),
            "tools of the browser": partial(offered_tools.table, "cadre_browser"),
        },
        DOCS / "python.md": {
            "event classes": names.event_classes,
            **{name: partial(names.names, name) for name in ("cadre.client", "cadre.protocol", "cadre.testing")},
        },
        DOCS / "access.md": {"routes and rights": tables.rights},
        DOCS / "openai-api.md": {"clients": tables.clients},
        DOCS / "http-api.md": {
            **shapes.blocks(),
            "event names": tables.event_names,
            "problems": tables.problems,
        },
        DOCS / "architecture.md": {
            "rooms of the library": rooms.library,
            "rooms of the services": rooms.services,
            "diagram": lambda: diagram.state_diagram(edges),
            "states": lambda: diagram.state_table(edges),
        },
    }
    return {
        DOCS / "protocol" / "asyncapi.json": _json(document()),
        DOCS / "prompts.md": prompt_templates.page(),
        DOCS / "commands.md": commands.page(),
        DOCS / "settings.md": settings_page.page(),
        DOCS / "endpoints.md": endpoint_answers.page(),
        **chart.files(),
        **release.files(),
        **{SCHEMAS / f"{message.__name__}.json": _json(schema_of(message)) for message in MESSAGES},
        **{page: _filled(page, made) for page, made in blocks.items()},
    }


def stale() -> list[Path]:
    """Files that do not say what the code says, and schemas of messages that are no more."""
    wanted = pages()
    old = [path for path, text in wanted.items() if not path.is_file() or path.read_text() != text]
    return sorted([*old, *leftovers(wanted)])


def leftovers(wanted: dict[Path, str]) -> list[Path]:
    return [path for path in SCHEMAS.glob("*.json") if path not in wanted]


def write() -> list[Path]:
    """Brings all files up to date; returns those that were not."""
    wanted, old = pages(), stale()
    for path in old:
        if path in wanted:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[path])
        else:
            path.unlink()
    return old


def _filled(page: Path, blocks: dict[str, Callable[[], str]]) -> str:
    text = page.read_text()
    for name, make in blocks.items():
        begin, end = f"<!-- generated: {name} -->", "<!-- end -->"
        before, found, rest = text.partition(begin)
        _, ended, after = rest.partition(end)
        if not found or not ended:
            raise LookupError(f"{page}: needs a block between {begin} and {end}")
        text = f"{before}{begin}\n{make()}\n{end}{after}"
    return text


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
