"""Stores in a fake host cluster."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from tests.kube.rest.fake_host import FakeHost
from tests.store.kubernetes.samples import KUBESPHERE
from tower.clusters.host.host_object import ClusterCodec
from tower.clusters.host.host_statuses import HostStatuses
from tower.kube.rest.host_api import Object
from tower.kube.rest.well_known import CLUSTERS
from tower.store.kubernetes.host_kinds import own_codecs
from tower.store.kubernetes.object_codec import ObjectCodec
from tower.store.kubernetes.store import KubernetesStore

NAMESPACE = "kubesphere-system"


def codecs(statuses: HostStatuses | None = None) -> list[ObjectCodec]:
    """Return the codecs of all kinds."""
    return [ClusterCodec(statuses=statuses or HostStatuses()), *own_codecs()]


def opened(
    host: FakeHost, clock: Clock | None = None, statuses: HostStatuses | None = None
) -> KubernetesStore:
    """Return the store in *host*.

    :param statuses: what it writes with conditions.
    :raise StoreFailed: the host does not answer.
    :raise CancelledError: it does not answer lists.
    """
    loading = Deferred.fromCoroutine(
        KubernetesStore.load(host, NAMESPACE, codecs(statuses), clock or Clock())
    )
    found: list[KubernetesStore | Failure] = []
    loading.addBoth(found.append)
    if not found:
        loading.cancel()
    (store,) = found
    if isinstance(store, Failure):
        store.raiseException()
    return store


def put_cluster(host: FakeHost, name: str = "alpha", **spec: Any) -> Object:
    """Create KubeSphere's cluster in *host*."""
    obj = json.loads(json.dumps(KUBESPHERE))
    obj["metadata"]["name"] = name
    obj["spec"].update(spec)
    return host.put(CLUSTERS, obj)


def plurals(requests: Iterable[tuple[str, str, str]]) -> list[tuple[str, str]]:
    """Return verb and plural of *requests*."""
    return [(verb, plural) for verb, plural, _ in requests]
