"""Writes the generated documents; with --check, fails when one is out of date."""

from __future__ import annotations

import sys

from generate.pages import DOCS, stale, write


def main(arguments: list[str]) -> int:
    check = arguments == ["--check"]
    if arguments and not check:
        print("usage: python -m generate [--check]", file=sys.stderr)
        return 2
    changed = stale() if check else write()
    for path in changed:
        print(f"{'out of date' if check else 'written'}: {path.relative_to(DOCS.parent)}")
    if check and changed:
        print("generate: run `make docs` and look at the difference", file=sys.stderr)
    return 1 if check and changed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
