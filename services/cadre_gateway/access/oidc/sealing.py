"""Encrypts what a sign-in needs again with the token that its browser alone has: nothing stored lets anybody in."""

import hmac
import os
from base64 import b64decode, b64encode
from hashlib import sha256

_NONCE_BYTES = 12


def seal(secret: str, token: str) -> str:
    """The secret, which only `unseal` with the same token gives back."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = os.urandom(_NONCE_BYTES)
    return b64encode(nonce + AESGCM(_key(token)).encrypt(nonce, secret.encode(), None)).decode()


def unseal(sealed: str, token: str) -> str:
    """The secret again. Raises ValueError where it was sealed with another token, or changed."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    data = b64decode(sealed)
    try:
        return AESGCM(_key(token)).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], None).decode()
    except InvalidTag as error:
        raise ValueError("sealed with another token") from error


def _key(token: str) -> bytes:
    # The token has 256 random bits; what is stored of it is a plain SHA-256, which says nothing about this key.
    return hmac.digest(token.encode(), b"cadre refresh token", sha256)
