"""Calls to the proxy's API, one HTTPS request at a time."""

from __future__ import annotations

import http.client
import json
import os
import ssl
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import tower
from tower.cli.errors import CallFailed, CommandFailed
from tower.kube.connection_settings import bearer_token, server_address, tls_context
from tower.kube.kubeconfig import KubeAccess
from tower.net.proxy_environment import ServerURL, find_proxy

GROUP_PATH = "/apis/cluster.kubesphere.io/v1alpha1"
TIMEOUT = 30.0  # s, for each wait on the network
ANSWER_LIMIT = 64 << 20  # B

Connect = Callable[[], http.client.HTTPConnection]


class TowerClient:
    """Calls the API that a kubeconfig leads to.

    :param connect: opens a connection; a test gives its own.
    """

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
        """Return the object that the proxy answers with.

        :param path: below the server's URL, quoted.
        :param content: the media type of *body*.
        :raise CallFailed: the proxy said no.
        :raise CommandFailed: there was no answer.
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
            response = connection.getresponse()
            answer = response.read(ANSWER_LIMIT)
        except (OSError, http.client.HTTPException) as e:
            raise CommandFailed(self._unreachable(e)) from e
        finally:
            connection.close()
        return _object(response.status, answer, self.access.server)

    def _unreachable(self, error: Exception) -> str:
        server = self.access.server
        if isinstance(error, ssl.SSLCertVerificationError):
            return (
                f"the server at {server} is not the one that the kubeconfig names "
                f"({error.verify_message}): is it another proxy, or was its CA replaced? Get a new kubeconfig"
            )
        if isinstance(error, ssl.SSLError):
            return f"TLS with {server} failed: {error}"
        if isinstance(error, TimeoutError):
            return f"no answer from {server} in {TIMEOUT:g} s: is a firewall in between?"
        if isinstance(error, OSError):
            return f"cannot reach {server}: {error.strerror or error}: is tower-proxy running there?"
        return f"{server} did not answer as a proxy of Tower does ({type(error).__name__})"


def quoted(segment: str) -> str:
    """Return *segment* as one element of a path."""
    return quote(segment, safe=":@")


def open_connection(access: KubeAccess) -> http.client.HTTPConnection:
    """Return a connection to the server of *access*, by way of an HTTP proxy if one is prescribed."""
    host, port, secure = server_address(access)
    environ: Mapping[str, str] = os.environ
    if access.proxy_url:
        environ = {"HTTPS_PROXY": access.proxy_url, "HTTP_PROXY": access.proxy_url}
    proxy = find_proxy(ServerURL(secure, host, port, "/"), environ)
    way = (proxy.host, proxy.port) if proxy is not None else (host, port)
    connection = _Verified(access, *way) if secure else http.client.HTTPConnection(*way, timeout=TIMEOUT)
    if proxy is not None:
        login = {"Proxy-Authorization": proxy.credential.decode("ascii")} if proxy.credential else {}
        connection.set_tunnel(host, port, login)
    return connection


class _Verified(http.client.HTTPSConnection):
    """Verifies the name that the kubeconfig says, which may differ from the URL's host."""

    def __init__(self, access: KubeAccess, host: str, port: int) -> None:
        self._tls = tls_context(access)
        self._server_name = access.tls_server_name or server_address(access)[0]
        super().__init__(host, port, timeout=TIMEOUT, context=self._tls)

    def connect(self) -> None:
        """Connect, by the proxy if there is one, and do the TLS handshake."""
        http.client.HTTPConnection.connect(self)
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._server_name)


def _object(code: int, answer: bytes, server: str) -> dict[str, Any]:
    try:
        value = json.loads(answer)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise CallFailed(
            code, "", f"{server} answered {code} and no Kubernetes object: is it a proxy of Tower?"
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
