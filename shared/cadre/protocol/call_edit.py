"""A change of proposed calls, as a decision carries it."""

from __future__ import annotations

from typing import Any

import msgspec


class CallEdit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change of calls that a question proposes: of one of them, or a further one."""

    call: int | None = None
    """Number of the call, from 1; None adds one."""
    drop: bool = False
    """The call is not made."""
    tool: str | None = None
    """The tool or team member to call, if not that of the call."""
    arguments: dict[str, Any] | None = None
    """They take the place of the call's own of the same names; of another tool they are all."""
