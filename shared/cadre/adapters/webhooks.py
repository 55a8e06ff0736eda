"""Posts webhooks: resolves the host once, checks every address, and connects to one that was checked."""

import asyncio

import httpx2

from cadre.adapters.addresses import (
    Address,
    AddressRefused,
    Network,
    Resolve,
    checked_addresses,
    system_resolve,
)
from cadre.adapters.http_options import tls_context
from cadre.errors import SettingError

POST_SECONDS = 15.0
"""The total timeout of a delivery."""


class WebhookFailed(Exception):
    """The webhook was not taken; the text says why."""


class WebhookGone(WebhookFailed):
    """The receiver wants no webhooks there any more (410)."""


class WebhookSender:
    """Sends to the public internet, and to the networks that are allowed. It follows no redirects and uses no proxy."""

    def __init__(self, allowed: tuple[Network, ...], resolve: Resolve = system_resolve) -> None:
        self._allowed = allowed
        self._resolve = resolve

    async def post(self, url: str, body: bytes, headers: dict[str, str]) -> None:
        """Post the body; returns when it was taken (2xx). Raises WebhookFailed."""
        try:
            async with asyncio.timeout(POST_SECONDS):
                await self._post(httpx2.URL(url), body, headers)
        except TimeoutError as error:
            raise WebhookFailed(f"no answer within {POST_SECONDS:g} s") from error
        except (httpx2.InvalidURL, AddressRefused, SettingError) as error:
            raise WebhookFailed(str(error)) from error
        except httpx2.HTTPError as error:
            raise WebhookFailed(str(error) or type(error).__name__) from error

    async def _post(self, url: httpx2.URL, body: bytes, headers: dict[str, str]) -> None:
        port = url.port or (443 if url.scheme == "https" else 80)
        host = url.raw_host.decode("ascii")
        addresses = await checked_addresses(host, port, self._allowed, self._resolve)
        unreachable: httpx2.TransportError | None = None
        for address in addresses:
            try:
                return await self._post_to(url, address, body, headers)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                unreachable = error
        assert unreachable is not None
        raise unreachable

    async def _post_to(self, url: httpx2.URL, address: Address, body: bytes, headers: dict[str, str]) -> None:
        # The name would be resolved once more, perhaps to something else: it is only asked for, and certified.
        async with (
            httpx2.AsyncClient(
                verify=tls_context() if url.scheme == "https" else False,
                timeout=httpx2.Timeout(None, connect=5.0),
                trust_env=False,
            ) as client,
            client.stream(
                "POST",
                url.copy_with(host=str(address)),
                content=body,
                headers={**headers, "Host": url.netloc.decode("ascii")},
                extensions={"sni_hostname": url.raw_host.decode("ascii")},
            ) as answer,
        ):
            if answer.status_code == 410:
                raise WebhookGone("the receiver says that this address is gone (410)")
            if not 200 <= answer.status_code < 300:
                raise WebhookFailed(f"the receiver answered {answer.status_code}")
