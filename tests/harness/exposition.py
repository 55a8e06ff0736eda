"""Prometheus' text format, read back."""

import re

_LINE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def series_of(text: str) -> Series:
    """Values by name and labels; fails on a line that is not of the format."""
    found: Series = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            match = _LINE.fullmatch(line)
            assert match, line
            name, labels, value = match.groups()
            found[name, frozenset(_LABEL.findall(labels or ""))] = float(value)
    return found


def families(text: str) -> dict[str, str]:
    """Kind by name."""
    return dict(line.split()[2:4] for line in text.splitlines() if line.startswith("# TYPE "))


def labels_of(text: str, family: str) -> set[str]:
    """But for a bucket's bound."""
    return {
        key
        for name, labels in series_of(text)
        if name == family or re.sub("_(bucket|sum|count)$", "", name) == family
        for key, _ in labels
    } - {"le"}


def total(series: Series, name: str, **labels: str) -> float:
    """Of all series of that name which have these labels."""
    wanted = set(labels.items())
    return sum(value for (what, has), value in series.items() if what == name and wanted <= has)
