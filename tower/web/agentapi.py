"""The resource `agents` below a cluster: its enrolled keys and live tunnels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tower.clusters import API_VERSION, Cluster, timestamp
from tower.errors import NotFound
from tower.jointokens import AgentKey, JoinTokens
from tower.tunnels import Tunnel, Tunnels

from .api import Call
from .clusterapi import Clock
from .objects import gone, listed
from .outcome import Outcome, Response
from .status import Refusal
from .table import Column, Object, name_column


class AgentsApi:
    """`clusters/<name>/agents`: the enrolled keys with their live tunnels; a delete revokes a key.

    In a path a fingerprint's `/` is written `_` and its `+` is written `-`, as in base64url.
    """

    def __init__(self, tokens: JoinTokens, tunnels: Tunnels, clock: Clock) -> None:
        self._tokens = tokens
        self._tunnels = tunnels
        self._clock = clock

    async def answer(self, call: Call, cluster: Cluster, below: tuple[str, ...]) -> Outcome:
        """See `tower.web.clusterapi.Below`."""
        match call.method, below:
            case (("GET" | "HEAD"), ()):
                items = [self._object(key) for key in self._keys(cluster)]
                return listed(call, "Agent", items, AGENT_COLUMNS, self._clock.seconds(), _by_tunnel)
            case (("GET" | "HEAD"), (name,)):
                key = self._find(cluster, name)
                return Response.of_json(self._object(key))
            case "DELETE", (name,):
                fingerprint = self._find(cluster, name).fingerprint
                await self._tokens.revoke(cluster.name, fingerprint)
                return gone("agents", fingerprint)
            case _, (() | (_,)):
                raise Refusal(405, f"{call.method} is not for agents")
        raise Refusal(404, "the server could not find the requested resource")

    def _keys(self, cluster: Cluster) -> Sequence[AgentKey]:
        return self._tokens.agent_keys(cluster.name)

    def _find(self, cluster: Cluster, name: str) -> AgentKey:
        for key in self._keys(cluster):
            if name in (key.fingerprint, key.fingerprint.replace("+", "-").replace("/", "_")):
                return key
        raise NotFound(
            f"cluster {cluster.name} has no agent {name}: "
            f"'tower cluster agents {cluster.name}' shows those it has"
        )

    def _object(self, key: AgentKey) -> Object:
        tunnels = [
            tunnel for tunnel in self._tunnels.live(key.cluster) if tunnel.fingerprint == key.fingerprint
        ]
        return {
            "apiVersion": API_VERSION,
            "kind": "Agent",
            "metadata": {"name": key.fingerprint, "creationTimestamp": timestamp(key.enrolled)},
            "spec": {"cluster": key.cluster},
            "status": {"tunnels": [_tunnel(tunnel) for tunnel in tunnels]},
        }


def _tunnel(tunnel: Tunnel) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "address": tunnel.peer,
        "since": timestamp(tunnel.since),
        "version": tunnel.version,
        "streams": tunnel.streams,
        "draining": tunnel.draining,
    }
    if tunnel.round_trip:
        shown["roundTripMilliseconds"] = round(tunnel.round_trip * 1000, 3)
    return shown


def _by_tunnel(items: list[Object]) -> list[Object]:
    """Return one row for each tunnel, and one for each agent without one."""
    return [
        {**item, "status": {"tunnel": tunnel}}
        for item in items
        for tunnel in item["status"]["tunnels"] or [{}]
    ]


def _round_trip(item: Object, _now: float) -> str:
    value = item["status"]["tunnel"].get("roundTripMilliseconds")
    return "" if value is None else f"{value:.1f}ms"


AGENT_COLUMNS = (
    name_column("Fingerprint of the agent's key."),
    Column("Enrolled", "When the key was enrolled.", lambda item, _: item["metadata"]["creationTimestamp"]),
    Column(
        "Address", "Where its tunnel comes from.", lambda item, _: item["status"]["tunnel"].get("address", "")
    ),
    Column("Since", "When the tunnel was opened.", lambda item, _: item["status"]["tunnel"].get("since", "")),
    Column("Version", "Version of the agent.", lambda item, _: item["status"]["tunnel"].get("version", "")),
    Column("Round trip", "To the agent and back.", _round_trip),
)
