"""Signs people in at the console by the authorization code flow with PKCE (OpenID Connect, RFC 6749, RFC 7636)."""

from __future__ import annotations

import hmac
import re
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import urlencode

from cadre.adapters.oidc import OidcProvider, OidcSettings, TokenRefused
from cadre.api.access import MadeKey
from cadre.errors import ProviderUnavailable
from cadre_gateway.access.api_keys import ApiKeys
from cadre_gateway.access.oidc_tokens import ProviderTokens, refused
from cadre_gateway.requests.prefix import address
from cadre_gateway.requests.problems import Problem, unauthorized

CALLBACK = "/auth/callback"

FLOW_SECONDS = 600
"""So long a person may take to sign in at the provider."""

_OWN_PATH = re.compile(r"/(?![/\\])[!-~]{0,2000}")
"""A path of this gateway: a browser takes two slashes, or a slash and a backslash, for another host's name."""


class Callback(NamedTuple):
    """The parameters with which the provider sends the browser back."""

    code: str = ""
    state: str = ""
    error: str = ""


@dataclass(frozen=True)
class ConsoleSignIn:
    """Begins and ends sign-ins. All that a sign-in needs to know lies in a cookie of its browser: any gateway may end
    what another has begun."""

    settings: OidcSettings
    provider: OidcProvider
    tokens: ProviderTokens
    keys: ApiKeys

    async def begin(self, origin: str, return_to: str) -> tuple[str, str]:
        """Return the provider's page to sign in at, and the cookie to keep meanwhile. Raises ProviderUnavailable."""
        metadata = await self.tokens.keys.metadata()
        if not (metadata.authorization_endpoint and metadata.token_endpoint):
            raise ProviderUnavailable(f"{metadata.issuer} offers no authorization code flow")
        secret = secrets.token_urlsafe(32)
        challenge = _base64url(sha256(_derive(secret, "verifier").encode()).digest())
        question = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": self._redirect_uri(origin),
            "scope": self.settings.scopes,
            "state": _derive(secret, "state"),
            "nonce": _derive(secret, "nonce"),
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        between = "&" if "?" in metadata.authorization_endpoint else "?"
        cookie = f"{secret}.{_base64url(own_path(return_to).encode())}"
        return f"{metadata.authorization_endpoint}{between}{urlencode(question)}", cookie

    async def finish(self, origin: str, cookie: str, answer: Callback) -> tuple[MadeKey, str]:
        """Return the sign-in of the person whose browser the provider has sent back, and where it goes on. Raises
        ProviderUnavailable, other RetryableErrors, and a 401 or 403 problem."""
        secret, _, path = cookie.partition(".")
        if not secret or not hmac.compare_digest(answer.state.encode(), _derive(secret, "state").encode()):
            raise unauthorized("this browser has not begun this sign-in, or too long ago: sign in again")
        if answer.error or not answer.code:
            raise unauthorized(f"the provider has refused the sign-in: {_shown(answer.error)}")
        metadata = await self.tokens.keys.metadata()
        try:
            given = await self.provider.tokens(
                metadata,
                grant_type="authorization_code",
                code=answer.code,
                redirect_uri=self._redirect_uri(origin),
                code_verifier=_derive(secret, "verifier"),
            )
        except TokenRefused as error:
            raise unauthorized("the provider does not take its code any more: sign in again") from error
        client = self.settings.client_id
        claims = await self.tokens.claims(given.id_token, client)
        # Another party that the token is for as well may have asked for it, and passed it on.
        if claims.get("azp", client) != client:
            raise refused("the token was made for another client (azp)")
        if not hmac.compare_digest(str(claims.get("nonce")).encode(), _derive(secret, "nonce").encode()):
            raise refused("the token is that of another sign-in (nonce)")
        made = await self.keys.sign_in(self.tokens.principal_with(claims), given.refresh_token)
        return made, own_path(_text(path))

    def _redirect_uri(self, origin: str) -> str:
        return (self.settings.public_url or origin).rstrip("/") + CALLBACK


def own_path(wanted: str) -> str:
    """Return the path to go on to; `/` for anything but a path of this gateway."""
    return wanted if _OWN_PATH.fullmatch(wanted) else "/"


def as_page(problem: Problem) -> str:
    """Return what people read whose sign-in has failed."""
    from html import escape

    return (
        '<!doctype html><html lang="en"><title>Not signed in</title><h1>Not signed in</h1>'
        f'<p>{escape(problem.detail)}</p><p><a href="{address("/")}">Back to the console</a></p></html>'
    )


def _derive(secret: str, purpose: str) -> str:
    """Return what others read says nothing of the secret, and nothing of what it is for otherwise."""
    return _base64url(hmac.digest(secret.encode(), purpose.encode(), sha256))


def _base64url(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _text(encoded: str) -> str:
    try:
        return urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
    except ValueError:
        return "/"


def _shown(error: str) -> str:
    return error if re.fullmatch(r"[\w-]{1,60}", error, re.ASCII) else "no code, and no known error"
