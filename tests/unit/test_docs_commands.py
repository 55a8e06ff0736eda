"""Every command line of `cadre` that a page shows names a command that there is, and options that it has."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from cadre.cli.main import group

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
LINE = re.compile(r"(?:    |\$ |    \$ )?(?:[A-Z_]+=\S+ )*cadre (.*)")
INLINE = re.compile(r"`cadre ([^`]+)`")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")


def lines(page: Path) -> Iterator[str]:
    """Yield the words behind `cadre`: in lines of code, whole where one goes on in the next, and in code within a
    text."""
    fenced = False
    for line in page.read_text().replace("\\\n", " ").splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif (fenced or line.startswith("    ")) and (found := LINE.fullmatch(line.rstrip())):
            # Another command behind it is not this one's, nor is a comment.
            yield re.split(r"\s[|#>]|&&", found[1])[0]
        elif not fenced:
            yield from (re.split(r"\s[|#>]|&&", one)[0] for one in INLINE.findall(line.replace("\\|", "|")))


def meant(text: str) -> click.Command:
    """The command whose words the text begins with. Raises LookupError."""
    command: click.Command = group
    context = click.Context(group)
    for word in re.sub(r"^\[.*?\] ", "", text).split():
        if not isinstance(command, click.Group) or not re.fullmatch(r"[a-z][a-z0-9-]*", word):
            break
        found = command.get_command(context, word)
        if found is None:
            raise LookupError(f"there is no command {word!r}")
        command = found
    return command


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_are_there(page: Path) -> None:
    wrong: list[str] = []
    for text in lines(page):
        try:
            command = meant(text)
        except LookupError as error:
            wrong.append(f"cadre {text}: {error}")
            continue
        known = {name for one in (command, group) for p in one.params for name in [*p.opts, *p.secondary_opts]}
        wrong += [f"cadre {text}: no option {one}" for one in OPTION.findall(text) if one not in {*known, "--help"}]
    assert not wrong, "\n".join(wrong)


def test_a_wrong_command_is_found() -> None:
    assert meant("k8s render TEAM --only x").name == "render"
    with pytest.raises(LookupError, match="rendre"):
        meant("k8s rendre TEAM")
    assert sum(1 for page in PAGES for _ in lines(page)) > 400
