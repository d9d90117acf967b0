"""The Secret with a cluster's kubeconfig and token, and the same in the cluster's object.

By default the object only refers to the Secret, because all users who may list clusters can read it.  For
KubeSphere's console both are in the object.  Kubeconfigs that other programs wrote to the object are in the
Secret in any case.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import Any

from attrs import frozen

from tower.controller.objects.host_cluster import (
    SECRET_ANNOTATION,
    STAMP_ANNOTATION,
    TOKEN_ANNOTATION,
    HostCluster,
)
from tower.controller.objects.service_objects import CLUSTER_LABEL, HostSettings, service_name
from tower.kube.rest.host_api import Object

#: Keys of the Secret.
KUBECONFIG = "kubeconfig"
TOKEN = "token"  # noqa: S105 - a name

#: Keys of kubeconfigs of other programs, the oldest first.
OTHERS = tuple(f"other-kubeconfig-{number}" for number in range(1, 9))

#: Earlier name of the token in the object.
EARLIER_TOKEN = "proxyToken"  # noqa: S105 - a name

#: Annotation in which ``kubectl apply`` keeps the applied object.
APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@frozen
class ClusterSecrets:
    """A cluster's kubeconfig with its stamp, and its token; empty: there is none.

    :ivar others: kubeconfigs of other programs, the oldest first.
    """

    kubeconfig: bytes = b""
    stamp: str = ""
    token: str = ""
    others: tuple[bytes, ...] = ()

    @classmethod
    def of_secret(cls, secret: Mapping[str, Any] | None) -> ClusterSecrets:
        """Return what is in a Secret."""
        if secret is None:
            return cls()
        data = secret.get("data") or {}
        annotations = secret["metadata"].get("annotations") or {}
        token = _decoded(data.get(TOKEN)).decode("utf-8", "replace")
        others = tuple(_decoded(data[key]) for key in OTHERS if key in data)
        return cls(_decoded(data.get(KUBECONFIG)), annotations.get(STAMP_ANNOTATION, ""), token, others)

    @classmethod
    def of_cluster(cls, cluster: HostCluster) -> ClusterSecrets:
        """Return what is in the cluster's object."""
        stamp = cluster.annotations.get(STAMP_ANNOTATION, "")
        token = cluster.text(TOKEN) or cluster.text(EARLIER_TOKEN)
        return cls(kubeconfig_in(cluster), stamp, token)


def kubeconfig_in(cluster: HostCluster) -> bytes:
    """Return the kubeconfig in the cluster's object; empty without one."""
    text = cluster.text(KUBECONFIG)
    return _decoded(text) or text.encode()


def encoded(data: bytes) -> str | None:
    """Return the text for *data* in an object; None if it is empty."""
    return base64.b64encode(data).decode("ascii") if data else None


def wanted_secret(cluster: HostCluster, secrets: ClusterSecrets, settings: HostSettings) -> Object:
    """Return the Secret with *secrets*; keys without a value are None."""
    name = service_name(cluster.name)
    others = zip_longest(OTHERS, secrets.others, fillvalue=b"")
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {
            "name": name,
            "namespace": settings.namespace,
            "labels": {"app": name, "app.kubernetes.io/name": name, CLUSTER_LABEL: cluster.name},
            "annotations": {STAMP_ANNOTATION: secrets.stamp or None},
            "ownerReferences": [cluster.owner],
        },
        "data": {
            KUBECONFIG: encoded(secrets.kubeconfig),
            TOKEN: encoded(secrets.token.encode()),
            **{key: encoded(other) for key, other in others},
        },
    }


def secrets_of_object(
    secrets: ClusterSecrets, token_id: str, settings: HostSettings, cluster: HostCluster
) -> Object:
    """Return the fields of the cluster's object about *secrets*; None: a field must go.

    :param token_id: empty: there is no token.
    """
    reference = f"{settings.namespace}/{service_name(cluster.name)}"
    is_inside = settings.is_compatible
    connection: Object = {
        TOKEN: (secrets.token or None) if is_inside else None,
        EARLIER_TOKEN: None,
        KUBECONFIG: encoded(secrets.kubeconfig) if is_inside else None,
    }
    return {
        "metadata": {
            "annotations": {
                TOKEN_ANNOTATION: token_id or None,
                SECRET_ANNOTATION: None if is_inside else reference,
                STAMP_ANNOTATION: (secrets.stamp or None) if is_inside else None,
            }
        },
        "spec": {"connection": connection},
    }


def without_secrets(applied: str, secrets: Iterable[str]) -> str | None:
    """Return the text of the annotation `APPLIED` without the fields *secrets*; None if it has none."""
    try:
        value = json.loads(applied)
        connection = value["spec"]["connection"]
        found = [key for key in secrets if connection.pop(key, None) is not None]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return json.dumps(value, separators=(",", ":")) + "\n" if found else None


def _decoded(text: object) -> bytes:
    try:
        return base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except binascii.Error:
        return b""
