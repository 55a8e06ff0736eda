"""Addresses of NATS servers, as CADRE_NATS_URL lists them: checked, and without what is secret in them."""

from urllib.parse import SplitResult, urlsplit

from cadre.errors import SettingError

_SCHEMES = ("nats", "tls")


def addresses(text: str) -> list[str]:
    """The address of each server of a cluster. Raises SettingError."""
    return [_whole(one.strip()).geturl() for one in text.split(",")]


def redacted(text: str) -> str:
    """The addresses for people and logs: without user and password. Raises SettingError."""
    parts = [_whole(one.strip()) for one in text.split(",")]
    return ",".join(one._replace(netloc=one.netloc.rpartition("@")[2]).geturl() for one in parts)


def _whole(text: str) -> SplitResult:
    address = urlsplit(text if "://" in text else f"nats://{text}")
    try:
        usable = address.scheme in _SCHEMES and bool(address.hostname) and address.port != 0
    except ValueError:  # of the port
        usable = False
    if not usable:
        # It may have a password: not repeated.
        raise SettingError(
            "CADRE_NATS_URL: must be the address of a NATS server such as nats://127.0.0.1:4222 (or tls://…), or"
            " several with commas between them"
        )
    return address
