"""Kubeconfigs of the host's programs for the clusters, such as KubeSphere's: issued, and renewed in time.

The caller is a trusted one: it authenticates users itself, and may act as any user of that cluster.  It has a
client certificate, not a token: programs that pass a user's token through keep the caller's
identity.  A stamp, which is not secret, identifies the credential and the contents of a kubeconfig.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from attrs import frozen

from tower.clusters.credentials import Credentials
from tower.errors import NotFound
from tower.kube.kubeconfig import kubeconfig
from tower.trust.rotating_authority import AnyAuthority

#: User name of the caller in the clusters.
CALLER = "kubesphere"

#: Longest lifetime, s; ``--max-credential-ttl`` may be shorter.
LIFETIME = 30 * 86400.0

#: Part of the lifetime that is left when a kubeconfig is renewed.
RENEWAL = 1 / 3


@frozen
class IssuedKubeconfig:
    """A kubeconfig and its stamp.

    The stamp has the ID of the credential, the digest of content, server and CAs, and that of the content.
    """

    content: bytes
    stamp: str


class KubeconfigIssuer:
    """Issues one kubeconfig for each cluster.

    :param users: signs the caller's certificates.
    :param serving: signs the certificate of the clusters' ports.
    :param now: returns the time, s since the epoch.
    """

    def __init__(
        self,
        credentials: Credentials,
        users: AnyAuthority,
        serving: AnyAuthority,
        now: Callable[[], float],
    ) -> None:
        self._credentials = credentials
        self._users = users
        self._serving = serving
        self._now = now

    async def issue(self, cluster: str, uid: str, server: str) -> IssuedKubeconfig:
        """Return a new kubeconfig for *server*, the URL of the cluster's Service.

        :raise TowerError: the credential cannot be stored.
        """
        lifetime = min(LIFETIME, self._credentials.max_ttl)
        issued = self._users.client_certificate(CALLER, (), cluster, uid, lifetime, self._now())
        credential = await self._credentials.register_certificate(
            cluster, CALLER, (), lifetime, issued.digest, "trusted-caller"
        )
        content = kubeconfig(
            server=server,
            ca_pem=self._serving.pem,
            cluster=cluster,
            user=CALLER,
            certificate=(issued.certificate_pem, issued.key_pem),
            by_port=True,
        ).encode()
        stamp = f"{credential.id}.{self._digest(content, server)}.{_content_digest(content)}"
        return IssuedKubeconfig(content, stamp)

    @staticmethod
    def is_own(stamp: str, content: bytes) -> bool:
        """Return whether *content* is the kubeconfig that was issued with *stamp*, not another program's."""
        return bool(content) and stamp.rpartition(".")[2] == _content_digest(content)

    def renewal(self, stamp: str, content: bytes, server: str) -> float:
        """Return the time until a kubeconfig must be replaced, s; 0: it must be replaced now."""
        credential_id, digest, *_ = *stamp.split("."), ""
        credential = self._credentials.get(credential_id) if credential_id else None
        now = self._now()
        if credential is None or not credential.valid(now) or digest != self._digest(content, server):
            return 0.0
        since, until = credential.issued, credential.expires
        return max(0.0, until - (until - since) * RENEWAL - now)

    async def revoke(self, stamp: str) -> None:
        """Revoke the credential of a kubeconfig, if it exists."""
        credential_id = stamp.partition(".")[0]
        if not credential_id:
            return
        try:
            await self._credentials.revoke(credential_id)
        except NotFound:
            return

    def _digest(self, content: bytes, server: str) -> str:
        parts = (content, server.encode(), self._serving.pem)
        return _content_digest(b"\0".join(hashlib.sha256(part).digest() for part in parts))


def _content_digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]
