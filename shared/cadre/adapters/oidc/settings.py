"""The settings of a gateway that lets in whom an OpenID Connect provider knows."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import msgspec

from cadre.adapters.addresses import is_loopback
from cadre.errors import SettingError
from cadre.protocol.access import RoleName
from cadre.settings import read
from cadre.spec.names import NAME
from cadre.spec.yaml_file import read_yaml

EVERYBODY = "*"
"""Stands in the grants for everybody whom the provider knows."""

_EXAMPLE = "`cadre-admins: {roles: [admin]}`"


class Grant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one value of a claim lets its owner do: fields as those of an API key."""

    roles: Annotated[list[RoleName], msgspec.Meta(min_length=1)]
    own: bool = False
    """Whether it reaches the owner's runs and memories alone."""
    agents: list[str] = []
    """Only runs of these agents, and what is below them."""
    teams: list[str] = []
    """Only trees that begin with these agents."""
    rate: Annotated[float, msgspec.Meta(gt=0, le=1e6)] | None = None
    """Requests a second."""
    runs_per_day: Annotated[int, msgspec.Meta(ge=1, le=10**9)] | None = None

    def __post_init__(self) -> None:
        if wrong := [name for name in (*self.agents, *self.teams) if not NAME.fullmatch(name)]:
            raise ValueError(f"no agent can have the name {wrong[0]!r}")


class OidcSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Whose tokens count, and what they let their owners do: `CADRE_OIDC_<FIELD>`."""

    issuer: str = ""
    """URL of the provider, as its tokens name it."""
    audience: str = ""
    """Whom tokens of programs must be for; `client_id` unless set."""
    client_id: str = ""
    """The console's name at the provider; without it nobody signs in there by the provider."""
    client_secret: str = ""
    """Empty for a public client."""
    scopes: str = "openid profile email"
    user_claim: str = "sub"
    """The claim that names the person: their runs bear it, and the audit trail."""
    grants_claim: str = "roles"
    """The claim whose values the grants are looked up by; dots lead into objects, as in `realm_access.roles`."""
    grants: str = ""
    """A YAML file of what each value grants, or the same as JSON."""
    public_url: str = ""
    """Where browsers reach the gateway; unless set, where they say that they do."""
    name: str = ""
    """What the console calls the provider; the host of its URL unless set."""

    def __post_init__(self) -> None:
        _check_url("CADRE_OIDC_ISSUER", self.issuer)
        if self.public_url:
            _check_url("CADRE_OIDC_PUBLIC_URL", self.public_url)
        if not (self.audience or self.client_id):
            raise SettingError(
                "CADRE_OIDC_AUDIENCE is not set, and neither is CADRE_OIDC_CLIENT_ID: name whom tokens must be for, or"
                " any token of the provider would count"
            )
        if not self.grants:
            raise SettingError(
                "CADRE_OIDC_GRANTS is not set, so nobody could do anything: name a YAML file with lines like"
                f" {_EXAMPLE}, or write the same as JSON"
            )
        if "openid" not in self.scopes.split():
            raise SettingError(f"CADRE_OIDC_SCOPES={self.scopes}: must have `openid` among them")

    @property
    def token_audience(self) -> str:
        """Whom the tokens of programs must be for."""
        return self.audience or self.client_id

    @property
    def shown_name(self) -> str:
        """What people know the provider as."""
        return self.name or urlsplit(self.issuer).hostname or self.issuer

    def read_grants(self) -> dict[str, Grant]:
        """What each value of the claim grants, in the order in which they are written. Raises SettingError."""
        inline = self.grants.lstrip().startswith("{")
        try:
            if inline:
                return msgspec.json.decode(self.grants, type=dict[str, Grant])
            return msgspec.convert(read_yaml(Path(self.grants), SettingError), dict[str, Grant])
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            what = "" if inline else f"={self.grants}"
            raise SettingError(
                f"CADRE_OIDC_GRANTS{what}: {error}; an entry is written as {_EXAMPLE}, with a roles list of viewer,"
                " operator, approver and admin"
            ) from error


def read_oidc_settings() -> OidcSettings:
    """The settings of this process. Raises SettingError."""
    return read(OidcSettings, "CADRE_OIDC_")


def check_packages() -> None:
    """Raises SettingError where the packages that read tokens are not installed."""
    for module in ("jwt", "cryptography"):
        if find_spec(module) is None:
            raise SettingError(
                f"CADRE_AUTH names oidc and the Python module {module!r} is not installed: pip install"
                " 'cadre-agents[oidc]'"
            )


def _check_url(variable: str, url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme == "https" and parts.hostname:
        return
    if not (parts.scheme == "http" and parts.hostname and is_loopback(parts.hostname)):
        raise SettingError(
            f"{variable}={url or '(not set)'}: must be a URL that begins with https:// (http:// on this machine alone):"
            " who can change what comes from there could let in anybody"
        )
