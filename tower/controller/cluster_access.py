"""The kubeconfigs and tokens of clusters in the host: in Secrets, or in the clusters' objects."""

from __future__ import annotations

from attrs import define, evolve, field

from tower.clusters.cluster import Cluster
from tower.clusters.v1_tokens import V1Tokens
from tower.controller.agent_token import settle_token
from tower.controller.applier import Applier
from tower.controller.host_events import HostEvents
from tower.controller.kubeconfig_issuer import KubeconfigIssuer
from tower.controller.objects.endpoints import server_url
from tower.controller.objects.host_cluster import TOKEN_ANNOTATION, HostCluster
from tower.controller.objects.secret_objects import (
    KUBECONFIG,
    ClusterSecrets,
    secrets_of_object,
    wanted_secret,
)
from tower.controller.objects.service_objects import HostSettings, service_name
from tower.kube.rest.host_api import Object
from tower.kube.rest.well_known import SECRETS


@define(eq=False)
class ClusterAccess:
    """Issues, keeps and removes them.

    :param tokens: of ``kubesphere-v1`` agents; None: such agents are not allowed.
    """

    _applier: Applier
    _issuer: KubeconfigIssuer
    _tokens: V1Tokens | None
    _settings: HostSettings
    _events: HostEvents
    _unwritten: dict[str, ClusterSecrets] = field(factory=dict, init=False)  # of attempts that failed later

    async def settle(self, cluster: HostCluster, record: Cluster, service: Object) -> tuple[Object, float]:
        """Bring the Secret of a cluster in line.

        Call `written` when the cluster's object has the fields, too; before, a retry uses the same secrets.

        :return: the wanted fields of the cluster's object, and the time until the kubeconfig must be
            renewed, s.
        :raise TowerError: a write failed, or the token is invalid.
        """
        name, server = cluster.name, server_url(service)
        secret = await self._applier.get(SECRETS, service_name(name))
        inside, outside = ClusterSecrets.of_cluster(cluster), ClusterSecrets.of_secret(secret)
        held, other = (inside, outside) if self._settings.is_compatible else (outside, inside)
        unwritten = self._unwritten.get(name, ClusterSecrets())
        known_id = cluster.annotations.get(TOKEN_ANNOTATION, "")
        given = inside.token or outside.token or unwritten.token
        token, token_id = given, known_id
        if self._tokens is not None:
            stored = f"token of Secret {self._settings.namespace}/{service_name(name)}"
            source = "spec.connection.token" if inside.token else stored
            settled = await settle_token(self._tokens, name, given, known_id, source)
            token, token_id = settled.token, settled.id
        kept = max((held, unwritten), key=lambda each: self._renewal(each, server))
        if not self._renewal(kept, server):
            issued = await self._issuer.issue(name, record.uid, server)
            kept = ClusterSecrets(issued.content, issued.stamp)
        secrets = self._unwritten[name] = evolve(kept, token=token)
        if not self._settings.is_compatible:
            await self._applier.apply(SECRETS, wanted_secret(cluster, secrets, self._settings), secret)
        elif secret is not None:
            await self._applier.delete(SECRETS, secret)
        await self._issuer.revoke(other.stamp)
        is_foreign = self.has_foreign_kubeconfig(cluster)
        if is_foreign:
            self._report_foreign_kubeconfig(cluster)
        wanted = secrets_of_object(secrets, token_id, self._settings, cluster, keeps_kubeconfig=is_foreign)
        return wanted, self._renewal(secrets, server)

    def written(self, name: str) -> None:
        """Forget what `settle` has issued: it is written."""
        self._unwritten.pop(name, None)

    async def remove(self, name: str, cluster: HostCluster | None, *, is_last: bool) -> None:
        """Remove the Secret of a cluster, and revoke its kubeconfig.

        :param cluster: None: it does not exist.
        :param is_last: remove the token, too; otherwise its agents connect again when the cluster is joined.
        :raise TowerError: a write failed.
        """
        if cluster is not None:
            await self.revoke(cluster)
        secret = await self._applier.get(SECRETS, service_name(name))
        if secret is None:
            return
        held = ClusterSecrets.of_secret(secret)
        await self._issuer.revoke(held.stamp)
        if is_last or cluster is None or not held.token:
            await self._applier.delete(SECRETS, secret)
        else:
            kept = ClusterSecrets(token=held.token)
            await self._applier.apply(SECRETS, wanted_secret(cluster, kept, self._settings), secret)

    async def revoke(self, cluster: HostCluster) -> None:
        """Revoke the kubeconfig in the object of a cluster, if there is one.

        :raise TowerError: a write failed.
        """
        await self._issuer.revoke(ClusterSecrets.of_cluster(cluster).stamp)

    def has_own_kubeconfig(self, cluster: HostCluster) -> bool:
        """Return whether the object has Tower's kubeconfig."""
        inside = ClusterSecrets.of_cluster(cluster)
        return self._issuer.is_own(inside.stamp, inside.kubeconfig)

    def has_foreign_kubeconfig(self, cluster: HostCluster) -> bool:
        """Return whether the object has a kubeconfig of another program or a user."""
        return bool(cluster.text(KUBECONFIG)) and not self.has_own_kubeconfig(cluster)

    def _report_foreign_kubeconfig(self, cluster: HostCluster) -> None:
        field = "spec.connection.kubeconfig"
        if self._settings.is_compatible:
            reason, text = "KubeconfigReplaced", f"{field} was not Tower's: Tower's has replaced it"
        else:
            reason = "KubeconfigKept"
            text = (
                f"{field} is not Tower's and is kept: all users who may read Cluster objects can use it; "
                f"remove it unless a program needs it.  Tower's is in the Secret {service_name(cluster.name)}"
            )
        self._events.record(cluster, "Warning", reason, text)

    def _renewal(self, secrets: ClusterSecrets, server: str) -> float:
        return self._issuer.renewal(secrets.stamp, secrets.kubeconfig, server)
