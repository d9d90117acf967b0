"""Reconciliation of one cluster: its port, Service, certificate names, kubeconfig, token and conditions.

Each step compares first, so that a cluster whose objects are right is not written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import evolve, frozen

from tower.clusters.cluster import Cluster, Condition, check_name
from tower.clusters.condition_types import AGENT_AVAILABLE, AVAILABLE
from tower.clusters.records import Records
from tower.controller.agent_token import settle_token
from tower.controller.applier import Applier
from tower.controller.cluster_object import ClusterObject
from tower.controller.host_events import HostEvents
from tower.controller.kubeconfig_issuer import KubeconfigIssuer
from tower.controller.objects.endpoints import ENDPOINTS, endpoints, server_url, with_endpoints
from tower.controller.objects.host_cluster import (
    ADDRESS_ANNOTATION,
    FINALIZER,
    PROXY,
    SECRET_ANNOTATION,
    STAMP_ANNOTATION,
    TOKEN_ANNOTATION,
    HostCluster,
)
from tower.controller.objects.host_conditions import (
    EXTERNAL_ACCESS_READY,
    INITIALIZED,
    exported,
    initialized,
    is_current,
    not_exported,
    not_initialized,
    not_joined,
)
from tower.controller.objects.secret_objects import (
    KUBECONFIG,
    ClusterSecrets,
    secrets_of_object,
    wanted_secret,
)
from tower.controller.objects.service_objects import (
    SERVICE_NAMES,
    HostSettings,
    InvalidAnnotation,
    balancer_annotations,
    balancer_names,
    certificate_names,
    service_name,
    wanted_service,
    wanted_slices,
)
from tower.errors import Conflict, Invalid, NotFound, TowerError
from tower.kube.client import APIError
from tower.kube.rest.host_api import HostAPI, Object
from tower.kube.rest.well_known import ENDPOINT_SLICES, SECRETS, SERVICES
from tower.store.records import RecordChanged


@frozen
class HostObjects:
    """The objects of one cluster, as the controller knows them.

    :ivar cluster: None: it does not exist.
    """

    cluster: HostCluster | None
    service: Object | None
    slices: Sequence[Object] = ()


_INVALID = 422


class RecordPending(Conflict):
    """The cluster's record does not exist yet."""


class NoPort(TowerError):
    """The cluster cannot get a port; with the cure."""


class InvalidName(Invalid):
    """The object has a name that no cluster of Tower can have; with the allowed form."""


