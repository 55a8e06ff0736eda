"""Rollouts, as the HTTP API takes and shows them."""

from __future__ import annotations

from typing import Literal

import msgspec


class RolloutChange(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One change of a rollout: exactly one of `to`, `rollback`, `adopt` and `end`."""

    to: str | None = None
    """The revision that gets `weight` of a hundred new runs: its digits, or so many of the first that it is the only
    one. The others share the rest as before."""
    weight: int | None = None
    """Goes with `to`: what is left out is neither none of them nor all."""
    rest: str | None = None
    """The revision that gets all of the rest."""
    rollback: bool = False
    """The youngest revision that gets new runs gets none any more."""
    adopt: str | None = None
    """The revision whose runs the revision `by` goes on with; `by` itself gives them back."""
    by: str | None = None
    anyway: bool = False
    """Goes with `to`: gives the revision its share although something cannot work with it that works with others."""
    end: bool = False
    """Ends the rollout once there is one revision left: from then on any replica takes any run."""
    version: int | None = None
    """That of the rollout that was looked at: when there is another one by now nothing is changed."""


class RevisionView(msgspec.Struct, kw_only=True):
    """A revision of an agent."""

    revision: str
    weight: int | None
    """Of a hundred new runs those that it gets; null where it has no part in a rollout."""
    state: Literal["live", "opening", "open", "closing"]
    """`live`: without a part in a rollout. `opening` and `closing` while its queue is made and removed."""
    replicas: int
    open_runs: int | None
    """Its runs that have begun and not ended; null while the gateway has no index of runs to know that by."""
    waiting: int
    """Messages in its own queue."""
    adopted_by: str = ""
    """The revision that goes on with its runs."""
    schemas: str = ""
    """Digest of what its tools say of themselves at the moment, to hold against that of a run; empty where it has no
    live replica, or no tool of it is there."""


class AgentLag(msgspec.Struct, frozen=True):
    """Work that waits for the replicas of an agent."""

    lag: int
    """Messages that wait for them or are in their hands."""


class RolloutView(msgspec.Struct, kw_only=True):
    """The shares of an agent's runs that its revisions take."""

    agent: str
    version: int
    """0 where there never was a rollout."""
    active: bool
    revisions: list[RevisionView]
    """The oldest first; behind those of the rollout others that are live or have open runs."""
    warnings: list[str]
    """Problems, each with its remedy."""
