"""Keys of NATS users: made, read from their files, and turned into the options of a connection.

A file holds the seed, as `nats --nkey` reads it too, below a comment that names the user: the server knows a user by
its public key alone, and the client must know the name for the inboxes that it may listen to. Where an operator signs
users, the file is one of credentials (`.creds`): what the operator says of the user, and the seed.
"""

import logging
import os
import re
import ssl
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from nats.aio.client import Client

from cadre.errors import SettingError
from cadre.protocol.nats_users import asks_leader, inbox_of, provisions, removes_objects
from cadre.settings import Settings

log = logging.getLogger("cadre.nats")

_USER = re.compile(r"^#\s*user:\s*([a-zA-Z0-9_-]+)\s*$", re.MULTILINE)
_ADVICE = "make it with `cadre auth init` and name it in CADRE_NATS_CREDENTIALS"
_JWT = "-----BEGIN NATS USER JWT-----"
_SEED = re.compile(r"^\s*(SU[A-Z2-7]{56})\s*$", re.MULTILINE)

_users: WeakKeyDictionary[Client, str] = WeakKeyDictionary()


class Key(NamedTuple):
    """The key of a NATS user."""

    user: str
    """Empty when the file does not say: then the user is taken to have all rights."""
    seed: str
    has_jwt: bool = False
    """True if its file is one of credentials, which goes to the server whole."""

    @property
    def public(self) -> str:
        """Return the public half, by which the server knows the user."""
        return public_key(self.seed)


def new_key(user: str) -> Key:
    """Make a key for the user."""
    import nkeys  # more than a megabyte, for deployments with keys alone

    seed: bytes = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)
    return Key(user, seed.decode())


def public_key(seed: str) -> str:
    """Derive the public key from a seed."""
    import nkeys

    key: bytes = nkeys.from_seed(bytearray(seed.encode())).public_key
    return key.decode()


def text_of(key: Key) -> str:
    """Return the content of the file that holds the key."""
    return (
        f"# The key of a NATS user, made by `cadre auth init`: who has it is that service.\n"
        f"# user: {key.user}\n{key.seed}\n"
    )


def read_key(file: Path) -> Key:
    """Read a key from its file. Raises SettingError that says what to do."""
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "no text"
        raise SettingError(f"the NATS key {file} cannot be read ({why}): {_ADVICE}") from error
    return key_in(text, str(file))


def key_in(text: str, where: str) -> Key:
    """Return the key in the content of a file. Raises SettingError that names `where`, and says what to do."""
    seed, user = _SEED.search(text), _USER.search(text)
    if seed is None:
        raise SettingError(f"{where} holds no key of a NATS user (a line that begins with SU): {_ADVICE}")
    return Key(user[1] if user else "", seed[1], _JWT in text)


def options(nc: Client, settings: Settings) -> dict[str, Any]:
    """Return what `nc` is to connect with: key, inbox and certificates. Raises SettingError."""
    given: dict[str, Any] = {}
    if settings.nats_credentials:
        key = read_key(Path(settings.nats_credentials))
        _users[nc] = key.user
        if key.has_jwt:
            given["user_credentials"] = settings.nats_credentials  # read again at each connection
        else:
            given["nkeys_seed_str"] = key.seed
        if key.user:
            given["inbox_prefix"] = inbox_of(key.user).encode()
    if (context := _tls(settings)) is not None:
        given["tls"] = context
    return given


def seed_now(nc: Client, settings: Settings) -> str | None:
    """Return the seed in the connection's key file as that is now; None where it holds no key of the connection's
    user."""
    try:
        key = read_key(Path(settings.nats_credentials))
    except SettingError as error:
        # Whether that is trouble, the server says: it may know the key of before.
        log.debug("%s; the key of before stays", error)
        return None
    return key.seed if key.user == user_of(nc) else None


def user_of(nc: Client) -> str:
    """Return the user of the connection: empty when it has none, or one that is not of Cadre's making."""
    return _users.get(nc, "")


def may_provision(nc: Client) -> bool:
    """Return whether the connection may make streams and consumers."""
    return provisions(user_of(nc))


def may_ask_leader(nc: Client, stream: str) -> bool:
    """Return whether the connection may read any message of the stream from its leader. Blobs are open to every
    service: permissions cannot be finer there.
    """
    return stream.startswith("OBJ_") or asks_leader(user_of(nc))


def may_remove_objects(nc: Client) -> bool:
    """Return whether the connection may remove messages of the object store."""
    return removes_objects(user_of(nc))


def may_write_probes(nc: Client) -> bool:
    """Return whether the connection may try out whether shards store what they are sent: the tracer only reads."""
    return user_of(nc) != "tracer"


def _tls(settings: Settings) -> ssl.SSLContext | None:
    ca, cert, key = settings.nats_tls_ca, settings.nats_tls_cert, settings.nats_tls_key
    if bool(cert) != bool(key):
        raise SettingError("CADRE_NATS_TLS_CERT and CADRE_NATS_TLS_KEY go together: set both, or neither")
    if not (ca or cert or settings.nats_url.startswith("tls://")):
        return None
    try:
        context = ssl.create_default_context(cafile=ca or None)
    except (OSError, ssl.SSLError) as error:
        raise SettingError(f"CADRE_NATS_TLS_CA={ca}: no certificate can be read there ({error})") from error
    if cert:
        try:
            context.load_cert_chain(cert, key)
        except (OSError, ssl.SSLError) as error:
            raise SettingError(
                f"CADRE_NATS_TLS_CERT={cert} and CADRE_NATS_TLS_KEY={key}: no pair can be read there ({error})"
            ) from error
    return context
