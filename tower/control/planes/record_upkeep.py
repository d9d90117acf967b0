"""Services that write to the records by themselves: states of clusters, times, events, old records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from attrs import frozen
from twisted.application.service import Service

from tower import __version__
from tower.clusters.records import Records
from tower.control.admin_kubeconfig import CHECK_PERIOD, AdminKubeconfig
from tower.control.agent_versions import AgentVersions
from tower.control.availability import Availability
from tower.control.event_recorder import EventRecorder
from tower.control.last_seen import PERIOD as LAST_SEEN_PERIOD
from tower.control.last_seen import LastSeen
from tower.control.member_checks import MemberChecks
from tower.control.planes.runtime import Runtime
from tower.rotation.rotations import CHECK_PERIOD as ROTATIONS_PERIOD
from tower.rotation.rotations import Rotations
from tower.tunnels import Tunnels

#: Interval for removing expired tokens and credentials, s.
PURGE_PERIOD = 60.0


@frozen(eq=False)
class RecordUpkeep:
    """The services that write.

    :ivar services: stop them before the tunnels, whose end is not a state of the clusters.
    :ivar writers: those of them that must stop before another proxy can have the records.
    """

    services: Sequence[Service]
    writers: Sequence[Service]

    @classmethod
    def of(
        cls,
        runtime: Runtime,
        records: Records,
        tunnels: Tunnels,
        admin: AdminKubeconfig,
        rotations: Rotations,
    ) -> Self:
        """Return the services."""
        reactor, store, clusters = runtime.reactor, records.store, records.clusters
        last_seen = LastSeen(store, clusters, tunnels, records.agent_keys)
        versions = AgentVersions(reactor, clusters, tunnels, __version__)
        availability = Availability(reactor, clusters, tunnels)
        recorder = EventRecorder(store, clusters, tunnels, records.events)
        writing = (
            *runtime.every(max(LAST_SEEN_PERIOD, store.quiet_period), last_seen.write),
            *runtime.every(CHECK_PERIOD, admin.try_to_renew),
            *runtime.every(
                PURGE_PERIOD,
                records.events.sweep,
                records.tokens.purge,
                records.credentials.purge,
                records.agent_keys.purge,
                records.login_sessions.purge,
            ),
            *runtime.every(ROTATIONS_PERIOD, rotations.check),
        )
        services = [
            last_seen,
            versions,
            rotations,
            availability,
            MemberChecks(reactor, tunnels),
            recorder,
            *writing,
        ]
        return cls(services, [recorder, availability, versions, last_seen, rotations, *writing])
