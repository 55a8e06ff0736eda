"""What tells one gateway from another in the same process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cadre.adapters.oidc.settings import OidcSettings
from cadre.settings import AccessSettings
from cadre_gateway.doors.card_settings import CardSettings
from cadre_gateway.index.database.settings import IndexSettings
from cadre_gateway.requests.body import BodyMemory


@dataclass(frozen=True)
class GatewayOptions:
    """What a gateway is told beside the settings of its deployment."""

    access: AccessSettings
    oidc: OidcSettings | None
    """None where nobody signs in by a provider."""
    index: IndexSettings
    bodies: BodyMemory
    """That of the whole process."""
    cards: CardSettings
    secret: Callable[[str], str]
    """Finds the secret of this name, which triggers and notices name; "" when there is none."""
