"""Checks by requests to a server of Tower, with the credential of a kubeconfig."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from attrs import define, evolve, field

from tower.doctor.findings import Step, Verdict, fail, ok
from tower.doctor.network import Network
from tower.doctor.route import ServerRoute, Trust
from tower.kube.apiserver import client_context
from tower.kube.client import APIClient, APIError
from tower.kube.connection_settings import server_address
from tower.kube.kubeconfig import KubeAccess
from tower.net.proxy_environment import ServerURL

#: API group of Tower.
GROUP = "/apis/cluster.kubesphere.io/v1alpha1"


@define(eq=False)
class TowerServer:
    """A server of Tower as a kubeconfig describes it.

    :param environ: has the variables of HTTP proxies; the kubeconfig's ``proxy-url`` takes precedence.
    :param cure: for a server with another CA, or a credential that is rejected.
    """

    network: Network
    access: KubeAccess
    environ: Mapping[str, str]
    now: Callable[[], float]
    cure: str
    route: ServerRoute = field(init=False)
    _client: APIClient | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        access, environ = self.access, self.environ
        host, port, secure = server_address(access)
        url = ServerURL(secure, host, port, "/")
        if access.proxy_url:
            environ = {"HTTPS_PROXY": access.proxy_url, "HTTP_PROXY": access.proxy_url}
        trust = Trust((), lambda: client_context(access), access.tls_server_name or "", self.cure)
        self.route = ServerRoute(
            self.network, url, environ, trust, self.now, "the kubeconfig's server", ("https", "http")
        )

    async def request(
        self, method: str, path: str, body: Any = None, access: KubeAccess | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Return HTTP status and object of the answer; empty if it is not a JSON object.

        :param path: below the kubeconfig's server.
        :param access: another credential.
        :raise APIError: there is no answer.
        """
        client = self.network.client(access or self.access, self.route.proxy)
        data = None if body is None else json.dumps(body).encode()
        try:
            answer = await client.request(method, path, data)
        finally:
            client.close()
        try:
            value = json.loads(answer.body)
        except ValueError:
            value = {}
        return answer.code, value if isinstance(value, dict) else {}

    def with_token(self, path: str, token: str) -> KubeAccess:
        """Return the access of a bearer token to *path* of the same server."""
        url = urlsplit(self.access.server)
        return evolve(
            self.access,
            server=f"{url.scheme}://{url.netloc}{path}",
            token=token,
            token_file=None,
            client_certificate=None,
            client_key=None,
        )


def refusal(code: int, value: Mapping[str, Any]) -> str:
    """Return the text of an error answer."""
    return f"HTTP status {code}: {value.get('message') or 'no message'}"


def login_step(server: TowerServer, cures: Mapping[int, str]) -> Step:
    """Return the check that the server accepts the credential.

    :param cures: by HTTP status; others are for the server's log.
    """

    async def look() -> Verdict:
        try:
            code, value = await server.request("GET", "/version")
        except APIError as e:
            return fail(str(e), "check the server's log")
        if code >= 400:
            return fail(refusal(code, value), cures.get(code, "check the server's log"))
        version = value.get("gitVersion", "unknown")
        return ok(f"{server.route.url.authority} accepts the credential; version {version}")

    return Step("login", look)
