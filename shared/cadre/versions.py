"""The order of versions: 1.9.0 comes before 1.10.0, and a pre-release before its release."""

import re

_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})(?![0-9])")
_RELEASE = re.compile(r"v?([0-9]+(?:[._][0-9]+)*)")
_PART = re.compile(r"([0-9]+)|([^\W0-9_]+)")
_AFTER = ("post", "rev", "r")
"""Words of what comes after a release; with any other word it comes before."""

Part = tuple[float, str]
"""The number of digits and the digits, or infinity and a word: numbers are below words, and none is computed."""

VersionOrder = tuple[bool, bool, tuple[Part, ...], int, tuple[Part, ...]]


def version_order(version: str) -> VersionOrder:
    """Return a key that sorts versions, the lowest first: no version, words such as `latest`, then numbers.

    Numbers follow Semantic Versioning: `1.0.0-rc.9` < `1.0.0-rc.10` < `1.0.0` < `1.10`; what follows a `+` does not
    count, and neither do zeros at the end (`1.0` is `1.0.0`). `v1.2`, dates (`2026-11-26`) and Python's forms
    (`1.0rc1`, `1.0.post1`) are read as well.
    """
    text = _DATE.sub(r"\1.\2.\3", version.strip().lower(), count=1).partition("+")[0]
    release = _RELEASE.match(text)
    if release is None:
        return (text != "", False, _parts(text), 0, ())
    rest = _parts(text[release.end() :])
    stage = 0 if not rest else 1 if rest[0][1] in _AFTER else -1
    return (True, True, _numbers(release[1]), stage, rest)


def same_minor(version: str, other: str) -> bool:
    """Return whether both begin with the same two numbers, by which protocols agree on a version: `1.0.3` and `1.0`."""
    release, expected = _RELEASE.match(version), _RELEASE.match(other)
    if release is None or expected is None:
        return False
    return _numbers(".".join(release[1].split(".")[:2])) == _numbers(".".join(expected[1].split(".")[:2]))


def _numbers(text: str) -> tuple[Part, ...]:
    parts = list(_parts(text))
    while parts and not parts[-1][1]:
        parts.pop()
    return tuple(parts)


def _parts(text: str) -> tuple[Part, ...]:
    return tuple(
        (float("inf"), word) if word else (len(number.lstrip("0")), number.lstrip("0"))
        for number, word in _PART.findall(text)
    )
