"""What was decided about one request and holds for the next ones of its connection.

The filters of a chain look at a request's credential, at the identity that its header may claim, at the
cluster that it is for, at the records and at the clock, and at nothing else.  So whom they have let pass they
would let pass again as long as none of these is another; a `CachedAdmission` tells that with a few comparisons.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tower.store import IStore
from tower.store.records import Event
from tower.tunnels.targets import KUBERNETES
from tower.web.outcome import Relay

_KINDS = ("credentials", "clusters")

# Below a cluster's prefix, and yet not the cluster's; see `tower.web.ports.router`.
_TARGETS = b"targets/"

# What no path begins with.
_NOTHING = b"\0"


class AdmissionGeneration:
    """Says when what was decided has to be decided anew.

    Make it after whatever answers from the same records, so that it hears of each change after them.

    :param seconds: the time of day, s since the epoch.
    :ivar generation: how often the records that decisions rest on have changed.
    """

    def __init__(self, store: IStore, seconds: Callable[[], float]) -> None:
        self.generation = 0
        self.seconds = seconds
        self._watches = [store.watch(kind, self._changed) for kind in _KINDS]

    def _changed(self, _event: Event) -> None:
        self.generation += 1

    def stop(self) -> None:
        """Follow the records no longer; nothing stands any more."""
        self.generation += 1
        for watch in self._watches:
            watch.stop()


class CachedAdmission:
    """A way into a cluster that a connection was let into.

    :param request: the one that was let in.
    :param generation: what `AdmissionGeneration.generation` was before anybody decided.
    :ivar identity: who asks.
    :ivar relay: where to.
    """

    __slots__ = ("_bearer", "_but", "_generation", "_prefix", "_since", "_until", "identity", "relay")

    def __init__(self, request: Any, relay: Relay, generation: int) -> None:
        self.identity = request.identity
        self.relay = relay
        self._bearer: bytes | None = request.fields.bearer
        self._prefix = relay.prefix + b"/"
        self._but = self._prefix + _TARGETS if relay.prefix and relay.target == KUBERNETES else _NOTHING
        self._generation = generation
        self._since, self._until = self.identity.credential.term

    def covers(self, request: Any, rights: AdmissionGeneration) -> bool:
        """Return whether *request* goes the same way; if not, ask the filters.

        :param request: of the same connection, and so with the same certificate.
        """
        fields = request.fields
        return (
            rights.generation == self._generation
            and fields.bearer == self._bearer
            and not (fields.foreign or fields.upgrade)
            and request.target.startswith(self._prefix)
            and not request.target.startswith(self._but)
            and self._since <= rights.seconds() < self._until
        )
