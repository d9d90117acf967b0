"""A user with a kubeconfig, and HTTP by hand: kubectl would hide the behaviour under test."""

from __future__ import annotations

import base64
import http.client
import socket
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

TIMEOUT = 60.0  # s, longer than any answer may take


@dataclass
class Answer:
    """A whole response."""

    status: int
    headers: dict[str, str]
    body: bytes


class Person:
    """One user of one kubeconfig.

    :ivar host: of the server in it; with `port` and `prefix` the parts of its URL.
    :ivar ca: the certificates that verify the server, PEM.
    """

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        config: dict[str, Any] = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        url = urlsplit(cluster["server"])
        self.host, self.port, self.prefix = url.hostname or "", url.port or 443, url.path.rstrip("/")
        self.token: str | None = user.get("token")
        self.ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._user = user
        self.tls = self.new_tls()

    def new_tls(self) -> ssl.SSLContext:
        """Return a new TLS context with this user's certificate and no sessions."""
        context = ssl.create_default_context(cadata=self.ca)
        if "client-certificate-data" in self._user:
            with tempfile.NamedTemporaryFile(suffix=".pem") as both:
                for field in ("client-certificate-data", "client-key-data"):
                    both.write(base64.b64decode(self._user[field]))
                both.flush()
                context.load_cert_chain(both.name)
        return context

    def headers(self) -> dict[str, str]:
        """Return the headers that carry this user's credential, if it is a token."""
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def connect(
        self, port: int | None = None, timeout: float = TIMEOUT, session: ssl.SSLSession | None = None
    ) -> http.client.HTTPSConnection:
        """Return a new connection to the server, or to another port of its host.

        :param session: a TLS session to resume; the connection is then open already.
        """
        connection = http.client.HTTPSConnection(
            self.host, port or self.port, context=self.tls, timeout=timeout
        )
        if session is not None:
            plain = socket.create_connection((self.host, port or self.port), timeout)
            connection.sock = self.tls.wrap_socket(plain, server_hostname=self.host, session=session)
        return connection

    def ask(
        self,
        connection: http.client.HTTPSConnection,
        path: str,
        method: str = "GET",
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> http.client.HTTPResponse:
        """Send a request for *path*, unchanged, on an open connection; return the response, body unread."""
        connection.request(method, path, body, {**self.headers(), **(headers or {})})
        return connection.getresponse()

    def get(self, path: str, port: int | None = None, **headers: str) -> Answer:
        """Get *path* below the kubeconfig's server URL, on a new connection."""
        return self.request("GET", self.prefix + path, port=port, headers=headers)

    def request(
        self,
        method: str,
        path: str,
        *,
        port: int | None = None,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """Send one request for *path*, unchanged, on a new connection; return the whole answer."""
        connection = self.connect(port)
        try:
            response = self.ask(connection, path, method, body, headers)
            return Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()
