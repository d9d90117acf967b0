"""Rotation of the CA of users' certificates."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from attrs import define

from tower.clusters.credentials import Credential, Credentials
from tower.errors import ConfigurationError, Conflict, NotFound
from tower.rotation.dependents import OldKubeconfig
from tower.rotation.rotation import Remaining, Rotation
from tower.trust.authorities import NEXT, file_content, own_authority
from tower.trust.pki import load_certificates
from tower.trust.rotating_authority import RotatingAuthority
from tower.trust.serving_certificate import ServingCertificate
from tower.trust.statedir import StateDir

#: Name of the CA in the state directory.
NAME = "users-ca"

#: File with the certificates of the CA that was replaced; its key is not kept.
OLD = f"{NAME}.old.pem"


def load_users_ca(state: StateDir, now: float) -> RotatingAuthority:
    """Return the CA, with the old one while it is rotated.

    :raise ConfigurationError: a file holds no usable CA.
    """
    authority = own_authority(state, NAME, now)
    data = state.read(OLD)
    if data is None:
        return RotatingAuthority(authority)
    try:
        old = load_certificates(data)
    except ValueError as e:
        raise ConfigurationError(f"{state.path / OLD}: no certificate in PEM format: remove the file") from e
    return RotatingAuthority(authority, () if old[0] == authority.certificate else old)


@define(eq=False)
class UsersCARotation:
    """The new CA signs at once; certificates of the old one are accepted until they expire.

    :param authority: changed in place.
    :param renew_admin: writes the administrator's kubeconfig, which is not waited for.
    :param is_admin: returns whether a credential is of that kubeconfig.
    :param now: returns the time, s since the epoch.
    """

    _state: StateDir
    _authority: RotatingAuthority
    _serving: ServingCertificate
    _credentials: Credentials
    _renew_admin: Callable[[], Awaitable[None]]
    _is_admin: Callable[[Credential], bool]
    _now: Callable[[], float]

    def pending(self) -> str:
        """See `Procedure`."""
        return self._authority.hash if self._authority.other else ""

    def current(self) -> str:
        """See `Procedure`."""
        return self._authority.hash

    async def begin(self) -> tuple[str, str]:
        """See `Procedure`."""
        if self.pending():
            new, old_hash = self._authority.hashes
            return old_hash, new
        authority, old = self._authority, self._authority.current
        following = own_authority(self._state, NAME + NEXT, self._now())
        await self._state.save({f"{NAME}.pem": file_content(following), OLD: old.pem})
        self._state.write(OLD, old.pem)
        self._state.rename(f"{NAME}{NEXT}.pem", f"{NAME}.pem")
        self._serving.trust_users(following)
        authority.current, authority.other = following, tuple(old.certificates)
        return old.hash, authority.hash

    async def begun(self) -> None:
        """See `Procedure`."""
        await self._renew_admin()

    def remaining(self, rotation: Rotation) -> Remaining:
        """See `Procedure`."""
        old = [OldKubeconfig.of(each) for each in self._old(rotation) if not self._is_admin(each)]
        return Remaining(credentials=old)

    async def finish(self, rotation: Rotation) -> None:
        """See `Procedure`.  Certificates of the old CA that have not expired are revoked."""
        for credential in self._old(rotation):
            try:
                await self._credentials.revoke(credential.id)
            except NotFound:
                continue  # its cluster was removed
        await self._state.save({OLD: None})
        self._state.remove(OLD)
        self._authority.other = ()

    async def cancel(self) -> None:
        """See `Procedure`."""
        raise Conflict(
            "users-ca: the new CA signs already, and certificates of the old one are accepted until they "
            "expire: to end the overlap now, run 'tower rotate users-ca --now'"
        )

    def _old(self, rotation: Rotation) -> list[Credential]:
        issued = self._credentials.issued_before(rotation.started)
        return [credential for credential in issued if credential.kind == "cert"]
