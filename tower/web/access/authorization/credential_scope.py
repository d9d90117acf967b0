"""The scope of the credentials that Tower issued: one cluster, or Tower's own API."""

from __future__ import annotations

from tower.clusters.credentials import ADMINS, Credential
from tower.errors import Forbidden
from tower.web.access.authentication.identity import Identity


def authorize_cluster(identity: Identity, name: str, uid: str) -> None:
    """Check that *identity* may use the cluster *name*, which now has this *uid*.

    :raise Forbidden: its credential is for another cluster, or for Tower's own API.
    """
    credential = _credential(identity, f"cluster {name}")
    if credential.cluster_uid != uid or credential.cluster != name or not uid:
        scope = f"cluster {credential.cluster}" if credential.cluster else "Tower's own API"
        if credential.cluster == name:
            scope = f"an earlier cluster {name}"
        raise Forbidden(
            f"the credential of {identity.user} is for {scope} and is not valid for cluster {name}: "
            f"request a kubeconfig for cluster {name}",
            "other-cluster",
        )


def authorize_api(identity: Identity) -> None:
    """Check that *identity* may use Tower's own API.

    :raise Forbidden: its credential is for a cluster, or it is not an administrator's.
    """
    credential = _credential(identity, "Tower's own API")
    if credential.cluster or credential.cluster_uid:
        raise Forbidden(
            f"the credential of {identity.user} is for cluster {credential.cluster} "
            "and is not valid for Tower's own API: use an administrator's kubeconfig",
            "other-cluster",
        )
    if ADMINS not in identity.groups:
        raise Forbidden(
            f"{identity.user} is not in the group {ADMINS}, which Tower's own API requires: "
            "use an administrator's kubeconfig",
            "not-administrator",
        )


def check_own_scope(identity: Identity) -> None:
    """Check that the credential of *identity*, if Tower or its login session issued it, is for no cluster.

    :raise Forbidden: it is for one.
    """
    if identity.credential is not None and identity.credential.cluster:
        authorize_api(identity)
    check_token_scope(identity, "")


def check_token_scope(identity: Identity, cluster: str) -> None:
    """Check that the token of a login session may be used for a cluster; empty: for Tower's own API.

    :raise Forbidden: it is for another cluster.
    """
    if identity.scope not in ("", cluster):
        what = f"cluster {cluster}" if cluster else "Tower's own API"
        raise Forbidden(
            f"the token of {identity.user} is for cluster {identity.scope} and is not valid for {what}: use "
            "another context ('tower login' writes one for each cluster)",
            "other-cluster",
        )


def _credential(identity: Identity, scope: str) -> Credential:
    if identity.credential is None:
        raise Forbidden(
            f"{identity.user} has no credential of Tower's for {scope}: request a kubeconfig", "other-cluster"
        )
    return identity.credential
