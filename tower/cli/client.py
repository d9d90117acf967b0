"""Client of Tower's API: one HTTPS request at a time."""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import tower
from tower.errors import TowerError
from tower.kube.connection_settings import bearer_token, server_address, tls_context
from tower.kube.kubeconfig import KubeAccess
from tower.net.proxy_environment import ServerURL, find_proxy


class CommandFailed(TowerError):
    """A command failed; the text names the cure."""


class UsageFailed(CommandFailed):
    """The options contradict each other or are incomplete: exit code 2."""


class CallFailed(CommandFailed):
    """The proxy rejected a call.

    :ivar code: HTTP status.
    :ivar reason: the reason of the Kubernetes Status (`NotFound`, `AlreadyExists`, ...).
    :ivar kind: resource in the Status (`clusters`, `agents`, ...), or empty.
    """

    def __init__(self, code: int, reason: str, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.kind = kind


GROUP_PATH = "/apis/cluster.kubesphere.io/v1alpha1"
TIMEOUT = 30.0  # s, for each network operation
ANSWER_LIMIT = 64 << 20  # B

#: TCP keepalives of watches: idle time and interval, s, and count.
_KEEPALIVE = {socket.TCP_KEEPIDLE: 30, socket.TCP_KEEPINTVL: 10, socket.TCP_KEEPCNT: 3}

Connect = Callable[[], http.client.HTTPConnection]


class TowerClient:
    """Calls the API server of a kubeconfig; *connect* opens a connection, by default `open_connection`."""

    def __init__(self, access: KubeAccess, connect: Connect | None = None) -> None:
        self.access = access
        self._connect = connect or (lambda: open_connection(access))
        self._prefix = urlsplit(access.server).path

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, str] | None = None,
        accept: str = "application/json",
        content: str = "application/json",
    ) -> dict[str, Any]:
        """Return the object in the proxy's answer.

        :param path: below the server's URL, quoted.
        :param content: the media type of *body*.
        :raise CallFailed: the proxy rejected the call.
        :raise CommandFailed: the proxy did not answer.
        """
        with self._answering(method, path, body, query=query, accept=accept, content=content) as response:
            answer = response.read(ANSWER_LIMIT)
        return _object(response.status, answer, self.access.server)

    def watch(self, path: str, *, query: Mapping[str, str], accept: str) -> Iterator[dict[str, Any]]:
        """Yield the events of a watch until the proxy ends it.

        :raise CallFailed: the proxy rejected the call.
        :raise CommandFailed: the proxy did not answer, or the connection was cut.
        """
        server = self.access.server
        with self._answering("GET", path, query=query, accept=accept, endless=True) as response:
            if response.status >= 400:
                _object(response.status, response.read(ANSWER_LIMIT), server)
            while line := response.readline(ANSWER_LIMIT):
                yield _object(200, line, server)

    @contextmanager
    def _answering(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, str] | None,
        accept: str,
        content: str = "",
        endless: bool = False,
    ) -> Iterator[http.client.HTTPResponse]:
        """Send a request; provide the response and close the connection after it.

        :param endless: the answer may take any time.
        """
        target = self._prefix + path + (f"?{urlencode(query)}" if query else "")
        headers = {"Accept": accept, "User-Agent": f"tower/{tower.__version__}"}
        if token := bearer_token(self.access):
            headers["Authorization"] = f"Bearer {token}"
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = content
        connection = self._connect()
        try:
            connection.request(method, target, data, headers)
            if endless and connection.sock is not None:
                wait_patiently(connection.sock)
            yield connection.getresponse()
        except (OSError, http.client.HTTPException) as e:
            raise CommandFailed(self._unreachable(e)) from e
        finally:
            connection.close()

    def _unreachable(self, error: Exception) -> str:
        server = self.access.server
        if isinstance(error, ssl.SSLCertVerificationError):
            return (
                f"the certificate of {server} does not match the kubeconfig ({error.verify_message}): "
                "if the proxy or its CA was replaced, get a new kubeconfig"
            )
        if isinstance(error, ssl.SSLError):
            return f"TLS with {server} failed: {error}"
        if isinstance(error, TimeoutError):
            return f"{server} did not answer within {TIMEOUT:g} s: check firewalls"
        if isinstance(error, OSError):
            return f"cannot reach {server}: {error.strerror or error}: check that tower-proxy runs there"
        if isinstance(error, http.client.IncompleteRead):
            return f"{server} closed the connection during its answer: run the command again"
        return f"{server} is not a Tower proxy: invalid HTTP response ({type(error).__name__})"


def wait_patiently(sock: socket.socket) -> None:
    """Let reads take any time; a dead peer is found by TCP keepalives."""
    sock.settimeout(None)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE.items():
        sock.setsockopt(socket.IPPROTO_TCP, option, value)


def quoted(segment: str) -> str:
    """Return *segment* quoted as one path segment."""
    return quote(segment, safe=":@")


def open_connection(access: KubeAccess) -> http.client.HTTPConnection:
    """Return a connection to the server of *access*, through an HTTP proxy if one is configured."""
    host, port, secure = server_address(access)
    environ: Mapping[str, str] = os.environ
    if access.proxy_url:
        environ = {"HTTPS_PROXY": access.proxy_url, "HTTP_PROXY": access.proxy_url}
    proxy = find_proxy(ServerURL(secure, host, port, "/"), environ)
    peer = (proxy.host, proxy.port) if proxy is not None else (host, port)
    connection = _Verified(access, *peer) if secure else http.client.HTTPConnection(*peer, timeout=TIMEOUT)
    if proxy is not None:
        login = {"Proxy-Authorization": proxy.credential.decode("ascii")} if proxy.credential else {}
        connection.set_tunnel(host, port, login)
    return connection


class _Verified(http.client.HTTPSConnection):
    """Verifies the kubeconfig's ``tls-server-name``, which may differ from the URL's host."""

    def __init__(self, access: KubeAccess, host: str, port: int) -> None:
        self._tls = tls_context(access)
        self._server_name = access.tls_server_name or server_address(access)[0]
        super().__init__(host, port, timeout=TIMEOUT, context=self._tls)

    def connect(self) -> None:
        """Connect, through the HTTP proxy if there is one, and do the TLS handshake."""
        http.client.HTTPConnection.connect(self)
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._server_name)


def _object(code: int, answer: bytes, server: str) -> dict[str, Any]:
    try:
        value = json.loads(answer)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise CallFailed(
            code,
            "",
            f"{server} answered {code} without a Kubernetes object: check that it is a Tower proxy, and that "
            "the kubeconfig is an administrator's",
        )
    if code >= 400:
        details = value.get("details")
        raise CallFailed(
            code,
            str(value.get("reason", "")),
            str(value.get("message") or f"HTTP status {code}"),
            str(details.get("kind", "")) if isinstance(details, dict) else "",
        )
    return value
