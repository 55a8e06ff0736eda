"""Describe an agent as A2A's card, and sign it with a detached JSON Web Signature over its canonical JSON."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

from cadre.errors import SettingError
from cadre.protocol.a2a import MESSAGES_ONCE
from cadre.protocol.cards import AgentCard
from cadre_gateway.doors.card_settings import KEY, CardSettings

VERSIONS = ("1.0", "0.3")
MODES = ["text/plain", "application/json"]

KEYS = "/a2a/.well-known/jwks.json"
"""URL path of the public key."""

_MEMBERS = {"EC": ("crv", "kty", "x", "y"), "OKP": ("crv", "kty", "x"), "RSA": ("e", "kty", "n")}
"""The members of a public key that its thumbprint is about (RFC 7638)."""


def card_of_agent(card: AgentCard, url: str, *, asks_who_calls: bool) -> dict[str, Any]:
    """Return the card of the agent that is reached at `url`, without empty fields: those may get lost on the way, which
    would break a signature."""
    interfaces = [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": version} for version in VERSIONS]
    interfaces.insert(1, {"url": url, "protocolBinding": "HTTP+JSON", "protocolVersion": VERSIONS[0]})
    tags = sorted({card.kind, *(f"{key}={value}" for key, value in card.labels.items())})
    skill = {"id": card.name, "name": card.name, "description": card.description, "tags": tags}
    found: dict[str, Any] = {
        "name": card.name,
        "description": card.description,
        "version": card.version or "0",
        "supportedInterfaces": interfaces,
        "capabilities": {
            "streaming": True,
            "pushNotifications": True,
            "extendedAgentCard": False,
            "extensions": [{"uri": MESSAGES_ONCE, "description": "A message sent again finds its task."}],
        },
        "defaultInputModes": [*MODES, "image/*", "application/octet-stream"],
        "defaultOutputModes": MODES,
        "skills": [skill],
    }
    if asks_who_calls:
        found["securitySchemes"] = {"key": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}}
        found["securityRequirements"] = [{"schemes": {"key": {"list": ["act"]}}}]
    return found


def for_older_clients(card: dict[str, Any], url: str) -> dict[str, Any]:
    """Return the card with the fields that clients of version 0.3 look for."""
    return {**card, "url": url, "preferredTransport": "JSONRPC", "protocolVersion": "0.3.0"}


class CardSigner:
    """One private key, and the address that its cards name."""

    def __init__(self, jws: Any, key: Any, url: str) -> None:
        self._algorithm, jwk = _described(key)
        self._jws, self._key, self._jku = jws, key, f"{url}{KEYS}"
        members = {name: jwk[name] for name in _MEMBERS[jwk["kty"]]}
        digest = hashlib.sha256(_canonical(members)).digest()
        self._kid = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        self.keys = {"keys": [{**members, "kid": self._kid, "alg": self._algorithm, "use": "sig"}]}
        """The key set by which clients check a signature."""

    def signed(self, card: dict[str, Any]) -> dict[str, Any]:
        """Return the card with its signature."""
        header = {"typ": "JOSE", "kid": self._kid, "jku": self._jku}
        token = self._jws.encode(_canonical(card), self._key, self._algorithm, header)
        protected, _, signature = token.split(".")
        return {**card, "signatures": [{"protected": protected, "signature": signature}]}


def signer_of(settings: CardSettings) -> CardSigner | None:
    """Return what signs cards; None where no key is given. Raise SettingError."""
    if not settings.key:
        return None
    try:
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
        from jwt import PyJWS
    except ModuleNotFoundError as error:
        raise SettingError(
            f"{KEY} is set and the Python module {error.name!r} is not installed: pip install 'cadre-agents[oidc]'"
        ) from error
    try:
        key = load_pem_private_key(Path(settings.key).read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise SettingError(f"{KEY}={settings.key}: no private key in PEM without a password: {error}") from error
    return CardSigner(PyJWS(), key, settings.url)


def _described(key: Any) -> tuple[str, dict[str, Any]]:
    """Return the algorithm that a private key signs with, and its public key as JWK. Raises SettingError."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
    from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

    match key:
        case ec.EllipticCurvePrivateKey(curve=ec.SECP256R1()):
            return "ES256", ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
        case ed25519.Ed25519PrivateKey():
            return "EdDSA", OKPAlgorithm.to_jwk(key.public_key(), as_dict=True)
        case rsa.RSAPrivateKey():
            return "RS256", RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
        case _:
            raise SettingError(f"{KEY}: give an EC key of the curve P-256, an Ed25519 or an RSA key")


def _canonical(value: dict[str, Any]) -> bytes:
    """Return the value in the form of RFC 8785, as long as its keys are ASCII and its numbers whole."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()
