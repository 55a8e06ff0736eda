"""The tables of alerts on the page of observability."""

import re
from pathlib import Path

import yaml

_RULES = Path(__file__).parents[2] / "deploy" / "prometheus"
_PLACEHOLDER = re.compile(r"\{\{ \$(?:labels\.(\w+)|value)(?: \| (\w+))? \}\}")
_NAMES = {
    "gen_ai_agent_name": "AGENT",
    "cadre_queue_kind": "KIND",
    "cadre_queue_name": "NAME",
    "cadre_stream": "STREAM",
}


def table(file: str) -> str:
    """Return a row for each alert of a file of rules; a placeholder becomes the name of its value."""
    rows = ["| alert | severity | after | what it says | what to do |", "|---|---|---|---|---|"]
    for group in yaml.safe_load((_RULES / file).read_text())["groups"]:
        for rule in (one for one in group["rules"] if "alert" in one):
            says, do = (_shown(rule["annotations"].get(key, "")) for key in ("summary", "description"))
            severity = rule["labels"]["severity"]
            rows.append(f"| `{rule['alert']}` | {severity} | {rule.get('for', '')} | {says} | {do} |")
    return "\n".join(rows)


def _shown(text: str) -> str:
    text = text.replace("docs/kubernetes.md has", "[Kubernetes](kubernetes.md#resources) has")
    return _PLACEHOLDER.sub(_name, text).replace("|", "\\|")


def _name(found: re.Match[str]) -> str:
    label, form = found.groups()
    if label:
        return _NAMES.get(label, label.upper())
    return "N %" if form == "humanizePercentage" else "N"
