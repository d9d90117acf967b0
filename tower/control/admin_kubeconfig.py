"""The administrator's kubeconfig in the state directory, for users who can read that directory.

It is short-lived and renewed while the proxy runs, so a stolen copy expires soon.  After a revocation of its
credential, it is renewed at once: users who can read the directory stay administrators.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from tower.clusters.credentials import ADMINS, Credential, Credentials
from tower.errors import TowerError, one_line
from tower.kube.kubeconfig import kubeconfig
from tower.store.records import StoreStopped
from tower.trust.rotating_authority import AnyAuthority
from tower.trust.statedir import StateDir

#: File name in the state directory.
FILE = "admin.kubeconfig"

#: Name of the administrator; not valid in any cluster.
USER = "tower-admin"

#: Longest lifetime of the credential, s; ``--max-credential-ttl`` may be shorter.
LIFETIME = 3600.0

#: Part of the lifetime after which it is renewed.
RENEWAL = 1 / 4

#: Interval of checks for a due renewal, s; short, because at any moment the time of day can be set, and the
#: file removed.
CHECK_PERIOD = 10.0


@define(eq=False, repr=False)
class AdminKubeconfig:
    """Writes the administrator's kubeconfig.

    :param users: signs the administrator's certificate.
    :param serving: signs the front door's certificate.
    :param server: URL of the front door on this machine.
    :param now: returns the time, s since the epoch.
    """

    _log = Logger()

    _state: StateDir
    _credentials: Credentials
    _users: AnyAuthority
    _serving: AnyAuthority
    _server: str
    _now: Callable[[], float]
    _renewed: float = field(default=0.0, init=False)
    _written: str = field(default="", init=False)  # ID of the credential in the file

    def __attrs_post_init__(self) -> None:
        self._credentials.watch_ends(self._ended)

    @property
    def _lifetime(self) -> float:
        """Lifetime of the next credential, s."""
        return min(LIFETIME, self._credentials.max_ttl)

    def owns(self, credential: Credential) -> bool:
        """Return whether *credential* is of this kubeconfig, also of an earlier one."""
        return credential.user == USER and not credential.cluster

    async def renew(self) -> None:
        """Write a new kubeconfig; raise `TowerError` if store or state directory cannot be written."""
        lifetime = self._lifetime
        issued = self._users.client_certificate(USER, [ADMINS], "", "", lifetime, self._now())
        credential = await self._credentials.register_certificate("", USER, [ADMINS], lifetime, issued.digest)
        content = kubeconfig(
            server=self._server,
            ca_pem=self._serving.pem,
            cluster="",
            user=USER,
            certificate=(issued.certificate_pem, issued.key_pem),
        )
        self._state.write(FILE, content.encode())
        self._renewed, self._written = self._now(), credential.id

    async def try_to_renew(self) -> None:
        """Write a new kubeconfig if it is due, missing, or the time was set back; log expected errors."""
        is_recent = 0 <= self._now() - self._renewed < self._lifetime * RENEWAL
        if is_recent and (self._state.path / FILE).exists():
            return
        try:
            await self.renew()
        except StoreStopped:
            return  # the program ends
        except (TowerError, OSError) as e:
            self._log.error(
                "cannot renew the administrator's kubeconfig in {path}; retrying: {reason}",
                path=str(self._state.path),
                reason=one_line(e),
            )

    def _ended(self, credential: Credential) -> None:
        if credential.id == self._written:
            self._renewed = 0.0  # if it fails now, the next check retries
            Deferred.fromCoroutine(self.try_to_renew())
