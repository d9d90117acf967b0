"""``tower doctor`` of a host cluster: API server, CRDs, namespace, rights, Lease, Secret."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from attrs import frozen

from tower.control.state_files import SHARED_FILES
from tower.controller.leader.lease_record import LeaseRecord
from tower.controller.leader.state_secret import STATE_OBJECT
from tower.doctor.findings import Course, Finding, Step, Verdict, examine, fail, judged, ok, warn
from tower.doctor.host_rights import HostRight, needed_rights
from tower.kube.client import APIError
from tower.kube.crds.manifests import INSTALL, crds
from tower.kube.rest.failures import describe
from tower.kube.rest.host_api import HostAPI, Object, ResourceType
from tower.kube.rest.well_known import LEASES, NAMESPACES, SECRETS
from tower.reactor.coroutines import deferred
from tower.rotation.host_key import FILE as HOST_KEY
from tower.store.kubernetes.transaction_log import all_done

#: Name of the proxies' Lease.
_LEASE = "tower"

_SELF = ResourceType(
    "authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False
)

#: Most rights that a line lists.
_LISTED = 4

_FORBIDDEN, _NOT_FOUND = 403, 404

_RIGHTS = "tower rbac host | kubectl apply -f -"

_START = "start tower-proxy; if it runs, see its log"


class DiscoveringHost(HostAPI, Protocol):
    """A client of the host cluster that knows its types."""

    async def plurals(self, group: str, version: str) -> set[str]:
        """Return the plural names of a group's types; empty without the group.

        :raise APIError: the API server does not answer, or rejects the request.
        """
        ...


async def examine_host(
    api: DiscoveringHost, address: str, namespace: str, environ: Mapping[str, str], now: Callable[[], float]
) -> list[Finding]:
    """Return the findings about the host cluster of a proxy.

    :param address: of its API server.
    :param namespace: of the records.
    :param environ: has ``POD_NAME`` in a pod of the proxy.
    :param now: returns s since the epoch.
    """
    host = _Host(api, address, namespace, "POD_NAME" in environ, now)
    state = Course([Step("leader", host.leader), Step("keys of the proxy", host.keys)])
    rights = Course([Step("rights in the host cluster", host.rights)])
    then = [Course([Step("CRDs", host.kinds)]), rights, Course([Step("namespace", host.place)], [state])]
    return await examine([Course([Step("host cluster", host.answer)], then)])


@frozen
class _Host:
    """The checks."""

    _api: DiscoveringHost
    _address: str
    _namespace: str
    _is_pod: bool
    _now: Callable[[], float]

    async def answer(self) -> Verdict:
        """Request the name of this account, which every account may."""
        try:
            review = await self._api.create(_SELF, {"metadata": {}})
        except APIError as e:
            if e.code == _NOT_FOUND:  # before Kubernetes 1.28
                return ok(f"{self._address} answers")
            return judged(describe(e, _SELF), "check the kubeconfig")
        return ok(f"{self._address} answers as {review['status']['userInfo'].get('username')}")

    async def kinds(self) -> Verdict:
        """Look for the types of Tower's objects, which every account may see."""
        wanted = crds()
        missing = await self._missing(wanted)
        if missing:
            return fail(f"missing: {_listed(missing)}", INSTALL)
        return ok(f"{len(wanted)} are installed")

    async def _missing(self, wanted: Sequence[Object]) -> list[str]:
        """Return the names of the CRDs *wanted* that are not installed."""
        missing = []
        for crd in wanted:
            group, version = crd["spec"]["group"], crd["spec"]["versions"][0]["name"]
            if crd["spec"]["names"]["plural"] not in await self._api.plurals(group, version):
                missing.append(crd["metadata"]["name"])
        return missing

    async def place(self) -> Verdict:
        """Look for the namespace; the proxy's account has no right to read it."""
        try:
            await self._api.get(NAMESPACES, self._namespace)
        except APIError as e:
            if e.code == _FORBIDDEN:
                return ok(f"{self._namespace} (this account has no right to check that it exists)")
            if e.code == _NOT_FOUND:
                return fail(
                    f"{self._namespace} does not exist",
                    f"kubectl create namespace {self._namespace}, or set --namespace",
                )
            return judged(describe(e, NAMESPACES), "check the API server")
        return ok(f"{self._namespace} exists")

    async def rights(self) -> Verdict:
        """Compare the rights of this account with those that a proxy needs."""
        needed = [each for each in needed_rights(self._namespace) if self._is_pod or each.resource != "pods"]
        denied: set[HostRight] = set()
        await all_done([self._ask(each, denied) for each in needed])
        missing = [str(right) for right in needed if right in denied]
        if missing:
            return fail(f"{len(missing)} of {len(needed)} are missing: {_listed(missing)}", _RIGHTS)
        return ok(f"this account has all {len(needed)}")

    @deferred
    async def _ask(self, right: HostRight, denied: set[HostRight]) -> None:
        review = await self._api.create(*right.review())
        if not review["status"].get("allowed"):
            denied.add(right)

    async def leader(self) -> Verdict:
        """Look at the Lease."""
        try:
            record = LeaseRecord.of(await self._api.get(LEASES, _LEASE, self._namespace))
        except APIError as e:
            unread = self._unread(e, LEASES)
            return unread or await self._idle(f"there is no Lease {_LEASE}: no proxy leads", _START)
        if not record.holder:
            return await self._idle("no proxy leads", _START)
        age = self._now() - _moment(record.renewed)
        if age > record.duration:
            seen = (
                f"{record.holder} has not renewed the Lease for {age:.0f} s, and no other proxy has taken it"
            )
            wait = f"a proxy takes it over {record.duration} s after its start: wait, and repeat this command"
            return await self._idle(seen, f"start tower-proxy; {wait}; then see its log")
        return ok(f"{record.holder} leads, and renewed the Lease {max(age, 0):.0f} s ago")

    async def _idle(self, seen: str, cure: str) -> Verdict:
        """Return the verdict while no proxy leads; without CRDs, none can."""
        return warn(
            seen, "install the CRDs: no proxy can lead without them" if await self._missing(crds()) else cure
        )

    async def keys(self) -> Verdict:
        """Look at the Secret with the proxy's keys; contents are not shown."""
        try:
            secret = await self._api.get(SECRETS, STATE_OBJECT, self._namespace)
        except APIError as e:
            missing = warn(
                f"Secret {self._namespace}/{STATE_OBJECT} does not exist; the first leader creates it",
                "if a proxy has led before, apply a saved copy of the Secret with kubectl",
            )
            return self._unread(e, SECRETS) or missing
        names = sorted(name for name in secret.get("data") or {} if name in SHARED_FILES)
        if HOST_KEY not in names:
            return warn(
                f"Secret {self._namespace}/{STATE_OBJECT} lacks {HOST_KEY}, which the first leader creates",
                "if a proxy has served before, apply a saved copy of the Secret with kubectl",
            )
        return ok(f"Secret {self._namespace}/{STATE_OBJECT} has {', '.join(names)}")

    def _unread(self, error: APIError, resource: ResourceType) -> Verdict | None:
        """Return the verdict about an object that cannot be read; None: it does not exist."""
        if error.code == _NOT_FOUND and "namespaces " not in error.message:
            return None
        if error.code == _FORBIDDEN:
            return Verdict("skip", "not checked: this account lacks rights, see above")
        return judged(describe(error, resource), "check the API server")


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:_LISTED])
    return f"{shown} and {len(names) - _LISTED} more" if names[_LISTED:] else shown


def _moment(text: str) -> float:
    """Return the time of a Lease, s since the epoch; 0 if it is malformed."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0
