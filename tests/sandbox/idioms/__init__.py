"""Idioms of Python by topic, and how they are run: by plain CPython and by the sandbox, whose outcomes must be equal.

An idiom may import what its own statements name, and nothing else.

A file holds idioms as paragraphs. Of an idiom, a line `# needs: NAME …` names builtins that must be authorized, and
`# differs: WHY` (in one tier: `# differs in TIER: WHY`) says that the sandbox's outcome is another one: if it is not,
the line must go.
"""

import ast
import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from cadre_sandbox.interpreters.contract import TIERS, Failed, Finished, Tier
from cadre_sandbox.interpreters.pool import Sandbox
from sandbox.worlds import run

FOLDER = Path(__file__).parent
SCIENCE = ("numpy", "pandas")
"""Topics that need a library of their own name."""

TOPICS = sorted(file.stem for file in FOLDER.glob("*.txt") if file.stem not in SCIENCE)

_PLAIN = {"PYTHONHASHSEED": "0", "TZ": "UTC", "LANG": "C.UTF-8", "PATH": "/usr/bin:/bin"}
_NAMES = re.compile(r"0x[0-9a-f]{6,}|<block \w+>")
"""Addresses of objects, and the names by which tracebacks call a block."""


@dataclass(frozen=True)
class Idiom:
    code: str
    needs: tuple[str, ...]
    """Builtins that must be authorized."""
    differs: dict[str, str]
    """The reason for a different outcome in the sandbox, by tier; none where it is the same."""

    @property
    def imports(self) -> list[str]:
        """The modules of its import statements: what these import in turn is their affair."""
        nodes = list(ast.walk(ast.parse(self.code)))
        plain = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
        return plain + [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]


def idioms_of(topic: str) -> list[Idiom]:
    """The idioms of a file, in its order."""
    paragraphs = (FOLDER / f"{topic}.txt").read_text().strip().split("\n\n")
    return [_idiom(code) for code in paragraphs]


def _idiom(code: str) -> Idiom:
    needs = re.search(r"^# needs: (.*)$", code, re.MULTILINE)
    differs = re.search(r"^# differs(?: in (\w+))?: (.*)$", code, re.MULTILINE)
    tiers = [] if differs is None else [differs[1]] if differs[1] else TIERS
    return Idiom(code, tuple(needs[1].split()) if needs else (), {tier: differs[2] for tier in tiers if differs})


Outcome = dict[str, str]
"""`{logs, text, error}`"""


def in_plain_python(executable: str, idioms: list[Idiom], folder: Path) -> list[Outcome]:
    """The outcomes in an interpreter that is started for them, at work in the folder."""
    blocks = json.dumps([idiom.code for idiom in idioms])
    command = [executable, "-s", "-P", str(FOLDER / "plain_python.py")]
    done = subprocess.run(command, input=blocks, capture_output=True, text=True, cwd=folder, env=_PLAIN, check=False)
    assert done.returncode == 0, done.stderr
    outcomes: list[Outcome] = json.loads(done.stdout)
    return [_without_names(outcome) for outcome in outcomes]


async def in_sandbox(sandbox: Sandbox, idioms: list[Idiom]) -> list[Outcome]:
    """The outcomes in one interpreter of the sandbox, block after block."""
    session = await sandbox.open()
    outcomes = []
    for idiom in idioms:
        ended = await run(session, idiom.code, authorized_imports=idiom.imports, authorized_builtins=idiom.needs)
        assert isinstance(ended, Finished | Failed), (idiom.code, ended)
        assert ended.alive, (idiom.code, ended)
        text, error = (ended.text, "") if isinstance(ended, Finished) else ("", ended.error)
        outcomes.append(_without_names({"logs": ended.logs, "text": text, "error": error}))
    await session.close()
    return outcomes


async def compare(sandbox: Sandbox, tier: Tier, executable: str, topic: str, folder: Path) -> None:
    """Fails where an idiom's outcome is not that of plain CPython, or is although the idiom says `differs`."""
    idioms = idioms_of(topic)
    plain = in_plain_python(executable, idioms, folder)
    ours = await in_sandbox(sandbox, idioms)
    wrong = [
        f"{idiom.code}\n  plain: {their}\n  sandbox: {our}"
        for idiom, their, our in zip(idioms, plain, ours, strict=True)
        if (their != our) != (tier in idiom.differs)
    ]
    assert not wrong, "\n\n".join(wrong)


def _without_names(outcome: Outcome) -> Outcome:
    return {key: _NAMES.sub("…", text) for key, text in outcome.items()}
