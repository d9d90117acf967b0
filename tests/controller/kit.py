"""A host cluster in memory, with the records of a proxy that keeps them there.

`HostKit` copies between the host's Cluster objects and the records as `tower.store.kubernetes` does, but at
once, and gives Services what Kubernetes gives them.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from tests.fakes.certificates import authority
from tests.kube.rest.fake_host import FakeHost
from tower.clusters.cluster import Cluster, Condition, decode, encode
from tower.clusters.host.host_object import is_enabled
from tower.clusters.host.host_statuses import HostStatuses
from tower.clusters.records import Records
from tower.controller.kubeconfig_issuer import KubeconfigIssuer
from tower.kube.rest.host_api import Object, ResourceType, WatchEvent
from tower.kube.rest.well_known import CLUSTERS, SECRETS, SERVICES
from tower.kube.timestamps import timestamp
from tower.store import MemoryStore
from tower.store.kinds import CLUSTERS as CLUSTER_RECORDS
from tower.store.records import Create, Delete, Event, Operation, Update
from tower.trust.vault import Vault

NOW = 1_790_000_000.0
NAMESPACE = "kubesphere-system"
MONTH = 30 * 86400.0

#: Lifetime of credentials, s.
DAY = 86400.0


class HostKit:
    """The host, the records, and the issuer of kubeconfigs.

    :param folder: for the key of the vault.
    :param clock: None: a new one.
    :param store: of another kit; None: a new one.
    :param host: likewise.
    :ivar statuses: of the clusters' objects.
    :ivar ignored: names of clusters that get no records.
    :ivar names: what the certificate of each cluster's port has.
    """

    def __init__(
        self,
        folder: str,
        ports: range | None = range(6000, 6010),
        clock: Clock | None = None,
        store: MemoryStore | None = None,
        host: FakeHost | None = None,
    ) -> None:
        self.clock = Clock() if clock is None else clock
        if clock is None:
            self.clock.advance(NOW)
        now = self.clock.seconds()
        self.host = host or FakeHost(self.clock)
        self.host.admission.append(self._admit)
        self.store = store or MemoryStore()
        timer: Any = self.clock
        vault = Vault(Path(folder), timer.seconds)
        self.records = Records.of(self.store, vault, ports, timer, DAY, MONTH)
        self.clusters = self.records.clusters
        self.users, self.serving = authority("users", now=now), authority("serving", now=now)
        self.issuer = KubeconfigIssuer(self.records.credentials, self.users, self.serving, timer.seconds)
        self.statuses = HostStatuses()
        self.names: dict[str, tuple[str, ...]] = {}
        self.ignored: set[str] = set()
        self._addresses = 0
        self._is_copying = False
        watching = self.host.watch(CLUSTERS, None, "0", self._object_changed)
        self._watching = Deferred.fromCoroutine(watching)
        self._watch = self.store.watch(CLUSTER_RECORDS, self._record_changed)

    def stop(self) -> None:
        """Let go of everything."""
        self._watch.stop()
        self._watching.addErrback(lambda _: None)
        self._watching.cancel()
        self.records.stop()

    def set_names(self, cluster: str, names: Sequence[str]) -> None:
        """Set the names of a cluster's certificate."""
        self.names[cluster] = tuple(names)

    # Users and other programs

    def apply(self, name: str = "alpha", /, annotations: Object | None = None, **spec: Any) -> Object:
        """Create or replace a cluster, as a user does."""
        before = self.host.object(CLUSTERS, name) or {}
        connection = {"type": "proxy", **spec.pop("connection", {})}
        known = before.get("spec", {}).get("connection", {})
        return self.host.put(
            CLUSTERS,
            {
                **before,
                "metadata": {
                    **before.get("metadata", {}),
                    "name": name,
                    "annotations": {
                        **before.get("metadata", {}).get("annotations", {}),
                        **(annotations or {}),
                    },
                },
                "spec": {"joinFederation": True, **spec, "connection": {**known, **connection}},
            },
        )

    def set_ingress(self, name: str, *ingress: Object) -> None:
        """Give the Service of a cluster a load balancer, as a cloud does."""
        service = self.service(name)
        self.host.put(SERVICES, {**service, "status": {"loadBalancer": {"ingress": list(ingress)}}})

    # Views

    def cluster(self, name: str = "alpha") -> Object:
        """Return a Cluster object."""
        return self._required(CLUSTERS, name)

    def connection(self, name: str = "alpha") -> Object:
        """Return the connection of a Cluster object."""
        connection: Object = self.cluster(name)["spec"]["connection"]
        return connection

    def service(self, name: str = "alpha") -> Object:
        """Return the Service of a cluster."""
        return self._required(SERVICES, f"mc-{name}")

    def secret(self, name: str = "alpha") -> Object:
        """Return the Secret of a cluster."""
        return self._required(SECRETS, f"mc-{name}")

    def condition(self, kind: str, name: str = "alpha") -> Condition | None:
        """Return a condition of a cluster."""
        return self.clusters.require(name).condition(kind)

    def _required(self, resource: ResourceType, name: str) -> Object:
        found = self.host.object(resource, name, NAMESPACE if resource.namespaced else None)
        assert found is not None, name
        return found

    # Kubernetes

    def _admit(self, verb: str, resource: ResourceType, obj: Object) -> None:
        if resource is SERVICES and "clusterIP" not in obj["spec"]:
            self._addresses += 1
            obj["spec"]["clusterIP"] = f"10.96.0.{self._addresses}"
        if resource is SERVICES and obj["spec"].get("type") != "LoadBalancer":
            obj.pop("status", None)

    # The store

    def _object_changed(self, event: WatchEvent) -> None:
        if event.type == "BOOKMARK" or self._is_copying:
            return
        obj = event.object
        name, known = obj["metadata"]["name"], self.store.get(CLUSTER_RECORDS, obj["metadata"]["name"])
        value = None if event.type == "DELETED" else self._value(obj)
        if value is None and known is None:
            return
        change: Operation
        if value is None:
            change = Delete(CLUSTER_RECORDS, name)
        else:
            change = (
                Create(CLUSTER_RECORDS, name, value)
                if known is None
                else Update(CLUSTER_RECORDS, name, value)
            )
        self._is_copying = True
        self.store.transact([change])
        self._is_copying = False

    def _value(self, obj: Object) -> Any:
        metadata, spec = obj["metadata"], obj["spec"]
        if spec["connection"]["type"] != "proxy" or metadata["name"] in self.ignored:
            return None
        known = self.clusters.get(metadata["name"])
        if known is None or known.uid != metadata["uid"]:
            known = Cluster(metadata["name"], metadata["uid"], 0, self.clock.seconds())
        port = spec["connection"].get("kubernetesAPIServerPort")
        return encode(evolve(known, enabled=is_enabled(obj), kubernetes_port=port))

    def _record_changed(self, event: Event) -> None:
        if self._is_copying or event.type == "DELETED":
            return
        cluster = decode(event.record)
        obj = self.cluster(cluster.name)
        after = copy.deepcopy(obj)
        if cluster.kubernetes_port is not None:
            after["spec"]["connection"]["kubernetesAPIServerPort"] = cluster.kubernetes_port
        after["status"] = {
            **obj.get("status", {}),
            "conditions": [
                {
                    "type": each.type,
                    "status": each.status,
                    "reason": each.reason,
                    "message": each.message,
                    "lastTransitionTime": timestamp(each.last_transition),
                }
                for each in cluster.conditions
            ],
        }
        after = self.statuses.added(cluster.name, obj, after)
        if CLUSTERS in self.host.without_status:
            after["status"].pop("observedGeneration", None)
        if json.dumps(after) != json.dumps(obj):
            self._is_copying = True
            self.host.put(CLUSTERS, after)
            self._is_copying = False
