"""The record of a leader in a Lease of ``coordination.k8s.io/v1``, field by field as client-go's."""

from __future__ import annotations

import math
from typing import Any, Self

from attrs import evolve, frozen

from tower.kube.rest.host_api import Object
from tower.kube.rest.well_known import LEASES
from tower.kube.timestamps import micro_time


@frozen
class LeaseRecord:
    """Spec of a Lease; times are texts, since only their changes count.

    :ivar holder: identity of the leader; empty: it released the Lease, or there never was one.
    :ivar duration: time after the last observed change until another candidate may take over, s.
    :ivar transitions: number of changes of the leader.
    """

    holder: str = ""
    duration: int = 0
    acquired: str = ""
    renewed: str = ""
    transitions: int = 0

    @classmethod
    def of(cls, lease: Object) -> Self:
        """Return the record in *lease*; missing and invalid fields have their defaults."""
        spec = lease.get("spec") or {}
        return cls(
            _text(spec.get("holderIdentity")),
            _number(spec.get("leaseDurationSeconds")),
            _text(spec.get("acquireTime")),
            _text(spec.get("renewTime")),
            _number(spec.get("leaseTransitions")),
        )

    def taken(self, holder: str, duration: float, now: float) -> Self:
        """Return the record after *holder* acquired or renewed the Lease.

        :param now: s since the epoch.
        """
        moment = micro_time(now)
        if moment == self.renewed:  # the clock was set back: candidates notice changes only
            moment = micro_time(now + 1e-6)
        whole = max(1, math.ceil(duration))
        if holder == self.holder:
            return evolve(self, duration=whole, renewed=moment)
        is_change = bool(self.renewed)
        return type(self)(holder, whole, moment, moment, self.transitions + is_change)

    def released(self, now: float) -> Self:
        """Return the record after its holder released the Lease."""
        moment = micro_time(now)
        return evolve(self, holder="", duration=1, acquired=moment, renewed=moment)

    def written(self, lease: Object) -> Object:
        """Return a copy of *lease* with this record; unknown fields stay."""
        spec = {
            **(lease.get("spec") or {}),
            "holderIdentity": self.holder,
            "leaseDurationSeconds": self.duration,
            "acquireTime": self.acquired,
            "renewTime": self.renewed,
            "leaseTransitions": self.transitions,
        }
        return {**lease, "spec": spec}


def new_lease(namespace: str, name: str) -> Object:
    """Return a Lease without a record."""
    return {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "metadata": {"name": name, "namespace": namespace},
    }


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0
