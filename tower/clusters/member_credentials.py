"""The proxy's own credentials for member clusters of type ssh, one per cluster, stored sealed.

Their public facts (API server, kind, expiry) are stored in plain text.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from attrs import define

from tower.clusters.cluster import Cluster, MemberFacts
from tower.errors import ConfigurationError, Invalid
from tower.kube.apiserver import APIServer
from tower.kube.connection_settings import bearer_token, end_of_token
from tower.kube.flatten import self_contained
from tower.kube.kubeconfig import KubeAccess, read_kubeconfig
from tower.store import IStore
from tower.store.kinds import MEMBER_ACCESS
from tower.store.records import Create, Event, Operation, Record, Update, Value, Watch
from tower.store.sealed_records import SealedRecords
from tower.trust.pki import load_certificates
from tower.trust.vault import UnsealFailed, Vault, VaultError

#: Largest stored kubeconfig, B.
LIMIT = 256 * 1024


@define(eq=False)
class MemberCredentials:
    """The credentials in a store.

    :ivar vault: seals them.
    """

    _store: IStore
    vault: Vault

    def write_operations(self, cluster_uid: str, name: str, access: KubeAccess) -> list[Operation]:
        """Return the operations that store *access* for a cluster, or replace the stored one.

        :raise Invalid: see `check_access`.
        :raise VaultError: it cannot be sealed.
        """
        facts = check_access(access)
        plain = self_contained(access)
        if len(plain) > LIMIT:
            raise Invalid(
                f"spec.connection.kubeconfig: {len(plain)} B: larger than {LIMIT} B: remove certificate "
                "authorities other than the cluster's"
            )
        before = self._store.get(MEMBER_ACCESS, cluster_uid)
        value: Value = {
            "cluster": name,
            "cluster_uid": cluster_uid,
            "server": facts.server,
            "credential": facts.credential,
            "expires": facts.expires,
            "revision": 1 if before is None else revision(before) + (not self._contains(before, plain)),
            "sealed": self.vault.seal(plain, cluster_uid),
        }
        return [
            Create(MEMBER_ACCESS, cluster_uid, value)
            if before is None
            else Update(MEMBER_ACCESS, cluster_uid, value)
        ]

    def _contains(self, record: Record, plain: bytes) -> bool:
        try:
            return self.vault.open(record.value["sealed"], record.name) == plain
        except VaultError:
            return False

    def get(self, cluster: Cluster) -> KubeAccess:
        """Return the credential for *cluster*.

        :raise ConfigurationError: it is missing or cannot be opened; the text names the cure.
        """
        cure = f"set it again with 'tower cluster set {cluster.name} --member-kubeconfig K'"
        record = self._store.get(MEMBER_ACCESS, cluster.uid)
        if record is None:
            raise ConfigurationError(f"cluster {cluster.name} has no credential: {cure}")
        try:
            plain = self.vault.open(record.value["sealed"], cluster.uid)
        except VaultError as e:
            text = f"the credential for cluster {cluster.name} cannot be opened: {e}"
            raise VaultError(f"{text}, or {cure}" if isinstance(e, UnsealFailed) else text) from e
        return read_kubeconfig(plain, f"the kubeconfig of cluster {cluster.name}")

    def facts(self, cluster: Cluster) -> MemberFacts | None:
        """Return the public facts of the credential for *cluster*; None: it has none."""
        record = self._store.get(MEMBER_ACCESS, cluster.uid)
        if record is None:
            return None
        value = record.value
        return MemberFacts(value["server"], value["credential"], value["expires"])

    def watch(self, callback: Callable[[str], None]) -> Watch:
        """Call *callback* with a cluster's name whenever its credential is set or replaced."""

        def changed(event: Event) -> None:
            if event.type != "DELETED":
                callback(event.record.value["cluster"])

        return self._store.watch(MEMBER_ACCESS, changed)

    @property
    def sealed(self) -> SealedRecords:
        """The records, to be sealed with a new key."""
        return SealedRecords(self._store, MEMBER_ACCESS, self.vault)


def revision(record: Record) -> int:
    """Return the number of the credential in *record*; only another credential changes it, not a new seal."""
    number: int = record.value.get("revision", 1)
    return number


def check_access(access: KubeAccess) -> MemberFacts:
    """Return the public facts of *access*, if it can be used for a cluster of type ssh.

    :raise Invalid: with the problem and the cure.
    """
    field = "spec.connection.kubeconfig"
    if access.proxy_url is not None:
        raise Invalid(f"{field}: proxy-url: not supported: nodes connect without a proxy: omit it")
    has_credential = access.token or access.token_file or access.client_certificate
    if has_credential and urlsplit(access.server).scheme != "https":
        raise Invalid(f"{field}: server is http://: http would send the credential unencrypted: use https")
    try:
        APIServer(lambda: access)
        return _facts(access)
    except (ConfigurationError, ValueError) as e:
        raise Invalid(f"{field}: {e}") from e


def _facts(access: KubeAccess) -> MemberFacts:
    if access.client_certificate is not None:
        end = load_certificates(access.client_certificate)[0].not_valid_after_utc
        return MemberFacts(access.server, "certificate", end.timestamp())
    token = bearer_token(access)
    if token:
        return MemberFacts(access.server, "token", end_of_token(token.encode("ascii")))
    return MemberFacts(access.server, "none")
