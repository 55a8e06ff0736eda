"""Signed cards of A2A: checked as a client would, with the key that the card leads to."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.stack import Gateway, Stack

pytest.importorskip("jwt")

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

TEAM = Path(__file__).parent / "doors"
URL = "https://agents.example"


def pem(key: Any) -> bytes:
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return bytes(key.private_bytes(*form, serialization.NoEncryption()))


def checked(card: dict[str, Any], keys: dict[str, Any]) -> dict[str, Any]:
    """The protected header of the card's signature. Raises InvalidSignatureError."""
    (signature,) = card["signatures"]
    rest = {key: value for key, value in card.items() if key != "signatures"}
    text = json.dumps(rest, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    payload = jwt.utils.base64url_encode(text.encode()).decode()
    token = f"{signature['protected']}.{payload}.{signature['signature']}"
    header = jwt.get_unverified_header(token)
    (key,) = [one for one in jwt.PyJWKSet.from_dict(keys).keys if one.key_id == header["kid"]]
    jwt.PyJWS().decode(token, key, algorithms=["ES256", "EdDSA", "RS256"])
    return header


@pytest.mark.parametrize(
    "make",
    [
        lambda: ec.generate_private_key(ec.SECP256R1()),
        ed25519.Ed25519PrivateKey.generate,
        lambda: rsa.generate_private_key(65537, 2048),
    ],
    ids=["EC", "Ed25519", "RSA"],
)
def test_a_card_is_signed(stack: Stack, gateway: Gateway, make: Callable[[], Any], tmp_path: Path) -> None:
    file = tmp_path / "card.pem"
    file.write_bytes(pem(make()))
    names = {"CADRE_A2A_KEY": str(file), "CADRE_A2A_URL": f"{URL}/"}
    signing = Gateway(stack.add(f"signing-{tmp_path.name}", "cadre_gateway", start=True, **names))
    answer = signing.request("GET", "/a2a/clerk/.well-known/agent-card.json")
    card, keys = answer.json(), signing.request("GET", "/a2a/.well-known/jwks.json").json()
    header = checked(card, keys)
    assert (header["typ"], header["jku"]) == ("JOSE", f"{URL}/a2a/.well-known/jwks.json")
    assert {one["url"] for one in card["supportedInterfaces"]} == {f"{URL}/a2a/clerk"}, "not where it was asked at"
    assert not [key for key, value in card.items() if value in ("", [], {})]
    card["description"] += "!"
    with pytest.raises(jwt.InvalidSignatureError):
        checked(card, keys)
    assert not {"d", "p", "q"} & keys["keys"][0].keys(), "the private half stays here"
    signing.service.terminate()


@pytest.mark.parametrize(
    ("names", "what"),
    [
        ({"CADRE_A2A_KEY": "/nowhere.pem"}, "CADRE_A2A_KEY is set: set CADRE_A2A_URL"),
        ({"CADRE_A2A_KEY": "/nowhere.pem", "CADRE_A2A_URL": URL}, "PEM"),
        ({"CADRE_A2A_URL": "agents.example"}, "CADRE_A2A_URL=agents.example: write http"),
    ],
)
def test_settings_that_do_not_hold_end_the_gateway(stack: Stack, names: dict[str, str], what: str) -> None:
    service = stack.add(f"wrong-{len(stack.services)}", "cadre_gateway", start=False, **names)
    service.start(wait=False)
    assert service.process is not None
    assert service.process.wait(timeout=60) == 2
    assert what in service.log.read_text()


def test_an_unsigned_card_is_for_older_clients_too(gateway: Gateway) -> None:
    card = gateway.request("GET", "/a2a/clerk/.well-known/agent-card.json").json()
    assert "signatures" not in card
    assert card["protocolVersion"] == "0.3.0"
    assert gateway.request("GET", "/a2a/.well-known/jwks.json").json() == {"keys": []}
