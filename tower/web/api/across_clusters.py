"""Resources of all clusters together: `agents`, `nodes` and `hostkeys` as lists, `jointokens` to create."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Protocol

from attrs import evolve, frozen
from twisted.internet.defer import succeed
from twisted.internet.interfaces import IReactorTime

from tower.clusters import Cluster, Clusters
from tower.errors import Invalid
from tower.kube.status import StatusError
from tower.web.api.calls.call import Call, method_not_allowed
from tower.web.api.calls.media_types import JSON
from tower.web.api.issue import JoinTokensApi
from tower.web.api.objects import list_response, selected
from tower.web.api.selectors import CLUSTER_FIELD
from tower.web.api.table import Column, Object
from tower.web.outcome import Outcome

_CLUSTER = Column("Cluster", "The cluster.", lambda item, _: item["spec"]["cluster"])


class Listed(Protocol):
    """A resource below clusters."""

    def objects(self, cluster: Cluster) -> list[Object]:
        """Return the objects of *cluster*; none if it has another type."""


@frozen(eq=False)
class AcrossClusters:
    """The objects of all clusters, for `kubectl get`; they are changed below their clusters.

    :param rows: makes the table's rows from the objects.
    """

    _clusters: Clusters
    _kind: str
    _listed: Listed
    _columns: tuple[Column, ...]
    _clock: IReactorTime
    _rows: Callable[[list[Object]], list[Object]] | None = None

    async def answer(self, call: Call, below: tuple[str, ...]) -> Outcome:
        """See `tower.web.api.dispatch.ResourceHandler.answer`."""
        if below:
            raise self._elsewhere(call, "/".join(below))
        if call.method not in ("GET", "HEAD"):
            raise method_not_allowed(call)
        items = [item for cluster in self._clusters.list() for item in self._listed.objects(cluster)]
        name, *others = self._columns
        columns = (name, _CLUSTER, *others)
        return list_response(
            call, self._kind, selected(call, items, CLUSTER_FIELD), columns, self._clock.seconds(), self._rows
        )

    def _elsewhere(self, call: Call, name: str) -> StatusError:
        """Return the answer to a request for a single object, which names its path."""
        found = (item for cluster in self._clusters.list() for item in self._listed.objects(cluster))
        owners = (item["spec"]["cluster"] for item in found if item["metadata"]["name"] == name)
        *group, plural = call.segments[:4]
        segment = name.replace("+", "-").replace("/", "_")
        path = f"/{'/'.join(group)}/clusters/{next(owners, 'CLUSTER')}/{plural}/{segment}"
        return StatusError(404, f"single {plural} are below their cluster: kubectl get --raw '{path}'")


@frozen(eq=False)
class AnyJoinTokens:
    """`jointokens`: a POST creates one for the cluster in its spec."""

    _clusters: Clusters
    _tokens: JoinTokensApi

    async def answer(self, call: Call, below: tuple[str, ...]) -> Outcome:
        """See `tower.web.api.dispatch.ResourceHandler.answer`."""
        if call.method != "POST":
            raise StatusError(405, f"{call.method} is not supported on this path: use POST")
        value = await call.read()
        spec = value.get("spec")
        name = spec.pop("cluster", None) if isinstance(spec, dict) else None
        if not isinstance(name, str) or not name:
            raise Invalid("spec.cluster: required: the name of the cluster")
        raw = json.dumps(value).encode()
        call = evolve(call, content_type=JSON, body=lambda: succeed(raw))
        return await self._tokens.answer(call, self._clusters.require(name), below)
