"""Resources of all clusters together: `agents`, `nodes` and `hostkeys` as lists, and `jointokens`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Protocol

from attrs import evolve, frozen
from twisted.internet.defer import succeed
from twisted.internet.interfaces import IReactorTime

from tower.clusters import API_VERSION, Cluster, Clusters
from tower.clusters.join_tokens import JoinTokens, PendingToken
from tower.durations import human_duration
from tower.errors import Invalid, NotFound
from tower.kube.status import StatusError
from tower.kube.timestamps import timestamp
from tower.web.api.calls.call import Call, method_not_allowed, not_found
from tower.web.api.calls.media_types import JSON
from tower.web.api.issue import JoinTokensApi
from tower.web.api.objects import delete, list_response, selected
from tower.web.api.selectors import CLUSTER_FIELD
from tower.web.api.table import Column, Object, age_column, name_column, seconds_since
from tower.web.outcome import Outcome, Response

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
    """`jointokens`: those that can still be used, without their secrets; a delete revokes one.

    A POST creates one for the cluster in its spec.
    """

    _clusters: Clusters
    _creation: JoinTokensApi
    _tokens: JoinTokens
    _clock: IReactorTime

    async def answer(self, call: Call, below: tuple[str, ...]) -> Outcome:
        """See `tower.web.api.dispatch.ResourceHandler.answer`."""
        match call.method, below:
            case "POST", _:
                return await self._create(call, below)
            case (("GET" | "HEAD"), ()):
                items = selected(call, self._objects(), CLUSTER_FIELD)
                return list_response(call, "JoinToken", items, _TOKEN_COLUMNS, self._clock.seconds())
            case (("GET" | "HEAD"), (name,)):
                return Response.of_json(self._find(name))
            case "DELETE", (name,):
                self._find(name)
                return await delete(call, "jointokens", name, lambda: self._tokens.revoke_pending(name))
            case _, (() | (_,)):
                raise method_not_allowed(call)
        raise not_found()

    def _objects(self) -> list[Object]:
        return [self._object(token) for token in self._tokens.pending()]

    def _find(self, name: str) -> Object:
        for item in self._objects():
            if item["metadata"]["name"] == name:
                return item
        raise NotFound(f"there is no join token {name}: 'tower join-token list' shows all")

    def _object(self, token: PendingToken) -> Object:
        cluster = self._clusters.get(token.cluster)
        labels = {} if cluster is None else dict(cluster.labels)
        return {
            "apiVersion": API_VERSION,
            "kind": "JoinToken",
            "metadata": {
                "name": token.id,
                "creationTimestamp": timestamp(token.minted),
                **({"labels": labels} if labels else {}),
            },
            "spec": {"cluster": token.cluster},
            "status": {
                "type": "url" if token.is_url else "token",
                "remainingUses": token.uses,
                "expirationTimestamp": timestamp(token.expires),
            },
        }

    async def _create(self, call: Call, below: tuple[str, ...]) -> Outcome:
        value = await call.read()
        spec = value.get("spec")
        name = spec.pop("cluster", None) if isinstance(spec, dict) else None
        if not isinstance(name, str) or not name:
            raise Invalid("spec.cluster: required: the name of the cluster")
        raw = json.dumps(value).encode()
        call = evolve(call, content_type=JSON, body=lambda: succeed(raw))
        return await self._creation.answer(call, self._clusters.require(name), below)


def _expires(item: Object, now: float) -> str:
    moment = item["status"]["expirationTimestamp"]
    return f"{moment} ({human_duration(-(seconds_since(moment, now) or 0))} left)"


_TOKEN_COLUMNS = (
    name_column("ID of the token; not a secret."),
    _CLUSTER,
    Column("Type", "token, or url of a manifest.", lambda item, _: item["status"]["type"]),
    Column(
        "Uses",
        "Number of agents that can still join.",
        lambda item, _: item["status"]["remainingUses"],
        "integer",
    ),
    Column("Expires", "Time of expiry.", _expires),
    age_column(),
)
