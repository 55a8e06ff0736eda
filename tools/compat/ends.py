"""Tasks that do not end with an answer: what the model's endpoint refuses, and what is interrupted."""

from compat.case import Case, answer, calls, code

REFUSED = Case(
    "generation-error",
    "coder",
    "Begin.",
    [code("print('begun')"), {"error": {"status": 400, "message": "no such model"}}],
    None,
    state="error",
)
INTERRUPTED = Case(
    "interrupt",
    "holder",
    "Add, then hold.",
    [calls(("add", {"a": 2, "b": 3})), calls(("hold", {"what": "on"})), answer("never")],
    None,
    state="error",
    interrupts=1,
)
ENDS = [REFUSED, INTERRUPTED]
