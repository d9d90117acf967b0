"""Creates and updates the CRDs in a host cluster."""

from __future__ import annotations

from attrs import frozen
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from tower.errors import TowerError
from tower.kube.client import APIError
from tower.kube.crds.manifests import REVISION, crds, revision_of
from tower.kube.rest.host_api import HostAPI, Object
from tower.kube.rest.well_known import CLUSTERS, CUSTOM_RESOURCE_DEFINITIONS

#: Time for a CRD to become established, s, and interval of the checks.
PATIENCE = 30.0
PERIOD = 0.25

#: Attempts if another program changes a CRD at the same time.
_ATTEMPTS = 5

_FORBIDDEN, _NOT_FOUND, _CONFLICT = 403, 404, 409


class InstallFailed(TowerError):
    """A CRD cannot be installed; the text names it, and the cure."""


@frozen
class Installed:
    """The result for one CRD.

    :ivar text: one line.
    :ivar is_changed: whether it was created or updated.
    """

    name: str
    text: str
    is_changed: bool


@frozen
class CRDInstaller:
    """Installs the CRDs; never replaces a newer one, or KubeSphere's."""

    _api: HostAPI
    _reactor: IReactorTime

    async def install(self) -> list[Installed]:
        """Create missing CRDs, update older ones, and wait until all are established.

        :raise InstallFailed: one cannot be installed.
        """
        done = [await self._installed(crd) for crd in crds()]
        for each in done:
            await self._wait(each.name)
        return done

    async def _installed(self, crd: Object) -> Installed:
        name = crd["metadata"]["name"]
        for _ in range(_ATTEMPTS):
            found = await self._get(name)
            try:
                if found is None:
                    await self._api.create(CUSTOM_RESOURCE_DEFINITIONS, crd)
                    return Installed(name, f"CRD {name} created", is_changed=True)
                text = _kept(found, crd)
                if text:
                    return Installed(name, f"CRD {name} {text}", is_changed=False)
                await self._api.patch(CUSTOM_RESOURCE_DEFINITIONS, name, _update(found, crd))
            except APIError as e:
                if e.code != _CONFLICT:
                    raise _failed(name, e) from e
            else:
                return Installed(name, f"CRD {name} updated to revision {revision_of(crd)}", is_changed=True)
        raise InstallFailed(
            f"CRD {name}: another program changes it at the same time: run it again, or stop that program"
        )

    async def _get(self, name: str) -> Object | None:
        try:
            return await self._api.get(CUSTOM_RESOURCE_DEFINITIONS, name)
        except APIError as e:
            if e.code == _NOT_FOUND:
                return None
            raise _failed(name, e) from e

    async def _wait(self, name: str) -> None:
        """Return when the API server serves the objects of a CRD."""
        deadline = self._reactor.seconds() + PATIENCE
        while True:
            found = await self._get(name) or {}
            conditions = {each["type"]: each for each in found.get("status", {}).get("conditions") or ()}
            if conditions.get("Established", {}).get("status") == "True":
                return
            refused = conditions.get("NamesAccepted", {})
            if refused.get("status") == "False":
                raise InstallFailed(
                    f"CRD {name}: another CRD has its names: {refused.get('message')}: remove that one"
                )
            if self._reactor.seconds() >= deadline:
                raise InstallFailed(
                    f"CRD {name} is not established after {PATIENCE:g} s: see 'kubectl describe crd {name}'"
                )
            await deferLater(self._reactor, PERIOD)


def _kept(found: Object, crd: Object) -> str:
    """Return why *found* needs no update, empty if it does.

    :raise InstallFailed: it cannot be used.
    """
    name, own, theirs = crd["metadata"]["name"], revision_of(crd), revision_of(found)
    if found["metadata"].get("deletionTimestamp"):
        raise InstallFailed(f"CRD {name} is being deleted with its objects: wait for that, and run it again")
    versions = {each["name"] for each in found["spec"]["versions"] if each["served"]}
    if theirs is None and name == CLUSTERS.name:
        if CLUSTERS.version not in versions:
            raise InstallFailed(
                f"CRD {name} of another program does not serve version {CLUSTERS.version}, only "
                f"{', '.join(sorted(versions))}: upgrade that program"
            )
        return "of KubeSphere is kept"
    if theirs is not None and own is not None and theirs > own:
        return f"is newer (revision {theirs}, this Tower has {own}): kept"
    if theirs == own and all(found["spec"].get(key) == part for key, part in crd["spec"].items()):
        return f"is up to date (revision {theirs})"
    return ""


def _update(found: Object, crd: Object) -> Object:
    """Return the merge patch that makes *found* equal to *crd*, unless it has changed since."""
    metadata = {
        "resourceVersion": found["metadata"]["resourceVersion"],
        "annotations": {REVISION: str(revision_of(crd))},
    }
    return {"metadata": metadata, "spec": crd["spec"]}


def _failed(name: str, error: APIError) -> InstallFailed:
    if error.code == _FORBIDDEN:
        return InstallFailed(
            f"CRD {name}: {error.message}: grant the rights of 'tower rbac crds', or install the CRDs as an "
            "administrator: tower crds | kubectl apply -f -"
        )
    return InstallFailed(f"CRD {name}: {error}")
