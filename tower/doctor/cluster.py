"""``tower doctor CLUSTER``: one cluster end to end, as an administrator of Tower."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import yaml
from attrs import define, field

from tower.clusters.condition_types import AGENT_DEGRADED, AVAILABLE
from tower.doctor.api import (
    GROUP,
    SILENT_PROXY,
    UNREACHED,
    Login,
    TowerServer,
    plain_version,
    refusal,
    unanswered,
    version_in,
)
from tower.doctor.findings import Course, Finding, Step, Verdict, examine, fail, judged, ok, warn
from tower.doctor.network import Network
from tower.kube.client import APIError
from tower.kube.kubeconfig import KubeAccess
from tower.kube.member_cures import (
    REPORTED_TEXTS,
    SYNCHRONIZE,
    WARNINGS,
    MemberTexts,
    cure_of,
    old_agent_texts,
    proxy_texts,
)
from tower.kube.member_status import CHECK_KINDS, CheckKind
from tower.kube.rest.well_known import OWN_RESOURCE
from tower.tunnels.version_skew import skew
from tower.websocket.subprotocols import KUBESPHERE_V1, TOWER_V2

#: User of the request that is sent through the cluster's tunnel.
_USER = "tower-doctor"

#: The cures of conditions that are unknown, by reason.
_WAIT = "wait 15 s, and repeat this command"
_UNKNOWN = {"NotReported": "upgrade the agent", "NotChecked": _WAIT}

_ON_AGENT = "on the agent's machine: tower doctor --agent OPTIONS"

_LOG = "check the proxy's log"

#: Most versions of agents that are shown.
_SHOWN = 5

_ADMIN = "use --state-dir, or a new administrator's kubeconfig: tower admin-kubeconfig --user USER"


async def examine_cluster(
    network: Network, access: KubeAccess, name: str, environ: Mapping[str, str], now: Callable[[], float]
) -> list[Finding]:
    """Return the findings about cluster *name*, with the administrator's kubeconfig *access*."""
    server = TowerServer(network, access, environ, now, _ADMIN)
    login = Login(server, {401: _ADMIN, 403: _ADMIN})
    cluster = _Cluster(server, login, name)
    course = Course(
        [
            *server.route.steps(),
            *login.steps("answer", SILENT_PROXY),
            *cluster.steps(),
        ],
        [Course([Step("request", cluster.request)])],
    )
    return await examine([course])


