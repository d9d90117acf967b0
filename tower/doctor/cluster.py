"""``tower doctor CLUSTER``: one cluster end to end, as an administrator of Tower."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import yaml
from attrs import define, field

import tower
from tower.doctor.api import GROUP, SILENT_PROXY, UNREACHED, Login, TowerServer, refusal, unanswered
from tower.doctor.findings import Course, Finding, Step, Verdict, examine, fail, judged, ok, warn
from tower.doctor.network import Network
from tower.kube.client import APIError
from tower.kube.kubeconfig import KubeAccess

#: User of the request that is sent through the cluster's tunnel.
_USER = "tower-doctor"

#: Conditions of the route from the agent, or a node, to the API server.
_CONDITIONS = ("APIServerReachable", "MemberCredential", "ImpersonationAllowed")

_ADMIN = "use --state-dir, or a new administrator's kubeconfig: tower admin-kubeconfig --user USER"


async def examine_cluster(
    network: Network, access: KubeAccess, name: str, environ: Mapping[str, str], now: Callable[[], float]
) -> list[Finding]:
    """Return the findings about cluster *name*, with the administrator's kubeconfig *access*."""
    server = TowerServer(network, access, environ, now, _ADMIN)
    cluster = _Cluster(server, name)
    login = Login(server, {401: _ADMIN, 403: _ADMIN})
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
    _name: str
    _record: dict[str, Any] = field(factory=dict, init=False)

    def steps(self) -> list[Step]:
        """Return the checks of the record and of the tunnels, in order."""
        return [
            Step("cluster", self._cluster),
            Step("tunnels", self._tunnels),
            *(Step(kind, lambda kind=kind: self._condition(kind)) for kind in _CONDITIONS),  # type: ignore[misc]
        ]

    @property
    def _path(self) -> str:
        return f"{GROUP}/clusters/{self._name}"

    async def _cluster(self) -> Verdict:
        code, value = await self._server.request("GET", self._path)
        if code == 404:
            return fail(f"there is no cluster {self._name}", f"tower cluster add {self._name}")
        if code >= 400:
            return fail(refusal(code, value), _ADMIN)
        self._record = value
        if not value.get("spec", {}).get("enable"):
            return fail(f"{self._name} is disabled", f"tower cluster enable {self._name}")
        return ok(f"{self._name} is enabled")

    async def _tunnels(self) -> Verdict:
        if self._record["spec"].get("connection", {}).get("type") == "ssh":
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
        versions = sorted({str(tunnel.get("version")) for tunnel in tunnels})
        seen = f"{len(tunnels)} connected, version {', '.join(versions)}"
        if versions != [tower.__version__]:
            return warn(f"{seen}; this is version {tower.__version__}", "upgrade the proxy, then its agents")
        return ok(seen)

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

    def _condition(self, kind: str) -> Verdict:
        for condition in self._record.get("status", {}).get("conditions") or ():
            if condition.get("type") != kind:
                continue
            text = str(condition.get("message", ""))
            if condition.get("status") == "True":
                return ok(text)
            if condition.get("status") == "False":
                return _false(text)
        return ok("not reported")

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
        if code == 403 and "impersonate" in str(value.get("message")):
            return fail(refusal(code, value), "kubectl apply -f deploy/agent-rbac.yaml in the cluster")
        if code not in (200, 403):
            return fail(refusal(code, value), "check the logs of the proxy and of the agent")
        return ok(f"the API server answered {code}, version {value.get('gitVersion', 'unknown')}")

    @property
    def _frozen(self) -> str:
        link = "nodes" if self._record["spec"].get("connection", {}).get("type") == "ssh" else "agent"
        return (
            f"see 'tower cluster show {self._name}': the API server of the cluster does not answer its "
            f"{link}; restart it if it is frozen"
        )

    async def _unreached(self, code: int, seen: str) -> Verdict:
        """Return the failure of a request; a condition that became False in the meantime has the cause."""
        answer, value = await self._server.request("GET", self._path)
        if answer == 200:
            for condition in value.get("status", {}).get("conditions") or ():
                if condition.get("type") in _CONDITIONS and condition.get("status") == "False":
                    return _false(str(condition.get("message", "")))
        return fail(
            seen, self._frozen if code == 504 else "on the agent's machine: tower doctor --agent OPTIONS"
        )


def _false(message: str) -> Verdict:
    """Return the failure of a condition that is False."""
    return judged(message, "see the agent's log")
