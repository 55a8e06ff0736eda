"""The version in files that name the image or the chart: each follows from `cadre.__version__`."""

import re
from pathlib import Path

from cadre import __version__

ROOT = Path(__file__).parents[2]

_NAMING = (
    "deploy/helm/cadre/Chart.yaml",
    "deploy/helm/cadre/values.yaml",
    "deploy/k8s/values.yaml",
    "docs/deploy.md",
    "docs/kubernetes.md",
)

_VERSION = re.compile(r"(?<=\bcadre:)\d+\.\d+\.\d+|(?<=^version: )\S+$|(?<=^appVersion: )\S+$", re.MULTILINE)


def files() -> dict[Path, str]:
    """Return the text of each such file, with the version of today."""
    return {ROOT / name: _VERSION.sub(__version__, (ROOT / name).read_text()) for name in _NAMING}
