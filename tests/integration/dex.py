"""Dex, an OpenID Connect provider, built from its Go module, with a connector that needs no user."""

from __future__ import annotations

import http.client
import json
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import yaml

from benchmarks.processes import build
from tests.integration.ports import free_port
from tests.integration.programs import LOOPBACK, Program, wait_for
from tests.integration.token_issuer import tls_files

PACKAGE = "github.com/dexidp/dex/cmd/dex"
CLIENT, SECRET, REDIRECT = "tower", "not-secret", "http://127.0.0.1:1/callback"
PUBLIC_CLIENT = "tower-login"
USER, GROUPS = "kilgore@kilgore.trout", ["authors"]


class Dex:
    """One provider with its keys in memory: they are others after a start.

    :ivar url: of the issuer; `ca` is the file with its CA.
    """

    def __init__(self, folder: Path) -> None:
        self.ca, certificate, key = tls_files(folder, "dex")
        self.port = free_port()
        self.url = f"https://{LOOPBACK}:{self.port}/dex"
        client = {"id": CLIENT, "secret": SECRET, "name": "Tower", "redirectURIs": [REDIRECT]}
        program_client = {"id": PUBLIC_CLIENT, "name": "tower login", "public": True}
        config: dict[str, Any] = {
            "issuer": self.url,
            "storage": {"type": "memory"},
            "web": {"https": f"{LOOPBACK}:{self.port}", "tlsCert": str(certificate), "tlsKey": str(key)},
            "oauth2": {"skipApprovalScreen": True},
            "staticClients": [client, program_client],
            "connectors": [{"type": "mockCallback", "id": "mock", "name": "mock"}],
        }
        file = folder / "dex.yaml"
        file.write_text(yaml.safe_dump(config))
        program = build("tests/integration/dexbuild", "-trimpath", "-ldflags=-s -w", package=PACKAGE)
        self.program = Program("dex", [str(program), "serve", str(file)], folder)

    def start(self) -> None:
        """Start, and wait until it answers."""
        self.program.start()
        wait_for("dex", self._answers)

    def kill(self) -> None:
        """Kill it."""
        self.program.kill()

    def stop(self) -> None:
        """End it."""
        self.program.stop()

    def token(self) -> str:
        """Log in as a browser does; return the ID token."""
        query = {
            "client_id": CLIENT,
            "redirect_uri": REDIRECT,
            "response_type": "code",
            "scope": "openid email groups profile",
            "state": "x",
        }
        target = f"/dex/auth?{urlencode(query)}"
        for _ in range(6):
            status, location, body = self._request("GET", target)
            if status not in (302, 303):
                raise AssertionError(f"dex answers {status}: {body[:300]!r}")
            if location.startswith(REDIRECT):
                break
            parts = urlsplit(location)
            target = f"{parts.path}?{parts.query}"
        form = {
            "grant_type": "authorization_code",
            "code": parse_qs(urlsplit(location).query)["code"][0],
            "redirect_uri": REDIRECT,
            "client_id": CLIENT,
            "client_secret": SECRET,
        }
        status, _, body = self._request("POST", "/dex/token", urlencode(form))
        if status != 200:
            raise AssertionError(f"dex answers {status}: {body[:300]!r}")
        token: str = json.loads(body)["id_token"]
        return token

    def enter(self, code: str) -> None:
        """Confirm the code of a login by device, as a browser does."""
        status, location, body = self._request(
            "POST", "/dex/device/auth/verify_code", urlencode({"user_code": code})
        )
        for _ in range(6):
            if status not in (302, 303):
                break
            parts = urlsplit(location)
            status, location, body = self._request("GET", f"{parts.path}?{parts.query}")
        if status != 200 or b"Login Successful" not in body:
            raise AssertionError(f"dex answers {status}: {body[:300]!r}")

    def _answers(self) -> bool:
        if not self.program.running():
            raise AssertionError(f"dex ended: {self.program.tail()}")
        try:
            return self._request("GET", "/dex/.well-known/openid-configuration")[0] == 200
        except OSError:
            return False

    def _request(self, method: str, target: str, form: str = "") -> tuple[int, str, bytes]:
        context = ssl.create_default_context(cafile=str(self.ca))
        connection = http.client.HTTPSConnection(LOOPBACK, self.port, context=context, timeout=30)
        fields = {"Content-Type": "application/x-www-form-urlencoded"} if form else {}
        try:
            connection.request(method, target, form or None, fields)
            answer = connection.getresponse()
            return answer.status, answer.getheader("location") or "", answer.read()
        finally:
            connection.close()
