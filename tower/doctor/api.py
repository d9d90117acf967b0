"""Checks by requests to a server of Tower, with the credential of a kubeconfig."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from attrs import define, evolve, field
from twisted.internet import defer

from tower.doctor.findings import Step, Verdict, fail, ok
from tower.doctor.network import PATIENCE, Network
from tower.doctor.route import ServerRoute, Trust
from tower.escaping import VERSION_LIMIT, quoted, reported
from tower.kube.apiserver import client_context
from tower.kube.client import APIClient, APIError
from tower.kube.connection_settings import server_address
from tower.kube.kubeconfig import KubeAccess
from tower.net.proxy_environment import ServerURL

#: API group of Tower.
GROUP = "/apis/cluster.kubesphere.io/v1alpha1"

#: HTTP status of answers of the proxy in place of the cluster.
UNREACHED = frozenset((502, 503, 504))

#: Longest message of a server that is shown, characters.
_LONGEST = 1024

#: Versions that are shown without quotation marks.
_VERSION = re.compile(rf"[-A-Za-z0-9.+_~]{{1,{VERSION_LIMIT}}}")

#: The cure of a proxy that does not answer.
SILENT_PROXY = "check the proxy's log, and restart the proxy if it is frozen"


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
        data = None if body is None else json.dumps(body).encode()
        code, content = await self._answer(method, path, data, access or self.access)
        try:
            value = json.loads(content)
        except ValueError:
            value = {}
        return code, value if isinstance(value, dict) else {}

    async def text(self, path: str) -> str:
        """Return the text at *path*; empty if it is refused.

        :raise APIError: there is no answer.
        """
        code, content = await self._answer("GET", path, None, self.access)
        return content.decode("utf-8", "replace") if code < 400 else ""

    async def _answer(
        self, method: str, path: str, data: bytes | None, access: KubeAccess
    ) -> tuple[int, bytes]:
        client = self.network.client(access, self.route.proxy)
        try:
            answer = await client.request(method, path, data)
        finally:
            client.close()
        return answer.code, answer.body

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
    """Return the text of an error answer, which may be that of a cluster, or of its agent."""
    return f"HTTP status {code}: {reported('the server', str(value.get('message') or ''), _LONGEST)}"


def version_in(value: Mapping[str, Any]) -> str:
    """Return the version in an answer to ``GET /version``, in quotation marks unless it is plain."""
    return plain_version(str(value.get("gitVersion", "unknown")))


def plain_version(version: str) -> str:
    """Return a version, in quotation marks unless it is plain."""
    return version if _VERSION.fullmatch(version) else quoted(version, VERSION_LIMIT)


def unanswered(error: APIError) -> str:
    """Return the text of a request without an answer."""
    if isinstance(error.cause, defer.TimeoutError):
        return f"{error.method} {error.path}: no answer within {PATIENCE:g} s"
    return str(error)


@define(eq=False)
class Login:
    """The checks that a server answers, and that it accepts the credential, by one request.

    :param cures: of rejections, by HTTP status; others are for the server's log.
    :param denials: cures of denials (403) that take precedence, by a part of the message.
    """

    _server: TowerServer
    _cures: Mapping[int, str]
    _denials: Mapping[str, str] = field(factory=dict)
    _answer: tuple[int, dict[str, Any]] = field(default=(0, {}), init=False)

    def steps(self, check: str, cure: str) -> list[Step]:
        """Return both checks.

        :param check: name of the first one.
        :param cure: for a server that does not answer.
        """
        return [Step(check, lambda: self._reach(cure)), Step("login", self._log_in)]

    async def _reach(self, cure: str) -> Verdict:
        try:
            code, value = self._answer = await self._server.request("GET", "/version")
        except APIError as e:
            return fail(f"{unanswered(e)}; whether the credential is valid is unknown", cure)
        if code in UNREACHED:
            return fail(f"{refusal(code, value)}; whether the credential is valid is unknown", cure)
        return ok(f"{self._server.access.server} answers")

    def _log_in(self) -> Verdict:
        code, value = self._answer
        if code >= 400:
            return fail(refusal(code, value), self._cure(code, str(value.get("message"))))
        return ok(f"{self._server.route.url.authority} accepts the credential; version {version_in(value)}")

    def _cure(self, code: int, message: str) -> str:
        denials = self._denials.items() if code == 403 else ()
        named = next((cure for part, cure in denials if part in message), None)
        return named or self._cures.get(code, "check the server's log")

    @property
    def version(self) -> str:
        """Version of the server."""
        return version_in(self._answer[1])