@define(eq=False)
class _Cluster:
    """The checks of one cluster.  `request` issues a credential and revokes it."""

    _server: TowerServer
    _login: Login
    _name: str
    _texts: MemberTexts = field(default=REPORTED_TEXTS, init=False)
    _record: dict[str, Any] = field(factory=dict, init=False)

    def steps(self) -> list[Step]:
        """Return the checks of the record and of the tunnels, in order."""
        return [
            Step("cluster", self._cluster),
            Step("tunnels", self._tunnels),
            *(Step(kind.condition, partial(self._condition, kind)) for kind in CHECK_KINDS),
            Step(AVAILABLE, self._available),
        ]

    @property
    def _path(self) -> str:
        return f"{GROUP}/clusters/{self._name}"

    async def _cluster(self) -> Verdict:
        code, value = await self._server.request("GET", self._path)
        if (code == 404 or "enable" not in value.get("spec", {})) and await self._is_other():
            seen = f"{self._server.access.server} is a cluster's API server, not a Tower proxy"
            return fail(seen, _ADMIN)
        if code == 404:
            return fail(f"there is no cluster {self._name}", "correct the name: tower cluster list")
        if code >= 400:
            return fail(refusal(code, value), _ADMIN)
        self._record = value
        if not value.get("spec", {}).get("enable"):
            return fail(f"{self._name} is disabled", f"tower cluster enable {self._name}")
        return ok(f"{self._name} is enabled")

    async def _is_other(self) -> bool:
        """Return whether the server is not a proxy, but has Cluster objects, as a host cluster has."""
        code, value = await self._server.request("GET", GROUP)
        names = {each.get("name") for each in value.get("resources") or ()}
        return code == 200 and bool(names) and OWN_RESOURCE not in names

    async def _tunnels(self) -> Verdict:
        if self._is_ssh:
            self._texts = proxy_texts(self._name)
            return self._nodes()
        code, value = await self._server.request("GET", f"{self._path}/agents")
        if code >= 400:
            return fail(refusal(code, value), "check the proxy's log")
        agents = value.get("items", [])
        tunnels = [tunnel for agent in agents for tunnel in agent["status"]["tunnels"]]
        if not agents:
            return fail("no agent has joined", f"run the line that 'tower join {self._name}' prints")
        if not tunnels:
            return fail(
                f"none of its {len(agents)} agents is connected",
                "start it, or on its machine: tower doctor --agent OPTIONS",
            )
        if all(tunnel.get("protocol") == KUBESPHERE_V1 for tunnel in tunnels):
            self._texts = old_agent_texts(self._name)
        versions = sorted({str(tunnel.get("version")) for tunnel in tunnels})
        shown = ", ".join(plain_version(version) for version in versions[:_SHOWN])
        seen = f"{len(tunnels)} connected, version {shown}{', …' if versions[_SHOWN:] else ''}"
        return self._skewed(tunnels) or ok(seen)

    def _skewed(self, tunnels: Iterable[Mapping[str, Any]]) -> Verdict | None:
        """Return the verdict about an agent whose version is too far from the proxy's."""
        for tunnel in tunnels:
            if tunnel.get("protocol") == TOWER_V2:
                problem = judged(skew(str(tunnel.get("version")), self._login.version), "upgrade the agent")
                if problem.seen:
                    return warn(problem.seen, problem.cure)
        return None

    @property
    def _is_ssh(self) -> bool:
        return bool(self._record["spec"].get("connection", {}).get("type") == "ssh")

    def _nodes(self) -> Verdict:
        ssh = self._record.get("status", {}).get("ssh", {})
        usable, nodes = ssh.get("usableNodes", 0), ssh.get("nodes", ())
        if usable:
            return ok(f"{usable} of {len(nodes)} nodes are usable")
        error = ssh.get("lastError") or "no error is known"
        return fail(
            f"none of {len(nodes)} nodes is usable: {error}",
            f"see the errors of the nodes: tower cluster show {self._name}",
        )

    def _conditions(self) -> dict[str, Mapping[str, Any]]:
        return {each["type"]: each for each in self._record.get("status", {}).get("conditions") or ()}

    def _condition(self, kind: CheckKind) -> Verdict:
        found = self._conditions().get(kind.condition)
        if found is None:
            return warn("not known yet", _WAIT)
        status, reason, text = (str(found.get(key, "")) for key in ("status", "reason", "message"))
        if status == "True" and reason not in WARNINGS:
            return ok(text)
        if status == "Unknown":
            cure = cure_of(kind, reason, self._texts) or _UNKNOWN.get(reason, _ON_AGENT)
            return warn(without(text, cure) or "unknown", cure)
        return (fail if status == "False" else warn)(*self._judged(kind, reason, text))

    def _available(self) -> Verdict:
        """Return the verdict about the sum, which also shows that one of several agents has a problem."""
        found = self._conditions().get(AVAILABLE, {})
        status, reason, text = (str(found.get(key, "")) for key in ("status", "reason", "message"))
        if status == "False":
            return fail(text, f"tower cluster show {self._name}")
        if reason == AGENT_DEGRADED:
            return warn(text, _ON_AGENT)
        return ok(text or reason) if status == "True" else warn(text or "not known yet", _WAIT)

    def _judged(self, kind: CheckKind, reason: str, text: str) -> tuple[str, str]:
        """Return the message of a condition, and its cure, which depends on the reason alone."""
        if text.endswith(f": {SYNCHRONIZE}"):
            cure = SYNCHRONIZE
        else:
            cure = cure_of(kind, reason, self._texts) or (_LOG if self._is_ssh else _ON_AGENT)
        return without(text, cure), cure

    async def request(self) -> Verdict:
        """Send a request through the tunnel, as a user without rights, and revoke the credential."""
        spec = {"user": _USER, "groups": [], "auth": "token", "ttl": "1m"}
        body = {"apiVersion": "cluster.kubesphere.io/v1alpha1", "kind": "Kubeconfig", "spec": spec}
        code, value = await self._server.request("POST", f"{self._path}/kubeconfigs", body)
        if code >= 400:
            return fail(f"cannot issue a kubeconfig: {refusal(code, value)}", "check the proxy's log")
        status = value["status"]
        token = yaml.safe_load(status["kubeconfig"])["users"][0]["user"]["token"]
        access = self._server.with_token(f"/clusters/{self._name}", token)
        try:
            code, value = await self._server.request("GET", "/version", access=access)
            seen = refusal(code, value)
        except APIError as e:
            code, value, seen = 504, {}, unanswered(e)
        finally:
            await self._server.request("DELETE", f"{GROUP}/credentials/{status['credential']}")
        if code in UNREACHED:
            return await self._unreached(code, seen)
        if code not in (200, 403):
            return fail(refusal(code, value), "check the logs of the proxy and of the agent")
        return ok(f"the API server answered {code}, version {version_in(value)}")

    @property
    def _frozen(self) -> str:
        link = "nodes" if self._is_ssh else "agent"
        return (
            f"see 'tower cluster show {self._name}': the API server of the cluster does not answer its "
            f"{link}; restart it if it is frozen"
        )

    async def _unreached(self, code: int, seen: str) -> Verdict:
        """Return the failure of a request; a condition that became False in the meantime has the cause."""
        answer, value = await self._server.request("GET", self._path)
        if answer == 200:
            self._record = value
            conditions = self._conditions()
            for kind in CHECK_KINDS:
                if conditions.get(kind.condition, {}).get("status") == "False":
                    return self._condition(kind)
        return fail(seen, self._frozen if code == 504 else _LOG if self._is_ssh else _ON_AGENT)


def without(text: str, cure: str) -> str:
    """Return the message *text* of a condition without *cure* at its end."""
    return text.removesuffix(f": {cure}")
