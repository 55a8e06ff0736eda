"""The page of settings: the variables that each struct of settings is read from, with their defaults."""

import ast
import inspect
import textwrap
from itertools import pairwise

import msgspec

from cadre.adapters.oidc import OidcSettings
from cadre.settings import AccessSettings, HttpBounds, ModelSettings, PathSettings, Settings
from cadre_browser.chromium import BrowserSettings
from cadre_gateway.doors.card_settings import CardSettings
from cadre_gateway.doors.mcp.door import McpSettings
from cadre_gateway.doors.synadia.door import SynadiaSettings
from cadre_gateway.index.database.settings import IndexSettings
from cadre_gateway.main import TenantsSettings
from cadre_gateway.wiring import ConsoleSettings
from cadre_memory.settings import MemorySettings
from cadre_sandbox.host import SandboxSettings
from cadre_standard_tools.fetching import StandardToolsSettings

_HEAD = """# Settings

The environment variables of Cadre's processes by what reads them. [The command line](cli.md#environment) has
those of its commands. This page is generated.
"""

_STRUCTS: dict[str, list[tuple[type[msgspec.Struct], str]]] = {
    "Every service": [(Settings, "CADRE_"), (HttpBounds, "CADRE_HTTP_"), (ModelSettings, "CADRE_MODEL_")],
    "The gateway": [
        (AccessSettings, "CADRE_"),
        (PathSettings, "CADRE_"),
        (OidcSettings, "CADRE_OIDC_"),
        (IndexSettings, "CADRE_INDEX_"),
        (TenantsSettings, "CADRE_"),
        (ConsoleSettings, "CADRE_"),
        (CardSettings, "CADRE_A2A_"),
        (McpSettings, "CADRE_MCP_"),
        (SynadiaSettings, "CADRE_SYNADIA_"),
    ],
    "Memory": [(MemorySettings, "CADRE_MEMORY_")],
    "The sandbox": [(SandboxSettings, "CADRE_SANDBOX_")],
    "The browser": [(BrowserSettings, "CADRE_BROWSER_")],
    "The standard tools": [(StandardToolsSettings, "CADRE_")],
}


def page() -> str:
    """Return the whole page."""
    parts = [_HEAD]
    for title, structs in _STRUCTS.items():
        rows = [row for struct, prefix in structs for row in _rows(struct, prefix)]
        parts.append("\n".join([f"## {title}\n", "| variable | default | meaning |", "|---|---|---|", *rows]) + "\n")
    return "\n".join(parts)


def _rows(struct: type[msgspec.Struct], prefix: str) -> list[str]:
    texts = {name: text for base in reversed(struct.__mro__) for name, text in _docstrings(base).items()}
    rows = []
    for field in msgspec.structs.fields(struct):
        renamed = field.encode_name != field.name
        name = field.encode_name if renamed else f"{prefix}{field.name.upper()}"
        rows.append(f"| `{name}` | {_default(field.default)} | {texts.get(field.name, '').replace('|', '&#124;')} |")
    return rows


def _docstrings(struct: type) -> dict[str, str]:
    """Return the docstrings of a struct's fields."""
    if not (issubclass(struct, msgspec.Struct) and struct is not msgspec.Struct):
        return {}
    [definition] = ast.parse(textwrap.dedent(inspect.getsource(struct))).body
    assert isinstance(definition, ast.ClassDef)
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in pairwise(definition.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


def _default(value: object) -> str:
    if value == "" or value is msgspec.NODEFAULT:
        return "none"
    return f"{value:g}" if isinstance(value, float) else f"`{value}`" if isinstance(value, str) else str(value)
