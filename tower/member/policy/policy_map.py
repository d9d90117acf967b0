"""The owner's policy in a ConfigMap of the member, which the agent follows by a watch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from tower.kube.client import APIError
from tower.kube.rest.host_api import HostAPI, Object, ResourceType, WatchEvent
from tower.kube.rest.reflector import Reflector
from tower.kube.rest.well_known import CONFIG_MAPS
from tower.member.object_name import ObjectName
from tower.member.policy.owner_policy import OwnerPolicy
from tower.member.policy.policy_document import read_policy

#: Entry of the ConfigMap with the document.
ENTRY = "policy.yaml"

_CURES = {
    401: "; the API server does not accept the agent's credential: renew it",
    403: "; grant get, list and watch of the ConfigMap to the agent's account, as docs/agent-policy.md shows",
}


class PolicyMap(Service):
    """Follows the ConfigMap; while its content cannot be used, the last policy stays in use.

    :param use: gets each policy.
    :param close: called at the end, to close idle connections.
    """

    _log = Logger()

    def __init__(
        self,
        api: HostAPI,
        name: ObjectName,
        reactor: IReactorTime,
        use: Callable[[OwnerPolicy], None],
        close: Callable[[], None],
    ) -> None:
        self._api = api
        self._name = name
        self._use = use
        self._close = close
        self._reactor = reactor
        self._problem = ""
        self._has_policy = False
        self._reflector: Reflector | None = None

    def startService(self) -> None:
        """Start to follow it."""
        super().startService()  # type: ignore[no-untyped-call]
        name = self._name
        self._reflector = Reflector(
            self._api,
            CONFIG_MAPS,
            name.namespace,
            self,
            self._reactor,
            field_selector=f"metadata.name={name.name}",
            describe=_described,
        )
        self._reflector.start()

    def stopService(self) -> Deferred[None] | None:
        """Stop following it."""
        super().stopService()  # type: ignore[no-untyped-call]
        if self._reflector is not None:
            self._reflector.stop()
            self._reflector = None
        self._close()
        return None

    @property
    def problem(self) -> str:
        """Why the ConfigMap's content might not be in use, with the cure; empty if it is."""
        if self._problem:
            return self._problem
        reflector = self._reflector
        if reflector is None or not reflector.failure:
            return "" if self._has_policy else f"ConfigMap {self._name}: not read yet"
        return f"ConfigMap {self._name}: {reflector.failure}"

    def replaced(self, items: list[Object], resource_version: str) -> None:
        """See `Follower.replaced`."""
        for item in items:
            if item["metadata"].get("name") == self._name.name:
                self._read(item)
                return
        self._fail(f"does not exist: create it, with the entry {ENTRY}")

    def changed(self, event: WatchEvent) -> None:
        """See `Follower.changed`."""
        if event.object["metadata"].get("name") != self._name.name:
            return
        if event.type == "DELETED":
            self._fail(f"was deleted: create it again, with the entry {ENTRY}")
        else:
            self._read(event.object)

    def _read(self, item: Object) -> None:
        data: Any = item.get("data")
        text = data.get(ENTRY) if isinstance(data, dict) else None
        if not isinstance(text, str):
            self._fail(f"has no entry {ENTRY}: add it")
            return
        try:
            policy = read_policy(text.encode("utf-8", "replace"))
        except ValueError as e:
            self._fail(f"{ENTRY}: {e}")
            return
        self._problem = ""
        self._has_policy = True
        self._use(policy)

    def _fail(self, problem: str) -> None:
        problem = f"ConfigMap {self._name}: {problem}"
        if problem != self._problem:
            stays = "the last policy stays in use" if self._has_policy else "all requests are rejected"
            self._log.error("{problem}; {stays}", problem=problem, stays=stays)
        self._problem = problem


def _described(error: APIError, _: ResourceType) -> str:
    return f"{error}{_CURES.get(error.code, '')}"
