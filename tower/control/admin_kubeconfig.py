"""The admin's kubeconfig in the state directory: whoever can read that directory administers this Tower.

It is short-lived and renewed while the proxy runs, so a copy that got away is soon worth nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from twisted.logger import Logger

from tower.clusters.credentials import ADMINS, Credentials
from tower.errors import TowerError
from tower.kube.kubeconfig import kubeconfig
from tower.trust.pki import Authority
from tower.trust.statedir import StateDir

#: The file in the state directory.
FILE = "admin.kubeconfig"

#: Who the admin is to Tower; nobody in any cluster.
USER = "tower-admin"

#: How long the credential lives, and how often it is renewed, s.
LIFETIME = 3600.0
RENEWAL = 900.0

#: How often to look whether that is due: the time of day may be set at any moment, s.
LOOK = 10.0


class Serves(Protocol):
    """What is needed of the authority that signs the front door's certificate."""

    @property
    def pem(self) -> bytes:
        """Its certificates."""


class AdminAccess:
    """:param server: URL of the front door, as this machine reaches it.
    :param users: signs the admin's certificate.
    :param serving: signs the front door's.
    :param now: returns the time, s since the epoch.
    """

    _log = Logger()

    def __init__(
        self,
        state: StateDir,
        credentials: Credentials,
        users: Authority,
        serving: Serves,
        server: str,
        now: Callable[[], float],
    ) -> None:
        self._state = state
        self._credentials = credentials
        self._users = users
        self._serving = serving
        self._server = server
        self._now = now
        self._renewed = 0.0

    async def renew(self) -> None:
        """Write a new kubeconfig.

        :raise TowerError: the store or the state directory cannot be written.
        """
        issued = self._users.client_certificate(USER, [ADMINS], "", "", LIFETIME, self._now())
        await self._credentials.register_certificate("", USER, [ADMINS], LIFETIME, issued.digest)
        content = kubeconfig(
            server=self._server,
            ca_pem=self._serving.pem,
            cluster="",
            user=USER,
            certificate=(issued.certificate_pem, issued.key_pem),
        )
        self._state.write(FILE, content.encode())
        self._renewed = self._now()

    async def try_to_renew(self) -> None:
        """Write a new kubeconfig if that is due, or if the last one seems to come from the future.

        A timer's body, never raises what it can name.
        """
        if 0 <= self._now() - self._renewed < RENEWAL:
            return
        try:
            await self.renew()
        except (TowerError, OSError):
            self._log.failure("cannot renew the admin's kubeconfig in {path}", path=str(self._state.path))
