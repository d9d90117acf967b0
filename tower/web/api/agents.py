"""The resource `clusters/<name>/agents`: enrolled keys, tokens of v1 agents, and live tunnels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from tower.clusters import API_VERSION, Cluster
from tower.clusters.agent_keys import AgentKeys
from tower.clusters.join_tokens import JoinTokens
from tower.clusters.v1_tokens import ID_PREFIX, V1Tokens
from tower.durations import human_duration
from tower.errors import Invalid, NotFound
from tower.kube.timestamps import timestamp
from tower.tunnels import Tunnel, Tunnels
from tower.tunnels.silence_watch import QUIET
from tower.web.api.calls.call import Call, method_not_allowed, not_found
from tower.web.api.objects import delete, list_response, selected
from tower.web.api.table import Column, Object, name_column, round_trip, seconds_since
from tower.web.outcome import Outcome, Response
from tower.websocket.subprotocols import KUBESPHERE_V1, TOWER_V2


@frozen
class _Agent:
    """A credential of agents: a key of one agent, or a v1 token, which any number of agents may share.

    :ivar name: fingerprint of the key, or ID of the token.
    :ivar since: time of enrolment or creation, s since the epoch.
    """

    name: str
    protocol: str
    since: float


class AgentsApi:
    """`clusters/<name>/agents`: the agents' credentials, with tunnels or the last agent; a delete revokes.

    In a path, a fingerprint's `/` is written `_` and its `+` is written `-`, as in base64url.
    """

    def __init__(
        self, keys: JoinTokens, tokens: V1Tokens, tunnels: Tunnels, clock: IReactorTime, facts: AgentKeys
    ) -> None:
        self._keys = keys
        self._tokens = tokens
        self._tunnels = tunnels
        self._clock = clock
        self._facts = facts

    async def answer(self, call: Call, cluster: Cluster, below: tuple[str, ...]) -> Outcome:
        """See `tower.web.api.clusters.Below`."""
        if cluster.ssh is not None:
            raise Invalid(
                f"cluster {cluster.name} is of type ssh: it has nodes instead of agents; "
                f"'tower cluster show {cluster.name}' shows them"
            )
        match call.method, below:
            case (("GET" | "HEAD"), ()):
                now = self._clock.seconds()
                items = selected(call, self.objects(cluster), {})
                return list_response(call, "Agent", items, AGENT_COLUMNS, now, rows_by_tunnel)
            case (("GET" | "HEAD"), (name,)):
                return Response.of_json(self._object(cluster, self._find(cluster, name)))
            case "DELETE", (name,):
                agent = self._find(cluster, name)
                return await delete(call, "agents", agent.name, lambda: self._revoke(cluster, agent))
            case _, (() | (_,)):
                raise method_not_allowed(call)
        raise not_found()

    def objects(self, cluster: Cluster) -> list[Object]:
        """See `tower.web.api.across_clusters.Listed`."""
        return [self._object(cluster, agent) for agent in self._agents(cluster)]

    def _agents(self, cluster: Cluster) -> Sequence[_Agent]:
        return [
            *(_Agent(key.fingerprint, TOWER_V2, key.enrolled) for key in self._keys.agent_keys(cluster.name)),
            *(_Agent(token.id, KUBESPHERE_V1, token.minted) for token in self._tokens.tokens(cluster.name)),
        ]

    def _find(self, cluster: Cluster, name: str) -> _Agent:
        for agent in self._agents(cluster):
            if name in (agent.name, agent.name.replace("+", "-").replace("/", "_")):
                return agent
        raise NotFound(
            f"cluster {cluster.name} has no agent {name}: 'tower cluster agents {cluster.name}' shows all"
        )

    def _revoke(self, cluster: Cluster, agent: _Agent) -> Deferred[None]:
        if agent.name.startswith(ID_PREFIX):
            return self._tokens.revoke(cluster.name, agent.name)
        return self._keys.revoke(cluster.name, agent.name)

    def _object(self, cluster: Cluster, agent: _Agent) -> Object:
        tunnels = [tunnel for tunnel in self._tunnels.live(cluster.name) if tunnel.fingerprint == agent.name]
        return {
            "apiVersion": API_VERSION,
            "kind": "Agent",
            "metadata": {
                "name": agent.name,
                "creationTimestamp": timestamp(agent.since),
                **({"labels": dict(cluster.labels)} if cluster.labels else {}),
            },
            "spec": {"cluster": cluster.name, "protocol": agent.protocol},
            "status": {
                "tunnels": [self._tunnel(tunnel) for tunnel in tunnels],
                **self._last(cluster, agent, tunnels),
                **self._removal(cluster, agent),
            },
        }

    def _tunnel(self, tunnel: Tunnel) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "host": tunnel.host,
            "address": tunnel.peer,
            "since": timestamp(tunnel.since),
            "version": tunnel.version,
            "protocol": tunnel.protocol,
            "streams": tunnel.streams,
            "draining": tunnel.draining,
        }
        if tunnel.round_trip and not self._tunnels.is_silent(tunnel):
            shown["roundTripMilliseconds"] = round(tunnel.round_trip * 1000, 3)
        return shown

    def _last(self, cluster: Cluster, agent: _Agent, tunnels: Sequence[Tunnel]) -> dict[str, str]:
        """Return when and where an agent was last seen with the credential."""
        last = self._facts.last(cluster.name, agent.name)
        times = [self._tunnels.quiet_since(tunnel) or self._clock.seconds() for tunnel in tunnels]
        if not times and last is not None and last.seen is not None:
            times.append(last.seen)
        shown = {} if last is None else {"host": last.host, "address": last.address, "version": last.version}
        if times:
            shown["lastSeen"] = timestamp(max(times))
        return {name: value for name, value in shown.items() if value}

    def _removal(self, cluster: Cluster, agent: _Agent) -> dict[str, str]:
        """Return when a key is removed whose agent has never connected."""
        facts = self._facts.of(cluster.name, agent.name)
        return {} if facts is None or facts.purged is None else {"removalTimestamp": timestamp(facts.purged)}


def rows_by_tunnel(items: list[Object]) -> list[Object]:
    """Return one row for each tunnel, and one for each credential without one, with its last agent."""
    return [
        {**item, "status": {**item["status"], **tunnel, "tunnel": tunnel}}
        for item in items
        for tunnel in item["status"]["tunnels"] or [{}]
    ]


def _since(status: dict[str, Any]) -> str:
    if not status["tunnel"] and "removalTimestamp" in status:
        return f"never; the key is removed at {status['removalTimestamp']}"
    return str(status["tunnel"].get("since", ""))


def _last_seen(item: Object, now: float) -> str:
    status = item["status"]
    seconds = seconds_since(status.get("lastSeen"), now)
    if seconds is None:
        return "never" if "removalTimestamp" in status else ""
    return "now" if status["tunnel"] and seconds < QUIET else f"{human_duration(seconds)} ago"


AGENT_COLUMNS = (
    name_column("Fingerprint of the agent's key, or ID of its token."),
    Column(
        "Host",
        "Name of the agent's host or pod.",
        lambda item, _: item["status"].get("host", ""),
    ),
    Column(
        "Enrolled",
        "Time of enrollment, or of creation of the token.",
        lambda item, _: item["metadata"]["creationTimestamp"],
    ),
    Column("Address", "Address of the agent.", lambda item, _: item["status"].get("address", "")),
    Column("Last seen", "Time since the last sign of life of the agent.", _last_seen),
    Column("Since", "Time when the tunnel was opened.", lambda item, _: _since(item["status"])),
    Column("Version", "Version of the agent.", lambda item, _: item["status"].get("version", "")),
    Column("Round trip", "Round-trip time.", lambda item, _: round_trip(item["status"]["tunnel"])),
    Column("Protocol", "Protocol of the agent.", lambda item, _: item["spec"]["protocol"]),
)
