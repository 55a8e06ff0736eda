"""The declaration of a door: its routes, what each asks of its caller, and what of them is recorded."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from cadre_gateway.access.rules import RouteRule

GROUP = "cadre.doors"
"""Entry points of this group name a `Door` each."""


class Door(NamedTuple):
    """One door, which is open in a gateway whose CADRE_DOORS names it. Its code is named as `module:name`, and imported
    only then; its module of declaration imports little."""

    name: str
    router: str = ""
    """A function of a `RunService` that returns the door's `APIRouter`; "" for a door without HTTP."""
    rules: Sequence[RouteRule] = ()
    """One for each route of the router. No other door, and not the gateway itself, has a rule for the same route."""
    actions: Mapping[str, str] = MappingProxyType({})
    """The actions in the audit trail, by route as the rule has it: `POST /echo/{agent}`."""
    listens: str = ""
    """A function of a `RunService`, an `Access` and a `Platform` that returns a `ListeningDoor`, for a door that is not
    at HTTP."""
    about: str = ""
    """The entry of a door at HTTP in the API's description: its clients and its paths."""
    specification: str = ""
    """The URL of the specification that it follows."""
