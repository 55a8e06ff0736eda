"""A run's variables: its task's `inputs`, which a model passes on by their names.

The journal and the transcript keep what the model wrote; the value takes the name's place when the call
is made, however large it is.
"""

from typing import Any

from cadre.journal.run import Run


def with_values(run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments with every text that names a variable replaced by the variable's value."""
    variables = run.task.inputs if run.task else {}
    if not variables:
        return arguments
    return {
        name: variables[value] if isinstance(value, str) and value in variables else value
        for name, value in arguments.items()
    }