class Reconciler:
    """Brings the objects of clusters in line.

    :param issuer: of the kubeconfigs.
    :param uses_tokens: whether ``kubesphere-v1`` agents are allowed.
    :param set_names: called with a cluster and all names of its Service, before users get to know them.
    :param epoch: returns the time, s since the epoch.
    """

    def __init__(
        self,
        api: HostAPI,
        records: Records,
        issuer: KubeconfigIssuer,
        settings: HostSettings,
        events: HostEvents,
        set_names: Callable[[str, Sequence[str]], None],
        epoch: Callable[[], float],
        *,
        uses_tokens: bool,
    ) -> None:
        self._records = records
        self._issuer = issuer
        self._settings = settings
        self._events = events
        self._set_names = set_names
        self._uses_tokens = uses_tokens
        self._unwritten: dict[str, ClusterSecrets] = {}  # issued in an attempt that failed afterwards
        self._applier = Applier(api, settings.namespace)
        self._objects = ClusterObject(api, epoch)

    async def reconcile(self, name: str, objects: HostObjects) -> float | None:
        """Bring everything in line; return the time until the next work, s, or None.

        :raise TowerError: a write failed; to be called again.
        """
        cluster = objects.cluster
        if cluster is not None and cluster.is_served:
            return await self._serve(cluster, objects)
        self._set_names(name, ())
        self._unwritten.pop(name, None)
        if cluster is None:
            if self._records.clusters.get(name) is None:
                await self._remove(objects, is_last=True)
            return None  # or the object is new, and not known yet
        await self._withdraw(cluster, objects)
        return None

    async def failed(self, cluster: HostCluster, reason: str, text: str, *, is_lasting: bool) -> None:
        """Report a failure in the condition of a cluster.

        :param is_lasting: also if it was served before.
        :raise TowerError: the condition cannot be written.
        """
        record = self._records.clusters.get(cluster.name)
        condition = not_initialized(reason, text)
        if record is None:
            if cluster.type != PROXY or not is_lasting:
                return
            await self._objects.set_conditions(cluster, [condition, evolve(condition, type=AVAILABLE)])
        elif is_lasting or not _is_true(record, INITIALIZED):
            await self._set_conditions(record, [condition])

    # Clusters that should be served

    async def _serve(self, cluster: HostCluster, objects: HostObjects) -> float | None:
        name = cluster.name
        if self._records.clusters.get(name) is None:
            _check_name(name)
            raise RecordPending(f"cluster {name} has no record yet")
        record = await self._settle_port(cluster)
        port = record.kubernetes_port
        if port is None:
            raise NoPort("clusters of this proxy have no ports (--cluster-ports none): set a range")
        service = await self._apply_service(cluster, port, objects.service)
        await self._apply_slices(cluster, port, objects.slices)
        self._set_names(name, (*certificate_names(service), *SERVICE_NAMES))
        access, delay = await self._access(cluster, record, service)
        # KubeSphere's webhook denies each write to the object until the agent, which needs its token, answers
        # through the kubeconfig in it: so the first write has the kubeconfig.
        cluster = await self._objects.apply(cluster, with_endpoints(name, access, service, port))
        self._unwritten.pop(name, None)
        await self._settle_finalizer(cluster)
        was_ready = _is_true(record, INITIALIZED)
        had_access = _is_true(record, EXTERNAL_ACCESS_READY)
        external = self._external(cluster, service)
        await self._set_conditions(
            record,
            [initialized(), *([external] if external else [])],
            () if external else (EXTERNAL_ACCESS_READY,),
        )
        if not was_ready:
            self._events.record(
                cluster, "Normal", INITIALIZED, f"Service {service_name(name)} has port {port}"
            )
        if external is not None and external.status == "True" and not had_access:
            text = f"The API server is served at {balancer_names(service)[0]}"
            self._events.record(cluster, "Normal", EXTERNAL_ACCESS_READY, text)
        return delay

    async def _settle_finalizer(self, cluster: HostCluster) -> None:
        """Add Tower's finalizer to the object.

        For KubeSphere, remove it: KubeSphere Tower, which may come back, does not know it, and a webhook
        would deny its removal once the cluster is not served.  Without it, objects of a cluster go after it.
        """
        others = tuple(each for each in cluster.finalizers if each != FINALIZER)
        if self._settings.is_compatible:
            if others != cluster.finalizers:
                await self._objects.set_finalizers(cluster, others)
        elif others == cluster.finalizers and not cluster.is_deleted:
            await self._objects.set_finalizers(cluster, (*others, FINALIZER))

    async def _settle_port(self, cluster: HostCluster) -> Cluster:
        clusters = self._records.clusters
        before = clusters.require(cluster.name)
        try:
            record: Cluster = await clusters.settle_port(cluster.name)
        except RecordChanged:
            raise
        except Conflict as e:
            raise NoPort(str(e)) from e
        if before.kubernetes_port is not None and record.kubernetes_port != before.kubernetes_port:
            text = f"Replaced by port {record.kubernetes_port}: {clusters.port_problem(before)}"
            self._events.record(cluster, "Warning", "PortReplaced", text)
        return record

    async def _apply_service(self, cluster: HostCluster, port: int, current: Object | None) -> Object:
        wanted = wanted_service(cluster, port, self._settings, current)
        if current is None and cluster.last_address:
            spec = {**wanted["spec"], "clusterIP": cluster.last_address}
            try:
                return await self._applier.apply(SERVICES, {**wanted, "spec": spec}, None)
            except APIError as e:
                if e.code != _INVALID:
                    raise  # else another Service has the address now, or the range was changed
        return await self._applier.apply(SERVICES, wanted, current)

    async def _apply_slices(self, cluster: HostCluster, port: int, known: Sequence[Object]) -> None:
        current = {each["metadata"]["name"]: each for each in known}
        if self._settings.selector is None and not self._settings.addresses:
            text = (
                f"Service {service_name(cluster.name)} has no endpoint: the proxy has no IP address for the "
                "host cluster: set --publish-service-address to one that is not a loopback address"
            )
            self._events.record(cluster, "Warning", "NoEndpoint", text)
        for wanted in wanted_slices(cluster, port, self._settings):
            await self._applier.apply(ENDPOINT_SLICES, wanted, current.pop(wanted["metadata"]["name"], None))
        for each in current.values():
            await self._applier.delete(ENDPOINT_SLICES, each)

    async def _access(self, cluster: HostCluster, record: Cluster, service: Object) -> tuple[Object, float]:
        """Return the wanted fields of the cluster's object about kubeconfig and token.

        :return: with the time until the kubeconfig must be renewed, s.
        """
        name, server = cluster.name, server_url(service)
        secret = await self._applier.get(SECRETS, service_name(name))
        inside, outside = ClusterSecrets.of_cluster(cluster), ClusterSecrets.of_secret(secret)
        held, other = (inside, outside) if self._settings.is_compatible else (outside, inside)
        unwritten = self._unwritten.get(name, ClusterSecrets())
        known_id = cluster.annotations.get(TOKEN_ANNOTATION, "")
        given = inside.token or outside.token or unwritten.token
        token, token_id = given, known_id
        if self._uses_tokens:
            stored = f"token of Secret {self._settings.namespace}/{service_name(name)}"
            source = "spec.connection.token" if inside.token else stored
            settled = await settle_token(self._records.v1_tokens, name, given, known_id, source)
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
        is_foreign = self._has_foreign_kubeconfig(cluster)
        if is_foreign:
            self._report_foreign_kubeconfig(cluster)
        wanted = secrets_of_object(secrets, token_id, self._settings, cluster, keeps_kubeconfig=is_foreign)
        return wanted, self._renewal(secrets, server)

    def _has_foreign_kubeconfig(self, cluster: HostCluster) -> bool:
        """Return whether the object has a kubeconfig of another program or a user."""
        return bool(cluster.text(KUBECONFIG)) and not self._issuer.is_own(*_stamped(cluster))

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

    def _external(self, cluster: HostCluster, service: Object) -> Condition | None:
        """Return the condition of the load balancer; None: there is none."""
        if not cluster.is_exported:
            return None
        try:
            balancer_annotations(cluster)
        except InvalidAnnotation as e:
            return not_exported("InvalidAnnotation", str(e))
        if not balancer_names(service):
            metadata = service["metadata"]
            text = f"Service {metadata['namespace']}/{metadata['name']} has no load balancer address yet"
            return not_exported("LoadBalancerPending", text)
        return exported()

    # Clusters that should not be served, or are removed

    async def _withdraw(self, cluster: HostCluster, objects: HostObjects) -> None:
        record = self._records.clusters.get(cluster.name)
        if objects.service is not None or objects.slices or FINALIZER in cluster.finalizers:
            if cluster.type != PROXY and not cluster.is_deleted:
                cluster = await self._leave(cluster, record, objects.service)
            await self._remove(objects, is_last=cluster.is_deleted or cluster.type != PROXY)
            if cluster.is_deleted and record is not None:
                await self._records.clusters.release_port(record.uid)
            if not cluster.is_deleted and cluster.type == PROXY:
                cluster = await self._objects.apply(cluster, self._withdrawn(cluster))
                self._events.record(cluster, "Normal", "Withdrawn", "The Service was removed")
            left = tuple(each for each in cluster.finalizers if each != FINALIZER)
            if left != cluster.finalizers:
                await self._objects.set_finalizers(cluster, left)
        if record is None or cluster.is_deleted:
            return
        if cluster.type == PROXY:
            reason = not_joined(cluster)
            if record.condition(INITIALIZED) is None:
                self._events.record(cluster, "Normal", reason.reason, reason.message)
            await self._set_conditions(record, [reason], (EXTERNAL_ACCESS_READY,))

    async def _leave(
        self, cluster: HostCluster, record: Cluster | None, service: Object | None
    ) -> HostCluster:
        """Remove what Tower wrote to the object of a cluster that has got another type."""
        text = f"spec.connection.type is {cluster.type or 'empty'}, no longer {PROXY}: the Service is removed"
        self._events.record(cluster, "Normal", "Withdrawn", text)
        if record is not None:  # of type ssh
            await self._set_conditions(record, (), (INITIALIZED, EXTERNAL_ACCESS_READY, AGENT_AVAILABLE))
        else:
            await self._objects.set_conditions(cluster, ())
        connection = {} if service is None else endpoints(service)
        removed = {key: None for key, value in connection.items() if value and cluster.text(key) == value}
        if self._issuer.is_own(*_stamped(cluster)):
            removed[KUBECONFIG] = None
        annotations = dict.fromkeys(
            (TOKEN_ANNOTATION, SECRET_ANNOTATION, STAMP_ANNOTATION, ADDRESS_ANNOTATION)
        )
        wanted = {"metadata": {"annotations": annotations}, "spec": {"connection": removed}}
        await self._issuer.revoke(ClusterSecrets.of_cluster(cluster).stamp)
        return await self._objects.apply(cluster, wanted)

    def _withdrawn(self, cluster: HostCluster) -> Object:
        """Return the wanted fields of the object of a cluster that is not served."""
        fields = list(ENDPOINTS)
        if not self._has_foreign_kubeconfig(cluster):
            fields.append(KUBECONFIG)
        return {"spec": {"connection": dict.fromkeys(fields)}}

    async def _remove(self, objects: HostObjects, *, is_last: bool) -> None:
        """Remove the objects of a cluster, and revoke its kubeconfig.

        :param is_last: remove the token, too; otherwise its agents connect again when the cluster is joined.
        """
        cluster, service = objects.cluster, objects.service
        name = None if service is None else service["metadata"]["name"]
        if cluster is not None:
            name = service_name(cluster.name)
            await self._issuer.revoke(ClusterSecrets.of_cluster(cluster).stamp)
        if name is not None:
            await self._remove_secret(name, cluster, is_last=is_last)
        for each in objects.slices:
            await self._applier.delete(ENDPOINT_SLICES, each)
        if service is not None:
            await self._applier.delete(SERVICES, service)

    async def _remove_secret(self, name: str, cluster: HostCluster | None, *, is_last: bool) -> None:
        secret = await self._applier.get(SECRETS, name)
        if secret is None:
            return
        held = ClusterSecrets.of_secret(secret)
        await self._issuer.revoke(held.stamp)
        if is_last or cluster is None or not held.token:
            await self._applier.delete(SECRETS, secret)
        else:
            kept = ClusterSecrets(token=held.token)
            await self._applier.apply(SECRETS, wanted_secret(cluster, kept, self._settings), secret)

    async def _set_conditions(
        self, record: Cluster, wanted: Sequence[Condition], removed: Sequence[str] = ()
    ) -> None:
        record = self._records.clusters.get(record.name) or record
        changed = [each for each in wanted if not is_current(record, each)]
        gone = [kind for kind in removed if record.condition(kind) is not None]
        if changed or gone:
            try:
                await self._records.clusters.set_conditions(record.name, changed, gone)
            except NotFound:
                return  # it was removed meanwhile


def _stamped(cluster: HostCluster) -> tuple[str, bytes]:
    """Return the stamp and the contents of the kubeconfig in the cluster's object."""
    inside = ClusterSecrets.of_cluster(cluster)
    return inside.stamp, inside.kubeconfig


def _check_name(name: str) -> None:
    try:
        check_name(name)
    except Invalid as e:
        raise InvalidName(f"{e}: create the object with another name") from e


def _is_true(record: Cluster, kind: str) -> bool:
    condition = record.condition(kind)
    return condition is not None and condition.status == "True"
