"""An OpenID Connect provider: the settings of a gateway that lets in whom it knows, and its metadata, keys and
tokens over HTTP."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import quote_plus, urlsplit

import httpx2
import msgspec

from cadre.adapters.addresses import is_loopback
from cadre.adapters.http_options import http_options
from cadre.errors import CadreError, ProviderUnavailable, SettingError
from cadre.protocol.access import RoleName
from cadre.settings import read
from cadre.spec.names import NAME
from cadre.spec.yaml_file import read_yaml

EVERYBODY = "*"
"""Stands in the grants for everybody whom the provider knows."""

_EXAMPLE = "`cadre-admins: {roles: [admin]}`"


class Grant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rights that one value of a claim gives its owner: fields as those of an API key."""

    roles: Annotated[list[RoleName], msgspec.Meta(min_length=1)]
    own: bool = False
    """True if it reaches the owner's runs and memories alone."""
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
    """The provider whose tokens are accepted, and the rights of their owners: `CADRE_OIDC_<FIELD>`."""

    issuer: str = ""
    """URL of the provider, as its tokens name it."""
    audience: str = ""
    """The audience that tokens of programs must have; `client_id` unless set."""
    client_id: str = ""
    """The console's name at the provider; without it the console offers no sign-in through the provider."""
    client_secret: str = ""
    """Empty for a public client."""
    scopes: str = "openid profile email"
    """The scopes that the console asks for; `openid` must be among them."""
    user_claim: str = "sub"
    """The claim that names the person: their runs bear it, and the audit trail."""
    grants_claim: str = "roles"
    """The claim whose values the grants are looked up by; dots lead into objects, as in `realm_access.roles`."""
    grants: str = ""
    """A YAML file of what each value grants, or the same as JSON."""
    public_url: str = ""
    """The URL at which browsers reach the gateway; unless set, the one that they send."""
    name: str = ""
    """The console's name for the provider; the host of its URL unless set."""

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
                "CADRE_OIDC_GRANTS is not set, so no one could do anything: name a YAML file with lines like"
                f" {_EXAMPLE}, or write the same as JSON"
            )
        if "openid" not in self.scopes.split():
            raise SettingError(f"CADRE_OIDC_SCOPES={self.scopes}: must have `openid` among them")

    @property
    def token_audience(self) -> str:
        """Return whom the tokens of programs must be for."""
        return self.audience or self.client_id

    @property
    def shown_name(self) -> str:
        """Return what people know the provider as."""
        return self.name or urlsplit(self.issuer).hostname or self.issuer

    def read_grants(self) -> dict[str, Grant]:
        """Return what each value of the claim grants, in the order in which they are written. Raises SettingError."""
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
    """Return the settings of this process. Raises SettingError."""
    return read(OidcSettings, "CADRE_OIDC_")


def check_packages() -> None:
    """Raise SettingError where the packages that read tokens are not installed."""
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


ASK_SECONDS = 4.0
"""The timeout of one request to the provider."""

_MAX_ANSWER_BYTES = 1024 * 1024

T = TypeVar("T")


class TokenRefused(CadreError):
    """The provider gives no tokens for a code or a refresh token: it is used up, revoked or not of this client."""


class ProviderMetadata(msgspec.Struct, frozen=True):
    """The metadata that a provider publishes, as far as it is used."""

    issuer: str
    jwks_uri: str
    authorization_endpoint: str = ""
    token_endpoint: str = ""
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)


class TokenAnswer(msgspec.Struct, frozen=True):
    """Tokens, as the token endpoint answers them."""

    id_token: str = ""
    refresh_token: str = ""
    expires_in: float = 0.0


class _KeySet(msgspec.Struct, frozen=True):
    keys: list[dict[str, Any]]


class OidcProvider:
    """A provider over HTTP. It remembers nothing."""

    def __init__(self, settings: OidcSettings) -> None:
        self._settings = settings

    async def metadata(self) -> ProviderMetadata:
        """Return what the provider says of itself. Raises ProviderUnavailable, also where it is another one."""
        issuer = self._settings.issuer
        url = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
        found = _decode(url, await self._ask("GET", url), ProviderMetadata)
        if found.issuer != issuer:
            raise ProviderUnavailable(
                f"{url} is of the issuer {found.issuer!r}: write exactly that as CADRE_OIDC_ISSUER, or the right one's"
                " URL"
            )
        for address in (found.jwks_uri, found.authorization_endpoint, found.token_endpoint):
            if urlsplit(address).scheme not in ("https", urlsplit(issuer).scheme) and address:
                raise ProviderUnavailable(f"{url} names {address}, which is not https")
        return found

    async def keys(self, metadata: ProviderMetadata) -> list[dict[str, Any]]:
        """Return the keys with which the provider signs, as JSON Web Keys. Raises ProviderUnavailable."""
        return _decode(metadata.jwks_uri, await self._ask("GET", metadata.jwks_uri), _KeySet).keys

    async def tokens(self, metadata: ProviderMetadata, **form: str) -> TokenAnswer:
        """Ask the token endpoint as the console's client. Raises TokenRefused, ProviderUnavailable."""
        settings, headers = self._settings, {}
        form["client_id"] = settings.client_id
        if settings.client_secret:
            methods = metadata.token_endpoint_auth_methods_supported
            if "client_secret_basic" in methods or "client_secret_post" not in methods:
                pair = f"{quote_plus(settings.client_id)}:{quote_plus(settings.client_secret)}"
                headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
            else:
                form["client_secret"] = settings.client_secret
        data = await self._ask("POST", metadata.token_endpoint, data=form, headers=headers)
        return _decode(metadata.token_endpoint, data, TokenAnswer)

    async def _ask(self, method: str, url: str, **request: Any) -> bytes:
        """Return the body of the answer. Raises ProviderUnavailable; TokenRefused where the provider refuses (4xx)."""
        try:
            async with (
                asyncio.timeout(ASK_SECONDS),
                httpx2.AsyncClient(**http_options(url)) as client,
                client.stream(method, url, **request) as answer,
            ):
                body = b""
                async for piece in answer.aiter_bytes():
                    body += piece
                    if len(body) > _MAX_ANSWER_BYTES:
                        raise ProviderUnavailable(f"{url} answers more than {_MAX_ANSWER_BYTES} bytes")
        except SettingError as error:
            raise ProviderUnavailable(f"the OpenID provider at {url} cannot be asked: {error}") from error
        except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError) as error:
            why = str(error) or type(error).__name__
            raise ProviderUnavailable(f"the OpenID provider does not answer at {url}: {why}") from error
        if method == "POST" and answer.status_code in (400, 401, 403):
            raise TokenRefused(f"{url} answered {answer.status_code}: {_error_of(body)}")
        if answer.status_code != 200:
            raise ProviderUnavailable(f"{url} answered {answer.status_code}")
        return body


def _error_of(body: bytes) -> str:
    """Return the error that a token endpoint names; its description may hold anything, and is left out."""
    try:
        error = msgspec.json.decode(body, type=dict[str, Any]).get("error")
    except msgspec.DecodeError:
        error = None
    return error if isinstance(error, str) and error.isascii() and len(error) < 100 else "no error is named"


def _decode(url: str, body: bytes, form: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=form)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProviderUnavailable(f"{url} answers something else than expected: {error}") from error
