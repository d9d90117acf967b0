"""Tunnels into the clusters: those of agents, and those to nodes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Self

from attrs import frozen
from twisted.application.service import Service

from tower.clusters.records import Records
from tower.control.agent_tunnels import AgentTunnels
from tower.control.planes.runtime import Runtime
from tower.control.planes.trust_plane import TrustPlane
from tower.net.budget import Budget
from tower.nodes.cluster import NodeCluster
from tower.nodes.clusters import REPORT_PERIOD, NodeClusters
from tower.nodes.record_files import DIRECTORY, NodeFiles
from tower.trust.statedir import StateDir
from tower.tunnels import Tunnels
from tower.tunnels.silence import Silences
from tower.tunnels.silence_watch import PERIOD as SILENCE_PERIOD
from tower.tunnels.silence_watch import SilenceWatch
from tower.v1.warnings import REMINDER


@frozen(eq=False)
class TunnelPlane:
    """All tunnels, and what opens or accepts them.

    :ivar tunnels: the live ones, of agents and to nodes.
    :ivar files: which clusters of type ssh may name.
    :ivar services: stop them after what records the end of a tunnel.
    """

    tunnels: Tunnels
    agents: AgentTunnels
    nodes: NodeClusters
    files: NodeFiles
    silences: Silences
    services: Sequence[Service]

    @classmethod
    def of(
        cls,
        runtime: Runtime,
        state: StateDir,
        records: Records,
        trust: TrustPlane,
        budget: Budget,
        tunnels: Tunnels,
        *,
        has_host: bool,
    ) -> Self:
        """Return the plane.

        :param tunnels: empty.
        :param has_host: whether the records are in a host cluster, and the state directory is a cache.
        :raise ConfigurationError: the directory of the nodes' files cannot be used.
        """
        options, reactor = runtime.options, runtime.reactor
        agents = AgentTunnels.of(
            options, reactor, runtime.sockets, tunnels, records, trust.keys, budget, runtime.epoch
        )
        files = NodeFiles(
            Path(options["node-files"] or state.path / DIRECTORY).absolute(),
            options.given_cluster,
            is_cache=has_host and options["node-files"] is None,
        )
        files.prepare(state.path, records.member_credentials.vault.path, *filter(None, [options["ca-key"]]))
        create = partial(
            NodeCluster,
            reactor=reactor,
            poller=runtime.sockets,
            clock=agents.acceptor.wheel,
            store=records.store,
            tunnels=tunnels,
            credentials=records.member_credentials,
            budget=budget,
            epoch=runtime.epoch,
            keepalive=options["keepalive"],
            files=files,
        )
        nodes = NodeClusters(records.clusters, records.member_credentials, tunnels, files, create)
        silences = Silences(reactor.seconds)
        watch = SilenceWatch(tunnels, silences, reactor.seconds)
        services = [
            agents.notices,
            agents.acceptor,
            nodes,
            *runtime.every(SILENCE_PERIOD, watch.check),
            *runtime.every(REMINDER, agents.notices.remind),
            *runtime.every(REPORT_PERIOD, nodes.report),
        ]
        return cls(tunnels, agents, nodes, files, silences, services)
