"""Asks an OpenID Connect provider for its metadata, its keys and its tokens."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from typing import Any, TypeVar
from urllib.parse import quote_plus, urlsplit

import httpx2
import msgspec

from cadre.adapters.http_options import http_options
from cadre.adapters.oidc.settings import OidcSettings
from cadre.errors import CadreError, ProviderUnavailable, SettingError

ASK_SECONDS = 4.0
"""How long one question to the provider may take."""

_MAX_ANSWER_BYTES = 1024 * 1024

T = TypeVar("T")


class TokenRefused(CadreError):
    """The provider gives no tokens for a code or a refresh token: it is used up, revoked or not of this client."""


class ProviderMetadata(msgspec.Struct, frozen=True):
    """What a provider says of itself, as far as it is used."""

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
        """What the provider says of itself. Raises ProviderUnavailable, also where it is another one."""
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
        """The keys with which the provider signs, as JSON Web Keys. Raises ProviderUnavailable."""
        return _decode(metadata.jwks_uri, await self._ask("GET", metadata.jwks_uri), _KeySet).keys

    async def tokens(self, metadata: ProviderMetadata, **form: str) -> TokenAnswer:
        """Asks the token endpoint as the console's client. Raises TokenRefused, ProviderUnavailable."""
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
        """The body of the answer. Raises ProviderUnavailable; TokenRefused where the provider refuses (4xx)."""
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
    """The error that a token endpoint names; its description may hold anything, and is left out."""
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
