"""The shape of the code: sizes, names, and who may do what only some may."""

import ast
import gc
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

MOST_LINES_OF_A_FUNCTION = 60

NAMELESS = {"utils", "util", "helpers", "helper", "common", "misc", "base", "types", "manager"}
"""Names that say nothing of what is inside."""

READS_THE_ENVIRONMENT = {
    "shared/cadre/settings.py",
    "shared/cadre/adapters/program/child/cadre_program.py",  # it runs where there is no Cadre
}

CATCHES_ALL = {
    "shared/cadre/adapters/program/child/cadre_program.py": "whatever a program raises is the end of its run",
    "shared/cadre/adapters/mcp/server.py": "whatever a server or its protocol raises ends one connection",
    "shared/cadre/adapters/nats/connection/client.py": "a listener's failure must not end the reading for all others",
    "shared/cadre/adapters/nats/queues/queue.py": "a handler's failure is a redelivery, not the end of the process",
    "shared/cadre/cli/main.py": "whatever ends a command ends it with one line",
    "shared/cadre/tools/thread.py": "what a thread raises is handed to who awaits it",
    "shared/cadre/loop/redecide.py": "where deciding anew fails is what it is to find",
    "shared/cadre/loop/rebase.py": "where another spec cannot follow is what is to be found",
    "shared/cadre/automation/schedule.py": "a template runs over whatever others sent",
    "shared/cadre/tools/loading.py": "importing a tool file runs somebody else's code",
    "services/cadre_sandbox/jail/block.py": "whatever code raises is its outcome",
    "services/cadre_sandbox/jail/snapshot.py": "what a variable raises when saved is why it is not kept",
    "shared/cadre/runtime/invocation.py": "what a tool raises is an observation",
    "shared/cadre/runtime/tool_output.py": "the text of a result is somebody else's code",
}
"""Functions that run foreign code. A function that cleans up and raises again need not be here."""

ALSO_IN_THE_JAIL = {"File", "Tool"}
"""Classes that code in the sandbox sees under the house's own words; what was saved there names these classes."""

HEAVY = {"nats", "openai", "fastapi", "starlette", "uvicorn", "rich", "httpx2"}


@cache
def parsed(file: Path) -> ast.Module:
    tree = ast.parse(file.read_text())
    gc.freeze()  # the trees are kept: the garbage collector would go through all of them for each few more
    return tree


def sources(*rooms: str) -> list[Path]:
    files = [
        file
        for room in rooms
        for file in sorted((ROOT / room).rglob("*.py"))
        if "__pycache__" not in file.parts and not any(part.startswith(".") for part in file.relative_to(ROOT).parts)
    ]
    assert files, f"nothing in {rooms}"
    return files


PRODUCT = sources("shared", "services")
ALL = [*PRODUCT, *sources("docs", "tests", "tools", "teams")]


def name(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def broad_handlers(tree: ast.Module) -> Iterator[ast.ExceptHandler]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
            if any(k is None or (isinstance(k, ast.Name) and k.id in ("Exception", "BaseException")) for k in kinds):
                yield node


def raises_again(handler: ast.ExceptHandler) -> bool:
    """Its last statement is a bare `raise`."""
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def test_no_two_test_files_have_one_name() -> None:
    """Pytest imports them by their names alone."""
    names = [file.name for file in ALL if file.name.startswith("test_")]
    assert sorted(names) == sorted(set(names))


def own_lines(function: ast.AST) -> int:
    """Lines of a function without the functions in it, which are measured themselves."""
    return lines(function) - sum(
        lines(inner) for inner in ast.walk(function) if is_function(inner) and inner is not function
    )


def lines(node: ast.AST) -> int:
    assert isinstance(node, ast.stmt)
    return (node.end_lineno or node.lineno) - node.lineno + 1


def is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def test_no_function_is_too_long() -> None:
    long = {
        f"{name(file)}:{node.lineno} {node.name}": own
        for file in ALL
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (own := own_lines(node)) > MOST_LINES_OF_A_FUNCTION
    }
    assert long == {}


def test_every_name_says_something() -> None:
    named = [(file, part) for file in ALL for part in (*file.relative_to(ROOT).parts[:-1], file.stem)]
    assert [name(file) for file, part in named if part in NAMELESS] == []


def test_one_class_name_is_one_class() -> None:
    found = Counter(node.name for file in PRODUCT for node in ast.walk(parsed(file)) if isinstance(node, ast.ClassDef))
    assert {one for one, count in found.items() if count > 1} == ALSO_IN_THE_JAIL


def test_every_module_says_what_it_is_for() -> None:
    silent = [name(file) for file in ALL if file.read_text().strip() and not ast.get_docstring(parsed(file))]
    assert silent == []


def test_only_settings_reads_the_environment() -> None:
    readers = {
        name(file)
        for file in PRODUCT
        for node in ast.walk(parsed(file))
        if (isinstance(node, ast.Attribute) and node.attr in ("environ", "environb", "getenv"))
        or (isinstance(node, ast.ImportFrom) and node.module == "os" and any("env" in a.name for a in node.names))
    }
    assert readers == READS_THE_ENVIRONMENT


def test_only_named_files_catch_everything() -> None:
    catchers = {name(file) for file in PRODUCT for handler in broad_handlers(parsed(file)) if not raises_again(handler)}
    assert catchers == set(CATCHES_ALL)


EVERY_IMPORT = """
import importlib, sys
from cadre.errors import KindError
from cadre.spec import kinds

for name in sys.argv[1:]:
    importlib.import_module(name)
register = kinds.register_kind(kinds.KindDeclaration("late", {1: "a:b"}, {}, {}))
print("open" if "late" in kinds.declared_kinds() else "closed")
"""


def test_no_import_closes_the_unions() -> None:
    """A kind's module may be imported before `cadre` and after it, and in one thread while another one loads kinds."""
    modules = [
        ".".join(file.relative_to(ROOT / "shared").with_suffix("").parts).removesuffix(".__init__")
        for file in sources("shared")
        if "templates" not in file.parts or "spec" in file.parts
    ]
    done = subprocess.run([sys.executable, "-c", EVERY_IMPORT, *modules], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("open", "")


HOLD_UNIONS = {
    "AnyEvent",
    "AnyRecord",
    "AnySection",
    "AgentSpec",
    "RunAccepted",
    "ActionStep",
    "Step",
    "Run",
    "Entry",
    "RunDetail",
    "RunResult",
}
"""Types of the journal that hold classes of the kinds, and what others are made of."""


def reads_with_msgspec(tree: ast.Module) -> Iterator[str]:
    """The names of the types that a module hands to msgspec."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and re.match(
            r"msgspec\.(convert|inspect\.\w+|structs\.fields|(json|msgpack|yaml)\.(decode|Decoder|schema\w*))$",
            ast.unparse(node.func),
        ):
            given = [*node.args, *(keyword.value for keyword in node.keywords)]
            for one in given:
                yield from (inner.id for inner in ast.walk(one) if isinstance(inner, ast.Name))


def test_only_who_closes_the_unions_reads_what_holds_them() -> None:
    """Others call `cadre.delivery.codec`, `cadre.journal.unions` and `cadre.spec.agent`, which close them first."""
    readers = {name(file) for file in PRODUCT if HOLD_UNIONS.intersection(reads_with_msgspec(parsed(file)))}
    assert readers == {"shared/cadre/spec/agent.py"}


@pytest.mark.parametrize("module", ["cadre", "cadre.loop.decide", "cadre.cli.main"])
def test_an_import_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert set(loaded.split()) & HEAVY == set()
