"""The cluster that ``--ssh-user`` and its companions define."""

from __future__ import annotations

import re

from attrs import evolve
from twisted.logger import Logger

from tower.cloud.registry import init_cloud_provider
from tower.clusters import Clusters
from tower.clusters.cluster import Cluster
from tower.clusters.member_credentials import check_access
from tower.clusters.ssh_spec import DefaultCluster
from tower.clusters.ssh_spec_object import OPTIONS, check_spec
from tower.errors import ConfigurationError, Invalid
from tower.kube.kubeconfig import KubeAccess, load_kubeconfig

_FIELD = re.compile(r"spec\.[A-Za-z.]+")

_log = Logger()


def read_access(given: DefaultCluster) -> KubeAccess | None:
    """Check the cluster's options, and return the contents of its kubeconfig, None without one.

    :raise ConfigurationError: an option is not valid; names it, and its file or value.
    """
    spec = given.spec
    try:
        check_spec(spec)
        if spec.cloud_provider:
            # only checks the configuration; `tower.nodes.cloud` makes its own provider
            init_cloud_provider(spec.cloud_provider, spec.cloud_config)
        if given.kubeconfig is None:
            return None
        access = load_kubeconfig(given.kubeconfig)
        check_access(access)
    except Invalid as e:
        raise ConfigurationError(f"cluster {given.name} of --ssh-user: {_by_option(str(e))}") from e
    return access


def _by_option(text: str) -> str:
    """Return *text* with the names of fields replaced by those of options."""

    def name(field: re.Match[str]) -> str:
        option = OPTIONS.get(field[0])
        return field[0] if option is None else f"--{option}"

    return _FIELD.sub(name, text)


async def ensure_default_cluster(
    clusters: Clusters, given: DefaultCluster, access: KubeAccess | None
) -> None:
    """Add the cluster to the store, or update it; fields without an option stay unchanged.

    :raise ConfigurationError: a cluster of that name has an agent, or a new one has no kubeconfig.
    """
    known = clusters.get(given.name)
    if known is None and access is None:
        raise ConfigurationError(
            f"cluster {given.name} does not exist yet: give --member-kubeconfig for its API server; later "
            "starts do not need it"
        )
    if known is None:
        await clusters.add(given.name, ssh=given.spec, access=access)
        _log.info("cluster {name} added (--ssh-user)", name=given.name)
        return
    if known.ssh is None:
        raise ConfigurationError(
            f"cluster {given.name} has an agent: choose another name with --ssh-cluster, or remove it with "
            f"'tower cluster remove {given.name}'"
        )

    def edit(cluster: Cluster) -> Cluster:
        if cluster.ssh is None:
            return cluster
        old = cluster.ssh
        spec = evolve(
            given.spec,
            address_types=old.address_types,
            targets=old.targets,
            allow_system=old.allow_system,
            allowed_identities=old.allowed_identities,
        )
        return evolve(cluster, ssh=spec)

    if access is not None or edit(known) != known:
        await clusters.change(given.name, edit, access=access)
