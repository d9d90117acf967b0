"""Rotation of the CA of the serving certificate."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from attrs import define

from tower.clusters.credentials import Credential, Credentials
from tower.clusters.join_tokens import JoinTokens, UnspentToken
from tower.clusters.v1_tokens import V1Tokens
from tower.errors import Conflict
from tower.rotation.announcer import Announcer
from tower.rotation.dependents import LackingAgent, OldKubeconfig
from tower.rotation.rotation import Remaining, Rotation
from tower.trust.authorities import NEXT, file_content, new_authority, own_authority
from tower.trust.pki import Authority
from tower.trust.rotating_authority import RotatingAuthority
from tower.trust.serving_certificate import ServingCertificate
from tower.trust.statedir import StateDir

#: Name of the CA in the state directory.
NAME = "serving-ca"

_V1 = (
    "kubesphere-v1 agents get no announcements: give them the new CA file if they use https, or revoke the "
    "token if none uses it"
)

#: How long an unused token of kubesphere-v1 is waited for after its creation, s; its manifest has the CA.
UNUSED_PERIOD = 86400.0


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
    An unused token of kubesphere-v1 counts as a join line, for `UNUSED_PERIOD` s.

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
    _announcer: Announcer
    _tokens: JoinTokens
    _v1_tokens: V1Tokens
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
        agents, ready = self._announcer.lacking(rotation.new)
        agents += [
            LackingAgent(each.cluster, each.id, _V1) for each in self._v1_tokens.all() if each.connected
        ]
        join_lines = [*self._tokens.unspent(rotation.started), *self._unused(rotation.started)]
        issued = self._credentials.issued_before(rotation.started)
        users = [OldKubeconfig.of(credential) for credential in issued if not self._is_admin(credential)]
        return Remaining(agents, ready, join_lines, users)

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

    def _unused(self, before: float) -> list[UnspentToken]:
        """Return the unused tokens of kubesphere-v1 whose manifests have the old CA only."""
        latest = self._now() - UNUSED_PERIOD
        return [
            UnspentToken(each.cluster, each.minted + UNUSED_PERIOD, each.id)
            for each in self._v1_tokens.all()
            if not each.connected and latest < each.minted < before
        ]

    def _next(self) -> Authority:
        return own_authority(self._state, NAME + NEXT, self._now())
