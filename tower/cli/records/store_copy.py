"""`tower store copy`: all records of a proxy, from its state directory to a host cluster or back."""

from __future__ import annotations

import argparse
from base64 import b64encode

from twisted.internet.defer import Deferred

from tower.cli.client import CommandFailed, UsageFailed
from tower.cli.records.arguments import SQLITE
from tower.cli.records.host_session import reactor, with_host
from tower.clusters.host.host_object import ClusterCodec
from tower.control.state_files import DATABASE
from tower.controller.leader.lease_record import LeaseRecord
from tower.controller.leader.state_secret import STATE_OBJECT, StateSecret
from tower.kube.client import APIError
from tower.kube.rest.host_api import HostAPI
from tower.kube.rest.well_known import LEASES, SECRETS
from tower.rotation.host_key import FILE as HOST_KEY
from tower.store import IStore
from tower.store.copying import copy_records
from tower.store.kubernetes.host_kinds import own_codecs
from tower.store.kubernetes.store import KubernetesStore
from tower.store.sqlite import SQLiteStore
from tower.trust.statedir import StateDir

#: Time to load the records of the host cluster, s.
PATIENCE = 60.0

#: The proxies' Lease.
_LEASE = "tower"

_NOT_FOUND = 404


def copy(options: argparse.Namespace) -> str:
    """Copy all records; return a line about it."""
    if options.store_from == options.store_to:
        raise UsageFailed(f"--from and --to are both {options.store_to}: choose two stores")
    if not options.state_dir:
        raise UsageFailed("--state-dir is missing: set it to the proxy's state directory on this machine")
    state = StateDir(options.state_dir)
    state.lock()
    try:
        count = with_host(options, lambda api: _copied(api, state, options))
    finally:
        state.close()
    directory = "an empty --state-dir: the keys are in the host cluster"
    if options.store_to == SQLITE:
        directory = f"--state-dir {options.state_dir}"
    return f"copied {count} records: start tower-proxy with --store {options.store_to} and {directory}"


async def _copied(api: HostAPI, state: StateDir, options: argparse.Namespace) -> int:
    """Return the number of copied records."""
    await check_no_leader(api, options.namespace)
    disk = SQLiteStore(reactor, state.path / DATABASE)
    host = KubernetesStore(api, options.namespace, [ClusterCodec(), *own_codecs()], reactor)
    try:
        await _started(host)
        is_to_host = options.store_from == SQLITE
        secret = StateSecret(api, options.namespace, state, "tower store copy")
        has_secret = await has_same_keys(api, options.namespace, state)
        count = await copy_records(disk, host) if is_to_host else await copy_records(host, disk)
        if is_to_host and not has_secret:
            await secret.save_changed()
        elif not is_to_host and has_secret and state.read(HOST_KEY) is None:
            await secret.take_over()
        return count
    except APIError as e:
        raise CommandFailed(f"the host cluster: {e}") from e
    finally:
        await _stopped(disk, host)


async def has_same_keys(api: HostAPI, namespace: str, state: StateDir) -> bool:
    """Return whether the host cluster has the proxy's keys.

    :raise CommandFailed: they are not those of the state directory.
    """
    try:
        secret = await api.get(SECRETS, STATE_OBJECT, namespace)
    except APIError as e:
        if e.code == _NOT_FOUND:
            return False
        raise
    key = state.read(HOST_KEY)
    if key is not None and b64encode(key).decode("ascii") != (secret.get("data") or {}).get(HOST_KEY):
        raise CommandFailed(
            f"Secret {namespace}/{STATE_OBJECT} has other keys than {state.path}: use the state directory of "
            "that proxy, or an empty one to copy from the host cluster"
        )
    return True


async def check_no_leader(api: HostAPI, namespace: str) -> None:
    """Check that no proxy writes to the host cluster.

    :raise CommandFailed: one holds the Lease, or this cannot be read.
    """
    try:
        holder = LeaseRecord.of(await api.get(LEASES, _LEASE, namespace)).holder
    except APIError as e:
        if e.code == _NOT_FOUND:
            return
        raise CommandFailed(f"the host cluster: {e}") from e
    if holder:
        raise CommandFailed(
            f"proxy {holder} holds the Lease {_LEASE} in namespace {namespace}: stop all proxies; if none "
            f"runs, delete the Lease: kubectl -n {namespace} delete lease {_LEASE}"
        )


async def _started(host: KubernetesStore) -> None:
    starting = Deferred.fromCoroutine(host.start())

    def timed_out(_result: object, _timeout: float) -> None:
        raise CommandFailed(f"the host cluster: {'; '.join(host.failures) or 'it does not answer'}")

    starting.addTimeout(PATIENCE, reactor, timed_out)
    await starting


async def _stopped(*stores: IStore) -> None:
    for store in stores:
        await store.stop()
