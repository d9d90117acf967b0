"""The credentials for member clusters that the proxy itself keeps: sealed, one for each cluster.

What is not secret of them is kept in clear beside: where the API server is, and what kind of credential.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from tower.clusters.cluster import Cluster, MemberFacts
from tower.errors import ConfigurationError, Invalid
from tower.kube.apiserver import APIServer
from tower.kube.connection_settings import bearer_token, end_of_token
from tower.kube.flatten import self_contained
from tower.kube.kubeconfig import KubeAccess, read_kubeconfig
from tower.store import IStore
from tower.store.records import (
    Create,
    Event,
    Operation,
    RecordChanged,
    RecordMissing,
    StoreFailed,
    Update,
    Value,
    Watch,
)
from tower.trust.pki import load_certificates
from tower.trust.vault import UnsealFailed, Vault, VaultError

#: The kind of the records.
KIND = "memberaccess"

#: Largest kubeconfig that is kept, B.
LIMIT = 256 * 1024


class MemberCredentials:
    """Those credentials, in a store.

    :param vault: seals them.
    """

    _log = Logger()

    def __init__(self, store: IStore, vault: Vault) -> None:
        self._store = store
        self._vault = vault

    def write_operations(self, cluster_uid: str, name: str, access: KubeAccess) -> list[Operation]:
        """Return what keeps *access* for a cluster, in place of the one before, if there is one.

        :raise Invalid: it cannot be used from here; see `check_access`.
        :raise VaultError: it cannot be sealed.
        """
        facts = check_access(access)
        plain = self_contained(access)
        if len(plain) > LIMIT:
            raise Invalid(
                f"spec.connection.kubeconfig: {len(plain)} B: larger than {LIMIT} B; are there more "
                "certificate authorities in it than the cluster's own?"
            )
        value: Value = {
            "cluster": name,
            "cluster_uid": cluster_uid,
            "server": facts.server,
            "credential": facts.credential,
            "expires": facts.expires,
            "sealed": self._vault.seal(plain, cluster_uid),
        }
        if self._store.get(KIND, cluster_uid) is None:
            return [Create(KIND, cluster_uid, value)]
        return [Update(KIND, cluster_uid, value)]

    def get(self, cluster: Cluster) -> KubeAccess:
        """Return the credential for *cluster*.

        :raise ConfigurationError: there is none, or it cannot be opened; the text names the cure.
        """
        cure = f"give it again with 'tower cluster set {cluster.name} --member-kubeconfig K'"
        record = self._store.get(KIND, cluster.uid)
        if record is None:
            raise ConfigurationError(f"cluster {cluster.name} has no credential: {cure}")
        try:
            plain = self._vault.open(record.value["sealed"], cluster.uid)
        except VaultError as e:
            what = f"the credential for cluster {cluster.name} cannot be opened: {e}"
            raise VaultError(f"{what}, or {cure}" if isinstance(e, UnsealFailed) else what) from e
        return read_kubeconfig(plain, f"the kubeconfig of cluster {cluster.name}")

    def facts(self, cluster: Cluster) -> MemberFacts | None:
        """Return what may be shown of the credential for *cluster*; None: it has none."""
        record = self._store.get(KIND, cluster.uid)
        if record is None:
            return None
        value = record.value
        return MemberFacts(value["server"], value["credential"], value["expires"])

    def watch(self, callback: Callable[[str], None]) -> Watch:
        """Call *callback* with a cluster's name each time that its credential was given or replaced."""

        def heard(event: Event) -> None:
            if event.type != "DELETED":
                callback(event.record.value["cluster"])

        return self._store.watch(KIND, heard)

    def reseal(self) -> Deferred[int]:
        """Seal with the vault's first key what another of its keys sealed, so that the other can go.

        What cannot be opened, or written, stays as it is.

        :return: how many there were.
        """
        return Deferred.fromCoroutine(self._reseal())

    async def _reseal(self) -> int:
        count = 0
        for record in list(self._store.snapshot(KIND).values()):
            try:
                if self._vault.is_current(record.value["sealed"]):
                    continue
                plain = self._vault.open(record.value["sealed"], record.name)
                sealed = self._vault.seal(plain, record.name)
            except VaultError:
                continue  # whoever wants to use it hears why
            try:
                await self._store.update(
                    KIND, record.name, {**record.value, "sealed": sealed}, record.version
                )
            except (RecordChanged, RecordMissing):
                continue  # it was replaced or removed just now
            except StoreFailed as e:
                self._log.warn("credentials stay sealed with old keys: {reason}", reason=str(e))
                break
            count += 1
        if count:
            self._log.info("sealed {count} credentials with the first key", count=count)
        return count


def check_access(access: KubeAccess) -> MemberFacts:
    """Return what may be shown of *access*, if it can be used for a cluster of type ssh.

    :raise Invalid: naming what is wrong with it and the cure.
    """
    place = "spec.connection.kubeconfig"
    if access.proxy_url is not None:
        raise Invalid(f"{place}: proxy-url: the nodes lead there directly: leave it out")
    has_credential = access.token or access.token_file or access.client_certificate
    if has_credential and urlsplit(access.server).scheme != "https":
        raise Invalid(f"{place}: server is http://: over http anybody could take the credential: use https")
    try:
        APIServer(lambda: access)
        return _facts(access)
    except (ConfigurationError, ValueError) as e:
        raise Invalid(f"{place}: {e}") from e


def _facts(access: KubeAccess) -> MemberFacts:
    if access.client_certificate is not None:
        end = load_certificates(access.client_certificate)[0].not_valid_after_utc
        return MemberFacts(access.server, "certificate", end.timestamp())
    token = bearer_token(access)
    if token:
        return MemberFacts(access.server, "token", end_of_token(token.encode("ascii")))
    return MemberFacts(access.server, "none")
