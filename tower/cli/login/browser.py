"""A login by browser: a page on the loopback address receives the provider's answer (RFC 8252)."""

from __future__ import annotations

import contextlib
import hmac
import os
import sys
import time
import webbrowser
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import attrs

from tower.cli.client import CommandFailed
from tower.cli.login.identity_provider import PKCE, IdentityProvider, ProviderTokens
from tower.escaping import escaped

#: Path of the page.
PATH = "/callback"

#: Time for the user, s.
PATIENCE = 300.0

#: Longest wait for one request, s: browsers open connections that they do not use.
_REQUEST = 2.0

_PAGE = """<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>{title} - Tower</title>
<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">
<body style="font: 16px/1.5 system-ui, sans-serif; margin: 15vh auto; max-width: 30em; padding: 0 1em">
<p style="letter-spacing: .2em; opacity: .6">TOWER</p><h1 style="font-size: 1.6em">{title}</h1><p>{text}</p>
</body></html>
"""


def has_browser(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether this machine can show a browser to the user."""
    if environ.get("BROWSER"):
        return True
    if any(environ.get(name) for name in ("SSH_CONNECTION", "SSH_TTY")):
        return False
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY"))


def by_browser(
    provider: IdentityProvider,
    port: int,
    tell: Callable[[str], object],
    open_page: Callable[[str], bool] = webbrowser.open,
    patience: float = PATIENCE,
    *,
    consent: bool = False,
) -> ProviderTokens:
    """Let the user log in with a browser of this machine; return the tokens.

    If the front door requires a refresh token and the provider gives none, the page redirects to the
    provider's consent page.

    :param port: of the page; 0: any.
    :param tell: shows a line to the user.
    :param consent: whether the first page requests consent; see `IdentityProvider.address`.
    :raise CommandFailed: the user did not log in in time, or the provider rejected the login.
    """
    visit = _Visit(provider, consent)
    try:
        server = _Loopback(port, visit)
    except OSError as e:
        raise CommandFailed(f"--callback-port {port}: {(e.strerror or str(e)).lower()}") from e
    try:
        address = visit.address
        tell(f"log in with a browser of this machine; if none opens, open this address there:\n  {address}")
        Thread(target=_opened, args=(open_page, address), daemon=True).start()  # some wait for the browser
        return server.wait(patience)
    finally:
        server.server_close()


def _opened(open_page: Callable[[str], bool], address: str) -> None:
    with contextlib.suppress(webbrowser.Error, OSError):  # the user opens the address
        open_page(address)


class _Visit:
    """A visit of the browser to the provider: the login and, if necessary, the consent page.

    :ivar redirect: URL of the page that receives the response.
    :ivar pkce: secrets of the request that is in progress.
    """

    redirect = ""

    def __init__(self, provider: IdentityProvider, consent: bool) -> None:
        self.provider, self._consent = provider, consent
        self.pkce = PKCE()

    @property
    def address(self) -> str:
        """The provider's page for the browser."""
        return self.provider.address(self.pkce, self.redirect, consent=self._consent)

    def tokens(self, code: str) -> ProviderTokens | None:
        """Return the tokens for a code; None: the browser must go to the new `address`.

        :raise CommandFailed: the provider rejects it.
        """
        tokens = self.provider.by_code(self.pkce, self.redirect, code)
        if tokens.refresh_token or self._consent or not self.provider.needs_refresh_token:
            return attrs.evolve(tokens, has_consent=self._consent)
        self._consent, self.pkce = True, PKCE()
        return None


class _Loopback(HTTPServer):
    """Server of the page on 127.0.0.1 until the login has succeeded or failed.

    :ivar tokens: the result; None: not received yet.
    :ivar failure: the reason; None: the login has not failed.
    """

    allow_reuse_address = True

    def __init__(self, port: int, visit: _Visit) -> None:
        self.visit = visit
        self.tokens: ProviderTokens | None = None
        self.failure: CommandFailed | None = None
        super().__init__(("127.0.0.1", port), _Handler)
        visit.redirect = f"http://localhost:{self.server_port}{PATH}"

    def wait(self, patience: float) -> ProviderTokens:
        """Return the tokens.

        :raise CommandFailed: there are none in time, or the provider refused.
        """
        end = time.monotonic() + patience
        while self.tokens is None:
            if self.failure is not None:
                raise self.failure
            left = end - time.monotonic()
            if left <= 0:
                raise CommandFailed(
                    f"there was no login within {patience / 60:g} minutes: run 'tower login' again, with "
                    "--device if this machine has no browser"
                )
            self.timeout = min(left, 1.0)
            self.handle_request()
        return self.tokens

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a connection that fails."""


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: _Loopback
    timeout = _REQUEST
    server_version, sys_version = "tower", ""

    def do_GET(self) -> None:
        """Take the answer of the provider."""
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        visit = self.server.visit
        issuer = visit.provider.url
        is_ours = hmac.compare_digest(query.get("state", "").encode(), visit.pkce.state.encode())
        if parts.path != PATH or not is_ours or not visit.provider.has_answered(query.get("iss")):
            self._answer(404, "Not found", "This is not the answer to a login of this program.")
            return
        try:
            if not query.get("code"):
                problem = query.get("error_description") or query.get("error") or "no code"
                raise CommandFailed(f"the identity provider {issuer} refused the login: {escaped(problem)}")
            self.server.tokens = visit.tokens(query["code"])
        except CommandFailed as e:
            self.server.failure = e
            self._answer(400, "The login failed", "The terminal has the reason.")
            return
        if self.server.tokens is None:
            text = "Your identity provider requires your consent."
            self._answer(303, "Consent required", text, Location=visit.address)
        else:
            text = "Your identity provider has confirmed your identity.  You can close this page."
            self._answer(200, "Continue in the terminal", text)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing: the code is secret."""

    def _answer(self, status: int, title: str, text: str, **fields: str) -> None:
        body = _PAGE.format(title=title, text=text).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
        self.send_header("Connection", "close")
        for name, value in fields.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
