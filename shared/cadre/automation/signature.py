"""Sign webhooks as the specification Standard Webhooks asks: HMAC-SHA256 over id, time and body."""

import base64
import binascii
import hashlib
import hmac

_PREFIX = "whsec_"
_VERSION = "v1"

TOLERANCE_SECONDS = 300.0
"""A signed time may be so far from the present, either way."""


class SignatureInvalid(Exception):
    """The message is not signed as it must be; the text says what is wrong."""


def secret_bytes(secret: str) -> bytes:
    """The key in a secret `whsec_<base64>`; any other text is the key itself. Raises ValueError for an empty one."""
    secret = secret.strip()
    if not secret.removeprefix(_PREFIX):
        raise ValueError("the secret is empty")
    if not secret.startswith(_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except binascii.Error as error:
        raise ValueError("the secret is no base64 behind whsec_") from error


def signature(secret: str, message: str, timestamp: int, body: bytes) -> str:
    """The value of the header `webhook-signature` of this message id, Unix time and body."""
    signed = b".".join([message.encode(), str(timestamp).encode(), body])
    digest = hmac.new(secret_bytes(secret), signed, hashlib.sha256).digest()
    return f"{_VERSION},{base64.b64encode(digest).decode()}"


def verify(  # noqa: PLR0913 - what a signature is over
    secret: str,
    message: str,
    timestamp: str,
    signatures: str,
    body: bytes,
    *,
    now: float,
    tolerance: float = TOLERANCE_SECONDS,
) -> None:
    """Checks the three headers of a message: one of its signatures must be right. Raises SignatureInvalid."""
    if not message or not timestamp or not signatures:
        raise SignatureInvalid("send the headers webhook-id, webhook-timestamp and webhook-signature")
    if not timestamp.isdecimal() or len(timestamp) > 15:
        raise SignatureInvalid("webhook-timestamp: write Unix seconds")
    if abs(now - int(timestamp)) > tolerance:
        raise SignatureInvalid(f"webhook-timestamp: is over {tolerance:g} s from this gateway's clock")
    expected = signature(secret, message, int(timestamp), body).encode()
    given = signatures.encode("utf-8", "replace").split()
    if not any(hmac.compare_digest(one, expected) for one in given):
        raise SignatureInvalid("webhook-signature: none is right for this id, time and body")
