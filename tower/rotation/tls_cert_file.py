"""Change to the CA of ``--tls-cert-file`` at the name that agents connect to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from attrs import define

from tower.errors import Conflict
from tower.rotation.announcer import Announcer
from tower.rotation.rotation import PREFIX, Remaining, Rotation
from tower.rotation.serving_dependents import ServingDependents
from tower.store import IStore
from tower.store.kinds import SETTINGS
from tower.trust.rotating_authority import RotatingAuthority

#: Target of the rotation.
TARGET = "tls-cert-file"


class GivenCertificate(Protocol):
    """The certificate of the option; see `tower.control.front_door.named_serving.NamedServing`."""

    @property
    def accepted(self) -> str:
        """Hash of the CA in use at the name of agents; empty: Tower's own is."""

    @property
    def pending(self) -> str:
        """Hash of the CA that is not in use there yet; empty: there is none."""

    def accept(self, authority: str) -> None:
        """Use the certificate of this CA there."""


def accepted_ca(store: IStore) -> str:
    """Return the hash of the CA that was in use last; empty: there was none."""
    record = store.get(SETTINGS, PREFIX + TARGET)
    if record is None:
        return ""
    last = Rotation.decode(record)
    return "" if last.finished is None else last.new


@define(eq=False)
class TLSCertFileRotation:
    """Begins by itself when the file has another CA, which is announced to agents meanwhile.

    :param given: None: the option is not set, or for a name of users only.
    :param authority: announces both CAs.
    :param renew_admin: writes the administrator's kubeconfig.
    """

    _given: GivenCertificate | None
    _authority: RotatingAuthority
    _announcer: Announcer
    _dependents: ServingDependents
    _renew_admin: Callable[[], Awaitable[None]]

    def pending(self) -> str:
        """See `Procedure`."""
        return "" if self._given is None else self._given.pending

    def current(self) -> str:
        """See `Procedure`."""
        return (self._given and self._given.accepted) or self._authority.hash

    async def begin(self) -> tuple[str, str]:
        """See `Procedure`."""
        raise Conflict(
            f"{TARGET} is rotated when the file has another CA: replace the files of --tls-cert-file and "
            "--tls-private-key-file; the CA in use is " + self.current()
        )

    async def begun(self) -> None:
        """See `Procedure`."""
        await self._announcer.publish()
        await self._renew_admin()

    def remaining(self, rotation: Rotation) -> Remaining:
        """See `Procedure`."""
        return self._dependents.remaining(rotation)

    async def finish(self, rotation: Rotation) -> None:
        """See `Procedure`."""
        if self._given is not None:
            self._given.accept(rotation.new)

    async def cancel(self) -> None:
        """See `Procedure`."""
        raise Conflict(
            f"the rotation of {TARGET} follows the file: to cancel it, put the old certificate back, or "
            "restart the proxy without --tls-cert-file"
        )
