"""An operator of NATS, who signs accounts and users: what a server learns of it, and the credentials of users."""

from __future__ import annotations

import json
import os
import time
from base64 import urlsafe_b64encode
from typing import Any, NamedTuple

import nkeys

_STORAGE = ("mem_storage", "disk_storage", "streams", "consumer")
_NO_LIMITS = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf", *_STORAGE), -1)


class Signer(NamedTuple):
    """One who signs: an operator, an account, or a user."""

    seed: bytes

    @property
    def public(self) -> str:
        key: bytes = nkeys.from_seed(bytearray(self.seed)).public_key
        return key.decode()

    def sign(self, subject: str, name: str, kind: str, **claims: Any) -> str:
        """Return what this one says of the subject, as a JWT."""
        about = {"type": kind, "version": 2, **claims}
        now = int(time.time())
        said = {
            "jti": f"{kind}-{name}",
            "iat": now,
            "iss": self.public,
            "name": name,
            "sub": subject,
            "nats": about,
        }
        parts = [_encoded(json.dumps(one).encode()) for one in ({"typ": "JWT", "alg": "ed25519-nkey"}, said)]
        signed = nkeys.from_seed(bytearray(self.seed)).sign(".".join(parts).encode())
        return ".".join([*parts, _encoded(signed)])


class Operator:
    """An operator with an account that may all, next to that of the system."""

    def __init__(self) -> None:
        self._key, self.account, system = (_signer(prefix) for prefix in ("O", "A", "A"))
        accounts = [(self.account, "team"), (system, "SYS")]
        signed = [
            f"{one.public}: {self._key.sign(one.public, name, 'account', limits=_limits(name))}"
            for one, name in accounts
        ]
        self.config = "\n".join(
            [
                f"operator: {self._key.sign(self._key.public, 'op', 'operator', system_account=system.public)}",
                f"system_account: {system.public}",
                "resolver: MEMORY",
                f"resolver_preload: {{ {chr(10).join(signed)} }}",
                "",
            ]
        )
        """For the server."""

    def credentials(self, user: str) -> str:
        """The content of the file of credentials of a new user who may all."""
        key = _signer("U")
        said = self.account.sign(key.public, user, "user", pub={}, sub={}, subs=-1, data=-1, payload=-1)
        parts = (("NATS USER JWT", said), ("USER NKEY SEED", key.seed.decode()))
        return "\n".join(f"-----BEGIN {name}-----\n{text}\n------END {name}------\n" for name, text in parts)


def _limits(name: str) -> dict[str, Any]:
    none = dict.fromkeys(_STORAGE, 0) if name == "SYS" else {}
    return {**_NO_LIMITS, **none, "wildcards": True}


def _signer(prefix: str) -> Signer:
    byte = {"O": nkeys.PREFIX_BYTE_OPERATOR, "A": nkeys.PREFIX_BYTE_ACCOUNT, "U": nkeys.PREFIX_BYTE_USER}[prefix]
    return Signer(nkeys.encode_seed(os.urandom(32), byte))


def _encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
