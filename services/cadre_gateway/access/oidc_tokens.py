"""Check the tokens of an OpenID Connect provider, and read from them the user and the scope. Needs PyJWT."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

import jwt
import msgspec

from cadre.adapters.oidc import (
    EVERYBODY,
    Grant,
    OidcSettings,
)
from cadre.protocol.access import Rights
from cadre_gateway.access.oidc_sessions import SigningKeys
from cadre_gateway.access.principal import OF_PROVIDER, Principal
from cadre_gateway.requests.problems import Problem, answer_deadline, unauthorized

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures that count. None is made with a secret that both sides have: what is published would be that secret."""

LEEWAY_SECONDS = 30.0
"""So far the provider's clock may be off."""

_REQUIRED = ["iss", "aud", "exp", "iat", "sub"]
_MAX_NAME_CHARS = 200
_REFUSALS: list[tuple[type[jwt.InvalidTokenError], str]] = [
    (jwt.ExpiredSignatureError, "the token has expired: get a new one"),
    (jwt.ImmatureSignatureError, "the token is not valid yet: the clocks of provider and gateway differ"),
    (
        jwt.InvalidAudienceError,
        "the token is for somebody else (aud): CADRE_OIDC_AUDIENCE says whom it must be for",
    ),
    (jwt.InvalidIssuerError, "the token is of another issuer (iss) than CADRE_OIDC_ISSUER"),
    (jwt.InvalidSignatureError, "the signature of the token is wrong"),
]


class ProviderTokens:
    """Tokens of one provider. Its methods raise ProviderUnavailable, and a 401 problem for a token that does not
    count."""

    def __init__(self, settings: OidcSettings, keys: SigningKeys) -> None:
        """Raise SettingError."""
        self.keys = keys
        self._settings = settings
        self._grants = settings.read_grants()

    async def principal(self, token: str) -> Principal:
        """Return who sends this token. Raise a 403 problem for a user who is granted nothing."""
        return self.principal_with(await self.claims(token, self._settings.token_audience))

    async def claims(self, token: str, audience: str) -> dict[str, Any]:
        """Return what the token says, which the provider has signed for this audience and which holds now."""
        try:
            header = jwt.get_unverified_header(token)
        except jwt.InvalidTokenError as error:
            raise refused("this is no signed token") from error
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm not in ALGORITHMS:
            raise refused(f"tokens must be signed by one of {' '.join(ALGORITHMS)}")
        async with answer_deadline():
            jwk = await self.keys.find(kid)
        # The algorithm is the key's, never only what the token says of itself.
        if jwk is None or jwk.get("alg", algorithm) != algorithm:
            raise refused("the provider has no such key for this token (kid, alg)")
        try:
            key = jwt.PyJWK(jwk, algorithm)
            found: dict[str, Any] = jwt.decode(
                token,
                key,
                [algorithm],
                options={"require": _REQUIRED},
                audience=audience,
                issuer=self._settings.issuer,
                leeway=LEEWAY_SECONDS,
            )
        except jwt.MissingRequiredClaimError as error:
            raise refused(f"the token lacks the claim {error.claim}") from error
        except jwt.InvalidTokenError as error:
            text = next((text for kind, text in _REFUSALS if isinstance(error, kind)), "the token is malformed")
            raise refused(text) from error
        except jwt.PyJWTError as error:
            raise refused("the key of this token is not one for its algorithm") from error
        return found

    def principal_with(self, claims: Mapping[str, Any]) -> Principal:
        """Return who has these claims. Raise a 401 problem for a user without a name, a 403 one for a user who
        is granted nothing."""
        user, wanted = claim(claims, self._settings.user_claim), self._settings.user_claim
        if not (_is_name(user) and _is_name(claims["sub"])):
            raise refused(f"the token has no usable name in the claim {wanted}")
        if "email" in (wanted, self._settings.grants_claim) and claims.get("email_verified", True) not in (
            True,
            "true",
        ):
            raise refused("the provider has not verified the email by which the token names somebody")
        granted = self._granted(_values(claims, self._settings.grants_claim))
        if granted is None:
            raise Problem(
                403,
                "forbidden",
                f"{user} is known, and granted nothing here: none of the values of the claim"
                f" {self._settings.grants_claim} stands in CADRE_OIDC_GRANTS",
            )
        fields = {name: getattr(granted, name) for name in ("own", "rate", "runs_per_day")}
        return Principal(
            name=user,
            key=OF_PROVIDER + claims["sub"],
            roles=frozenset(granted.roles),
            user=user,
            agents=frozenset(granted.agents),
            teams=frozenset(granted.teams),
            expires_at=float(claims["exp"]),
            **fields,
        )

    def grants(self, rights: Rights) -> bool:
        """Return whether the settings still grant these rights to any person. The provider is not asked."""
        reach = rights.own, frozenset(rights.agents), frozenset(rights.teams)
        fitting = [one for one in self._grants.values() if _scope(one) == reach]
        return set(rights.roles) <= {role for one in fitting for role in one.roles}

    def _granted(self, held: list[object]) -> Grant | None:
        """Return the first grant of these values, with the roles of others that reach no more and no less: a person's
        role for some runs is never combined with their reach in another grant."""
        fitting = [one for value, one in self._grants.items() if value == EVERYBODY or value in held]
        if not fitting:
            return None
        first = fitting[0]
        roles = [role for one in fitting if _scope(one) == _scope(first) for role in one.roles]
        return msgspec.structs.replace(first, roles=roles)


def claim(claims: Mapping[str, Any], name: str) -> object:
    """Return the claim of this name, which may lead into objects by dots; None if it is missing."""
    if name in claims:
        return claims[name]
    found: object = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _values(claims: Mapping[str, Any], name: str) -> list[object]:
    """Return the values of a claim: a list, or one text, which is several words only in these two claims of OAuth."""
    found = claim(claims, name)
    if isinstance(found, str):
        return list(found.split()) if name in ("scope", "scp") else [found]
    return found if isinstance(found, list) else []


def refused(why: str) -> Problem:
    """Return the problem of a token that does not count."""
    return unauthorized(why, "invalid_token")


def _scope(grant: Grant) -> tuple[bool, frozenset[str], frozenset[str]]:
    return grant.own, frozenset(grant.agents), frozenset(grant.teams)


def _is_name(text: object) -> TypeGuard[str]:
    return isinstance(text, str) and 0 < len(text.strip()) <= _MAX_NAME_CHARS and text.isprintable()
