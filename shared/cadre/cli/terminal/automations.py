"""What the verbs for schedules, triggers and notices share: files given to the gateway, times, specifications."""

from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import yaml

from cadre.automation.automation_file import path_of, read_automations
from cadre.cli.terminal.gateway import Gateway


def add_file(gateway: Gateway, file: Path) -> list[dict[str, Any]]:
    """Makes or replaces everything in the file; returns what the gateway has then. Raises SpecError, CommandFailed."""
    return [gateway.put(path_of(spec), msgspec.to_builtins(spec)) for spec in read_automations(file)]


def moment(at: float) -> str:
    """A time in this machine's zone."""
    return datetime.fromtimestamp(at).astimezone().isoformat(" ", "seconds")


def spec_text(spec: dict[str, Any]) -> str:
    """The keys of a specification as YAML."""
    return yaml.safe_dump(spec, sort_keys=False, allow_unicode=True).rstrip()
