"""The tools of an MCP server as tools of Cadre: their names, cards and effects."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from cadre.adapters.mcp.server_file import CadreSection, OneTool, ServerSpec
from cadre.errors import ToolDefinitionError
from cadre.protocol.cards import ToolCard
from cadre.tools.context import ToolContext
from cadre.tools.decorator import ToolOptions, check_options, make_card
from cadre.tools.foreign import ForeignTool

if TYPE_CHECKING:
    from mcp_types import Tool as ListedTool

log = logging.getLogger("cadre.mcp")

MAX_NAME_CHARS = 64
_DIGEST_CHARS = 8
_READ_RESOURCE = "read_resource"

Caller = Callable[["McpTool", dict[str, Any], ToolContext], Awaitable[Any]]


class McpTool(ForeignTool):
    """A tool of an MCP server, as its server's last listing describes it."""

    def __init__(self, listed: str, card: ToolCard, concurrency: int | None, caller: Caller) -> None:
        super().__init__(_by_cadre_alone, card, concurrency)
        self.listed = listed
        """Its name at the server."""
        self.is_async = True
        self._caller = caller

    async def call(self, arguments: dict[str, Any], context: ToolContext | None = None) -> Any:
        """Has the server run the tool. Raises InvalidArguments, CallInterrupted and what the server says."""
        context = ToolContext() if context is None else context
        checked = arguments if context.cleanup and context.resumes else self._checked(arguments, [])
        return await self._caller(self, checked, context)


def _by_cadre_alone(**arguments: Any) -> Any:
    raise TypeError("a tool of an MCP server is called through its executor")


def name_for(listed: str, prefix: str) -> str:
    """The name of a tool for models: the prefix and its name at the server, in which `_` takes the place of each
    character that no name of Cadre has. A longer name than 64 ends with a digest of the whole."""
    name = prefix + re.sub(r"[^a-zA-Z0-9_-]", "_", listed)
    if len(name) <= MAX_NAME_CHARS:
        return name
    digest = hashlib.sha256(f"{prefix}{listed}".encode()).hexdigest()[:_DIGEST_CHARS]
    return f"{name[: MAX_NAME_CHARS - _DIGEST_CHARS - 1]}_{digest}"


def resource_tool(spec: ServerSpec, caller: Caller) -> McpTool:
    """The tool that reads resources of the server."""
    uri = {"type": "string", "description": "The URI as a result of a tool or a text names it."}
    card = ToolCard(
        name=name_for(_READ_RESOURCE, spec.prefix),
        description=f"Reads a resource of the server {spec.name}: a text, or a file.",
        input_schema={"type": "object", "properties": {"uri": uri}, "required": ["uri"]},
        read_only=True,
        timeout=spec.entry.cadre.timeout,
        approval=spec.entry.cadre.approval or "",
        labels={"mcp": spec.name},
    )
    return McpTool(_READ_RESOURCE, card, spec.entry.cadre.concurrency, caller)


def tools_of(spec: ServerSpec, listing: Iterable[ListedTool], caller: Caller) -> list[McpTool]:
    """The tools that the file lets through. One that cannot be offered as the file demands is left out with a
    warning; of two with one name for models, the one that has it at the server stays."""
    found: dict[str, McpTool] = {}
    for listed in sorted(listing, key=lambda one: name_for(one.name, spec.prefix) != spec.prefix + one.name):
        if not spec.allows(listed.name):
            continue
        try:
            tool = _tool(spec, listed, caller)
        except (ToolDefinitionError, ValueError) as error:
            log.warning("%s: tool %s is not offered: %s", spec.where, listed.name, str(error).splitlines()[0])
            continue
        other = found.setdefault(tool.name, tool)
        if other is not tool:
            log.warning(
                "%s: tool %s is not offered: %s is called %s already; name it in the file (cadre.tools)",
                *(spec.where, listed.name, other.listed, tool.name),
            )
    return sorted(found.values(), key=lambda tool: tool.name)


def _tool(spec: ServerSpec, listed: ListedTool, caller: Caller) -> McpTool:
    if listed.execution is not None and listed.execution.task_support == "required":
        raise ToolDefinitionError(
            "it can only be called as a task of the protocol of 2025, which Cadre does not do"
        )
    section = spec.entry.cadre
    own = section.tools.get(listed.name, OneTool())
    name = own.name or name_for(listed.name, spec.prefix)
    options = _options(section, own, listed)
    where = f"{spec.where}: {listed.name}"
    plain = ToolCard(
        name=name,
        description=own.description or listed.description or listed.title or listed.name,
        input_schema=listed.input_schema,
        output_schema=listed.output_schema,
        labels={"mcp": spec.name},
    )
    card = make_card(plain, check_options(options, name, where), where)
    return McpTool(listed.name, card, options.get("concurrency"), caller)


def _options(section: CadreSection, own: OneTool, listed: ListedTool) -> ToolOptions:
    """What the file says of the tool, of the server, then what a trusted server says."""
    options: ToolOptions = {}
    hints = listed.annotations if section.trust else None
    if hints is not None:
        options["read_only"] = bool(hints.read_only_hint)
        options["idempotent"] = bool(hints.idempotent_hint)
        if hints.destructive_hint and not hints.read_only_hint:
            options["approval"] = "always"
    for said in (section, own):
        if said.read_only is not None:
            options["read_only"] = said.read_only
        if said.idempotent is not None:
            options["idempotent"] = said.idempotent
        if said.approval is not None:
            options["approval"] = said.approval
        if said.serial is not None:
            options["serial"] = said.serial
        if said.timeout is not None:
            options["timeout"] = said.timeout
        if said.concurrency is not None:
            options["concurrency"] = said.concurrency
    return options
