"""References to secrets in files: `${NAME}` is a variable of the environment, `${file:PATH}` the content of a file."""

import re
from pathlib import Path

from cadre.errors import SetupError
from cadre.settings import read_secret

_REFERENCE = re.compile(r"\$\{([^{}]*)\}")
_MIN_HIDDEN_CHARS = 4
"""Shorter values are not looked for in texts: they would be found everywhere."""


class References:
    """The references of one file, resolved as it is now; what they stood for can be hidden in texts."""

    def __init__(self, folder: Path, where: str) -> None:
        """`folder` is what paths are relative to, `where` how errors name the place."""
        self._folder = folder
        self._where = where
        self._hidden: set[str] = set()

    @property
    def hidden(self) -> tuple[str, ...]:
        """Return the values that references stood for, the longest first."""
        return tuple(sorted(self._hidden, key=len, reverse=True))

    def resolve(self, key: str, text: str) -> str:
        """Return the text with each reference's value. Raises SetupError for one that there is not."""
        return _REFERENCE.sub(lambda found: self._value(key, found[1]), text)

    def hide(self, text: str) -> str:
        """Return the text without the values that references stood for."""
        for value in self.hidden:
            text = text.replace(value, "***")
        return text

    def _value(self, key: str, reference: str) -> str:
        """Return what `${NAME}`, `${NAME:-default}`, `${env:NAME}` or `${file:PATH}` stands for."""
        kind, _, rest = reference.partition(":")
        if kind == "file":
            try:
                value = (self._folder / rest).read_text().strip()
            except (OSError, UnicodeDecodeError) as error:
                why = getattr(error, "strerror", None) or error
                raise SetupError(f"{self._where}: {key}: the file {rest} cannot be read: {why}") from error
        else:
            name, mark, default = (rest if kind == "env" else reference).partition(":-")
            value = read_secret(name)
            if not value and not mark:
                raise SetupError(f"{self._where}: {key}: the variable {name} is not set")
            value = value or default
        if len(value) >= _MIN_HIDDEN_CHARS:
            self._hidden.add(value)
        return value
