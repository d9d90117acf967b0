"""Rotation of the CA of the serving certificate."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from attrs import define

from tower.errors import Conflict
from tower.rotation.announcer import Announcer
from tower.rotation.rotation import Remaining, Rotation
from tower.rotation.serving_dependents import ServingDependents
from tower.trust.authorities import NEXT, file_content, new_authority, own_authority
from tower.trust.pki import Authority
from tower.trust.rotating_authority import RotatingAuthority
from tower.trust.serving_certificate import ServingCertificate
from tower.trust.statedir import StateDir

#: Name of the CA in the state directory.
NAME = "serving-ca"


def load_serving_ca(state: StateDir, now: float) -> RotatingAuthority:
    """Return the CA, with the next one while it is rotated.

    :raise ConfigurationError: a file holds no usable CA.
    """
    following = (
        own_authority(state, NAME + NEXT, now) if state.read(f"{NAME}{NEXT}.pem") is not None else None
    )
    return RotatingAuthority(own_authority(state, NAME, now), following.certificates if following else ())


@define(eq=False)
class ServingCARotation:
    """Announces the next CA to agents; new kubeconfigs contain both CAs.

    The old CA signs the serving certificate until the credentials that were issued before have expired.
    :param authority: changed in place.
    :param given: whether the CA is an option's, and not in the state directory.
    :param renew_admin: writes the administrator's kubeconfig, which is not waited for.
    :param now: returns the time, s since the epoch.
    """

    _state: StateDir
    _authority: RotatingAuthority
    _serving: ServingCertificate
    _given: bool
    _announcer: Announcer
    _dependents: ServingDependents
    _renew_admin: Callable[[], Awaitable[None]]
    _now: Callable[[], float]

    def pending(self) -> str:
        """See `Procedure`."""
        return self._authority.hashes[1] if self._authority.other else ""

    def current(self) -> str:
        """See `Procedure`."""
        return self._authority.hash

    async def begin(self) -> tuple[str, str]:
        """See `Procedure`."""
        if self._given:
            raise Conflict(
                "serving-ca is set by --ca-cert: to rotate it, give agents and users both CAs, then "
                "change --ca-cert and --ca-key"
            )
        if self._state.read(f"{NAME}{NEXT}.pem") is None:
            content = file_content(new_authority(NAME + NEXT, self._now()))
            await self._state.put(f"{NAME}{NEXT}.pem", content)
        self._authority.other = tuple(self._next().certificates)
        return self.current(), self.pending()

    async def begun(self) -> None:
        """See `Procedure`."""
        await self._announcer.publish()
        await self._renew_admin()

    def remaining(self, rotation: Rotation) -> Remaining:
        """See `Procedure`."""
        return self._dependents.remaining(rotation)

    async def finish(self, rotation: Rotation) -> None:
        """See `Procedure`."""
        following = self._next()
        await self._state.save_rename(f"{NAME}{NEXT}.pem", f"{NAME}.pem")
        self._serving.sign_with(following)
        self._state.rename(f"{NAME}{NEXT}.pem", f"{NAME}.pem")
        self._authority.current, self._authority.other = following, ()
        await self._announcer.publish()

    async def cancel(self) -> None:
        """See `Procedure`."""
        await self._state.save({f"{NAME}{NEXT}.pem": None})
        self._state.remove(f"{NAME}{NEXT}.pem")
        self._authority.other = ()
        await self._announcer.publish()

    def _next(self) -> Authority:
        return own_authority(self._state, NAME + NEXT, self._now())
