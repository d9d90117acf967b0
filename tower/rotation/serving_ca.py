"""Rotation of the CA of the serving certificate."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from attrs import define

from tower.clusters.credentials import Credential, Credentials
from tower.clusters.join_tokens import JoinTokens
from tower.clusters.v1_tokens import id_of
from tower.errors import Conflict
from tower.rotation.announcer import Announcer
from tower.rotation.dependents import LackingAgent, OldKubeconfig
from tower.rotation.rotation import Remaining, Rotation
from tower.store import IStore
from tower.store.kinds import V1_TOKENS
from tower.trust.authorities import NEXT, own_authority
from tower.trust.pki import Authority
from tower.trust.rotating_authority import RotatingAuthority
from tower.trust.serving_certificate import ServingCertificate
from tower.trust.statedir import StateDir

#: Name of the CA in the state directory.
NAME = "serving-ca"

_V1 = "kubesphere-v1 agents get no announcements: give them the new CA file if they use https"


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
    :param is_admin: returns whether a credential is of that kubeconfig.
    :param now: returns the time, s since the epoch.
    """

    _state: StateDir
    _authority: RotatingAuthority
    _serving: ServingCertificate
    _given: bool
    _store: IStore
    _announcer: Announcer
    _tokens: JoinTokens
    _credentials: Credentials
    _renew_admin: Callable[[], Awaitable[None]]
    _is_admin: Callable[[Credential], bool]
    _now: Callable[[], float]

    def pending(self) -> str:
        """See `Procedure`."""
        return self._authority.hashes[1] if self._authority.other else ""

    def current(self) -> str:
        """See `Procedure`."""
        return self._authority.hash

    def begin(self) -> tuple[str, str]:
        """See `Procedure`."""
        if self._given:
            raise Conflict(
                "serving-ca is set by --ca-cert: to rotate it, give agents and users both CAs, then "
                "change --ca-cert and --ca-key"
            )
        self._authority.other = tuple(self._next().certificates)
        return self.current(), self.pending()

    async def begun(self) -> None:
        """See `Procedure`."""
        await self._announcer.publish()
        await self._renew_admin()

    def remaining(self, rotation: Rotation) -> Remaining:
        """See `Procedure`."""
        agents, ready = self._announcer.lacking(rotation.new)
        agents += [
            LackingAgent(record.value["cluster"], id_of(record.value["digest"]), _V1)
            for record in self._store.snapshot(V1_TOKENS).values()
        ]
        issued = self._credentials.issued_before(rotation.started)
        users = [OldKubeconfig.of(credential) for credential in issued if not self._is_admin(credential)]
        return Remaining(agents, ready, self._tokens.unspent(rotation.started), users)

    async def finish(self, rotation: Rotation) -> None:
        """See `Procedure`."""
        following = self._next()
        self._serving.sign_with(following)
        self._state.rename(f"{NAME}{NEXT}.pem", f"{NAME}.pem")
        self._authority.current, self._authority.other = following, ()
        await self._announcer.publish()

    async def cancel(self) -> None:
        """See `Procedure`."""
        self._state.remove(f"{NAME}{NEXT}.pem")
        self._authority.other = ()
        await self._announcer.publish()

    def _next(self) -> Authority:
        return own_authority(self._state, NAME + NEXT, self._now())
