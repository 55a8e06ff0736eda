"""Python scripts of skills, run by the code that has read them: as programs, under the rules of the code itself."""

from __future__ import annotations

import sys
import zlib
from typing import Any

from cadre_sandbox.jail import guard
from cadre_sandbox.jail.functions import SandboxFunction
from cadre_sandbox.jail.snapshot import keep_source

NAME = "run_script"
SKILL_PREFIX = "skill_"
"""With which the names of functions begin that read a skill."""


class ScriptFailed(Exception):
    """A script has ended with a status that is no success."""


def script_runner(rules: guard.Rules, builtins: dict[str, Any]) -> SandboxFunction:
    """The function `run_script` of the code."""

    def run(script: Any, *arguments: Any) -> None:
        text = script if isinstance(script, str) else script.text()
        filename = f"<script {zlib.crc32(text.encode(errors='replace')):08x}>"
        keep_source(filename, text)
        program = compile(guard.read(text, filename, rules), filename, "exec", dont_inherit=True)
        namespace = {"__name__": "__main__", "__file__": filename, "__builtins__": builtins}
        before, sys.argv = sys.argv, [filename, *map(str, arguments)]
        try:
            exec(program, namespace)
        except SystemExit as end:
            if end.code not in (None, 0):
                raise ScriptFailed(f"the script ended with {end.code!r}") from None
        finally:
            sys.argv = before

    doc = (
        f"{NAME}(script, *arguments): runs the text of a Python script as a program with these arguments. What it"
        " prints is printed here."
    )
    return SandboxFunction(NAME, doc, run)
