"""The page of prompt templates: the variables of each, by the files that have it."""

from cadre.prompting.prompt_file import Contract, contracts

_HEAD = """# Prompt templates

The templates of the files in `prompts/` and their variables. **Bold** ones are required, because the model reads them
nowhere else. [Prompts](agents.md#prompts) says how to write a file. This page is generated.

| template | files | variables |
|---|---|---|
"""


def page() -> str:
    """Return the whole page."""
    files = contracts()
    rows: dict[tuple[str, Contract], list[str]] = {}
    for name, templates in files.items():
        for key, contract in templates.items():
            rows.setdefault((key, contract), []).append(name)
    lines = [
        f"| `{key}` | {_files(names, len(files))} | {_variables(contract)} |"
        for (key, contract), names in sorted(rows.items(), key=lambda row: (row[0][0], row[1]))
    ]
    return _HEAD + "\n".join(lines) + "\n"


def _files(names: list[str], of: int) -> str:
    return "all" if len(names) == of else ", ".join(f"`{name}`" for name in sorted(names))


def _variables(contract: Contract) -> str:
    required = [f"**`{name}`**" for name in sorted(contract.must)]
    return ", ".join([*required, *(f"`{name}`" for name in sorted(contract.may - contract.must))]) or "none"
