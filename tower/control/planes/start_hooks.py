"""Steps of the start before the ports open."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from tower.clusters.policies.default_roles import ensure_default_roles
from tower.clusters.records import Records
from tower.control.admin_kubeconfig import AdminKubeconfig
from tower.control.default_cluster import ensure_default_cluster
from tower.control.front_door.server_chain import StartHooks
from tower.control.planes.runtime import Runtime
from tower.kube.kubeconfig import KubeAccess
from tower.rotation.rotations import Rotations
from tower.server.chained_server import Hook


def start_hooks(
    runtime: Runtime,
    records: Records,
    admin: AdminKubeconfig,
    rotations: Rotations,
    access: KubeAccess | None,
    know_services: Callable[[], Awaitable[None]] | None,
) -> StartHooks:
    """Return the steps.

    :param access: API server and credential of the ``--ssh-user`` cluster.
    :param know_services: fires when the names of the clusters' Services are known, else a port could open
        without them; None: there is no host cluster.
    """
    given = runtime.options.given_cluster

    async def assign_ports() -> None:
        if know_services is None:
            await records.port_assignment.assign_all()

    async def add_given_cluster() -> None:
        if given is not None:
            await ensure_default_cluster(records.clusters, given, access)

    async def wait_for_services() -> None:
        if know_services is not None:
            await know_services()

    return StartHooks(
        tower=(
            Hook("admin-kubeconfig", admin.renew),
            Hook("default-roles", partial(ensure_default_roles, records.rbac)),
        ),
        logins=(Hook("login-sessions", records.login_sessions.sealed.reseal),),
        clusters=(
            Hook("cluster-ports", assign_ports),
            Hook("member-credentials", records.member_credentials.sealed.reseal),
            Hook("rotations", rotations.resume),  # agents and kubeconfigs depend on the keys
            Hook("default-cluster", add_given_cluster),
            Hook("cluster-services", wait_for_services),
        ),
    )
