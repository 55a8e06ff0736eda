"""An OpenID Connect provider of the tests' own, which speaks the real protocol over HTTP and signs with real keys."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote_plus, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

CLIENT_ID = "console"
CLIENT_SECRET = "a secret: with % and :"


@dataclass
class SigningKey:
    """One key pair and its id."""

    kid: str = field(default_factory=lambda: secrets.token_hex(4))
    private: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))

    def public_pem(self) -> bytes:
        return self.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def jwk(self) -> dict[str, Any]:
        found: dict[str, Any] = jwt.algorithms.RSAAlgorithm.to_jwk(self.private.public_key(), as_dict=True)
        return {**found, "kid": self.kid, "use": "sig", "alg": "RS256"}


class OidcProviderServer:
    """The provider. People sign in at its page by a click on their name; no one needs a password."""

    def __init__(self) -> None:
        self.key = SigningKey()
        self.people: dict[str, dict[str, Any]] = {}
        """Claims of people by their subject."""
        self.is_down = False
        self.lifetime = 300.0
        """Seconds for which tokens hold."""
        self.gives_refresh = True
        self.asked: list[str] = []
        """Paths in the order in which they were asked for."""
        self._codes: dict[str, dict[str, str]] = {}
        self._refresh: dict[str, str] = {}
        self._lock = threading.Lock()
        self._answering = threading.Event()
        self._answering.set()
        provider = self

        class Handler(_Handler):
            server_of = provider

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @contextmanager
    def stalled(self) -> Iterator[None]:
        """Answers nothing meanwhile."""
        self._answering.clear()
        try:
            yield
        finally:
            self._answering.set()

    def rotate(self) -> None:
        """Signs with a new key from now on; the old one is listed no more."""
        self.key = SigningKey()

    def claims(self, subject: str, audience: str | list[str] = CLIENT_ID, **more: Any) -> dict[str, Any]:
        now = int(time.time())
        return {
            "iss": self.issuer,
            "aud": audience,
            "sub": subject,
            "iat": now,
            "exp": now + self.lifetime,
            **self.people.get(subject, {}),
            **more,
        }

    def token(self, subject: str, audience: str | list[str] = CLIENT_ID, **more: Any) -> str:
        return self.sign(self.claims(subject, audience, **more))

    def sign(self, claims: dict[str, Any], **headers: Any) -> str:
        return jwt.encode(claims, self.key.private, "RS256", headers={"kid": self.key.kid, **headers})

    def refresh_tokens(self) -> list[str]:
        """Those that somebody may still use."""
        with self._lock:
            return list(self._refresh)

    def authorize(self, query: dict[str, str], subject: str) -> str:
        """Return where the browser is sent back to, once it is this person's."""
        code = secrets.token_urlsafe(16)
        with self._lock:
            self._codes[code] = {**query, "subject": subject}
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state'], 'iss': self.issuer})}"

    def exchange(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        """Return what the token endpoint answers."""
        with self._lock:
            if form["grant_type"] == "refresh_token":
                # Each is good for one use.
                subject = self._refresh.pop(form["refresh_token"], None)
                if subject not in self.people:
                    return 400, {"error": "invalid_grant"}
                return 200, self._tokens(subject, {})
            begun = self._codes.pop(form["code"], None)
            if begun is None or begun["redirect_uri"] != form["redirect_uri"]:
                return 400, {"error": "invalid_grant"}
            challenge = hashlib.sha256(form["code_verifier"].encode()).digest()
            if base64.urlsafe_b64encode(challenge).rstrip(b"=").decode() != begun["code_challenge"]:
                return 400, {"error": "invalid_grant"}
            return 200, self._tokens(begun["subject"], {"nonce": begun["nonce"]})

    def _tokens(self, subject: str, more: dict[str, str]) -> dict[str, Any]:
        answer = {"token_type": "Bearer", "expires_in": self.lifetime, "access_token": "opaque"}
        if self.gives_refresh:
            answer["refresh_token"] = secrets.token_urlsafe(16)
            self._refresh[str(answer["refresh_token"])] = subject
        return {**answer, "id_token": self.token(subject, **more)}


class _Handler(BaseHTTPRequestHandler):
    server_of: OidcProviderServer

    def do_GET(self) -> None:
        provider, asked = self.server_of, urlsplit(self.path)
        provider._answering.wait()
        provider.asked.append(asked.path)
        query = {name: values[0] for name, values in parse_qs(asked.query).items()}
        if provider.is_down:
            self._answer(503, {})
        elif asked.path == "/.well-known/openid-configuration":
            self._answer(
                200,
                {
                    "issuer": provider.issuer,
                    "jwks_uri": f"{provider.issuer}/keys",
                    "authorization_endpoint": f"{provider.issuer}/authorize",
                    "token_endpoint": f"{provider.issuer}/token",
                    "token_endpoint_auth_methods_supported": ["client_secret_basic"],
                },
            )
        elif asked.path == "/keys":
            self._answer(200, {"keys": [provider.key.jwk()]})
        elif asked.path == "/authorize":
            assert query["response_type"] == "code"
            assert query["code_challenge_method"] == "S256"
            assert "openid" in query["scope"].split()
            self._authorize(query)
        else:  # the icon that browsers ask for
            self._answer(200, "")

    def _authorize(self, query: dict[str, str]) -> None:
        provider = self.server_of
        if (person := query.pop("person", None)) is not None:
            self.send_response(302)
            self.send_header("Location", provider.authorize(query, person))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        links = "".join(
            f'<li><a href="/authorize?{html.escape(urlencode({**query, "person": one}))}">{html.escape(one)}</a>'
            for one in provider.people
        )
        page = f'<!doctype html><html lang="en"><title>Provider</title><h1>Who are you?</h1><ul>{links}</ul>'
        self._answer(200, page)

    def do_POST(self) -> None:
        provider = self.server_of
        provider.asked.append(self.path)
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if provider.is_down:
            self._answer(503, {})
            return
        given = base64.b64decode(self.headers.get("Authorization", "").partition(" ")[2]).decode()
        if [unquote_plus(part) for part in given.split(":")] != [CLIENT_ID, CLIENT_SECRET]:
            self._answer(401, {"error": "invalid_client"})
            return
        form = {name: values[0] for name, values in parse_qs(body).items()}
        self._answer(*provider.exchange(form))

    def _answer(self, status: int, content: dict[str, Any] | str) -> None:
        is_page = isinstance(content, str)
        data = content.encode() if isinstance(content, str) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/html" if is_page else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """The test's output is not the place for an access log."""
