"""The last admission of a connection, valid for similar requests of that connection.

The filters depend only on a request's credential, its impersonation headers, its cluster, the records and the
time.  So a request that passed them would pass again while none of these has changed; `CachedAdmission`
checks that with a few comparisons.
"""

from __future__ import annotations

from collections.abc import Callable

from tower.store import IStore
from tower.store.records import Event
from tower.tunnels.targets import KUBERNETES
from tower.web.access.authentication.identity import Identity
from tower.web.gateway.request import Request
from tower.web.outcome import Relay

_KINDS = ("credentials", "clusters")

# Below a cluster's prefix, but not served by its API server; see `tower.web.ports.router`.
_TARGETS = b"targets/"

# A prefix of no path.
_NOTHING = b"\0"


class AdmissionGeneration:
    """A number that changes with the records on which admissions depend; *seconds* returns Unix time, s.

    Create it after all caches of the same records, so that it is notified after them.
    """

    def __init__(self, store: IStore, seconds: Callable[[], float]) -> None:
        self.current = 0
        self.seconds = seconds
        self._watches = [store.watch(kind, self._changed) for kind in _KINDS]

    def _changed(self, _event: Event) -> None:
        self.current += 1

    def stop(self) -> None:
        """Stop following the records; all cached admissions become invalid."""
        self.current += 1
        for watch in self._watches:
            watch.stop()


class CachedAdmission:
    """The relay that a connection was admitted to.

    :param generation: `AdmissionGeneration.current` before the filters ran.
    """

    __slots__ = ("_bearer", "_except", "_generation", "_prefix", "_since", "_until", "identity", "relay")

    def __init__(self, request: Request, identity: Identity, relay: Relay, generation: int) -> None:
        self.identity = identity
        self.relay = relay
        self._bearer: bytes | None = request.fields.bearer
        self._prefix = relay.prefix + b"/"
        self._except = self._prefix + _TARGETS if relay.prefix and relay.target == KUBERNETES else _NOTHING
        self._generation = generation
        self._since, self._until = identity.term

    def covers(self, request: Request, generation: AdmissionGeneration) -> bool:
        """Return whether *request*, of the same connection, has the same relay; if not, run the filters."""
        fields = request.fields
        return (
            generation.current == self._generation
            and fields.bearer == self._bearer
            and not (fields.foreign or fields.upgrade)
            and request.target.startswith(self._prefix)
            and not request.target.startswith(self._except)
            and self._since <= generation.seconds() < self._until
        )
