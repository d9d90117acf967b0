"""The kubeconfigs and tokens of clusters in the host: in Secrets, or in the clusters' objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
    OTHERS,
    ClusterSecrets,
    kubeconfig_in,
    secrets_of_object,
    wanted_secret,
)
from tower.controller.objects.service_objects import HostSettings, service_name
from tower.errors import TowerError
from tower.kube.rest.host_api import Object
from tower.kube.rest.well_known import SECRETS


class TooManyKubeconfigs(TowerError):
    """Another program writes kubeconfigs to the cluster's object; with the cure."""


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
    _written: dict[str, str] = field(factory=dict, init=False)  # tokens

    async def settle(self, cluster: HostCluster, record: Cluster, service: Object) -> tuple[Object, float]:
        """Bring the Secret of a cluster in line.

        Call `written` when the cluster's object has the fields, too; before, a retry uses the same secrets.

        :return: the wanted fields of the cluster's object, and the time until the kubeconfig must be
            renewed, s.
        :raise TowerError: a write failed, the token is invalid, or other programs have written too many
            kubeconfigs.
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
        others = self._with_foreign(cluster, outside.others)
        kept = max((held, unwritten), key=lambda each: self._renewal(each, server))
        if not self._renewal(kept, server):
            issued = await self._issuer.issue(name, record.uid, server)
            kept = ClusterSecrets(issued.content, issued.stamp)
        secrets = self._unwritten[name] = evolve(kept, token=token, others=others)
        hidden = ClusterSecrets(others=others) if self._settings.is_compatible else secrets
        if hidden != ClusterSecrets():
            await self._applier.apply(SECRETS, wanted_secret(cluster, hidden, self._settings), secret)
        elif secret is not None:
            await self._applier.delete(SECRETS, secret)
        await self._issuer.revoke(other.stamp)
        return secrets_of_object(secrets, token_id, self._settings, cluster), self._renewal(secrets, server)

    def written(self, name: str) -> None:
        """Forget what `settle` has issued: it is written, or not needed."""
        issued = self._unwritten.pop(name, None)
        if issued is not None:
            self._written[name] = issued.token

    def forget(self, name: str) -> None:
        """Forget a removed cluster."""
        self._unwritten.pop(name, None)
        self._written.pop(name, None)

    def lost(self, name: str) -> None:
        """Keep the token of a cluster whose Secret went with its namespace, for the next `settle`."""
        if name in self._written:
            self._unwritten.setdefault(name, ClusterSecrets(token=self._written[name]))

    async def remove(
        self,
        name: str,
        cluster: HostCluster | None = None,
        kept: Callable[[ClusterSecrets], ClusterSecrets] = lambda _: ClusterSecrets(),
    ) -> None:
        """Remove the Secret of a cluster, and revoke its kubeconfig.

        :param cluster: None: it does not exist.
        :param kept: returns what stays in the Secret.
        :raise TowerError: a write failed.
        """
        if cluster is not None:
            await self.revoke(cluster)
        secret = await self._applier.get(SECRETS, service_name(name))
        if secret is None:
            return
        held = ClusterSecrets.of_secret(secret)
        await self._issuer.revoke(held.stamp)
        left = kept(held)
        if cluster is not None and left != ClusterSecrets():
            await self._applier.apply(SECRETS, wanted_secret(cluster, left, self._settings), secret)
        else:
            await self._applier.delete(SECRETS, secret)

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

    async def others(self, name: str) -> Sequence[bytes]:
        """Return the kubeconfigs of other programs that are kept for a cluster, the oldest first.

        :raise APIError: they cannot be read.
        """
        return ClusterSecrets.of_secret(await self._applier.get(SECRETS, service_name(name))).others

    def _with_foreign(self, cluster: HostCluster, others: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Return *others* with the kubeconfig of another program in the object, if there is one.

        :raise TooManyKubeconfigs: there are too many.
        """
        if not self.has_foreign_kubeconfig(cluster):
            return others
        found, reference = kubeconfig_in(cluster), f"{self._settings.namespace}/{service_name(cluster.name)}"
        if found not in others:
            others = (*others, found)
        if len(others) > len(OTHERS):
            raise TooManyKubeconfigs(
                f"spec.connection.kubeconfig is not Tower's, and Secret {reference} already has "
                f"{len(OTHERS)} others: stop the program that writes them, and remove those that are not "
                "needed"
            )
        text = (
            f"spec.connection.kubeconfig was not Tower's: it is in Secret {reference} now, "
            f"key {OTHERS[others.index(found)]}"
        )
        self._events.record(cluster, "Warning", "KubeconfigMoved", text)
        return others

    def _renewal(self, secrets: ClusterSecrets, server: str) -> float:
        return self._issuer.renewal(secrets.stamp, secrets.kubeconfig, server)
