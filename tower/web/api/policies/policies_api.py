"""The resource `accesspolicies` of Tower's own API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import define, field
from twisted.internet.interfaces import IReactorTime

from tower.clusters import API_VERSION
from tower.clusters.policies.access_policies import AccessPolicies
from tower.clusters.policies.access_policy import AccessPolicy
from tower.web.access.authorization.own_rights import OwnRights
from tower.web.api.calls.call import Call, method_not_allowed, not_found
from tower.web.api.discovery import TOWER
from tower.web.api.pages import check_version, paged
from tower.web.api.policies.policy_form import PolicyForm, Preview, show_policy
from tower.web.api.selectors import NAME_FIELD, Selection
from tower.web.api.table import TABLES, Column, Object, age_column, name_column, table
from tower.web.api.watch import WATCH_HEADERS, Watching, WatchLimits
from tower.web.api.writes.create_right import CreateRight
from tower.web.api.writes.object_writer import ObjectWriter
from tower.web.outcome import Outcome, Response, StreamingResponse


@define(eq=False, repr=False)
class AccessPoliciesApi:
    """The resource.

    :param version: returns the store's resource version.
    :param preview: see `PolicyForm`.
    :param rights: those of users at Tower's own API.
    """

    _policies: AccessPolicies
    _version: Callable[[], int]
    _clock: IReactorTime
    _preview: Preview
    _limits: WatchLimits
    _rights: OwnRights
    _watching: Watching[AccessPolicy] = field(init=False)
    _writer: ObjectWriter[AccessPolicy] = field(init=False)

    def __attrs_post_init__(self) -> None:
        form = PolicyForm(self._policies, self._preview)
        create_right = CreateRight(self._rights, TOWER, "accesspolicies")
        self._writer = ObjectWriter(self._policies, self._clock, form, self._shown, create_right)
        kind = (API_VERSION, "AccessPolicy")
        self._watching = Watching(self._policies, self._version, show_policy, self._clock, self._limits, kind)

    async def answer(self, call: Call, below: tuple[str, ...]) -> Outcome:
        """See `tower.web.api.dispatch.ResourceHandler.answer`."""
        match call.method, below:
            case (("GET" | "HEAD"), ()):
                return self._list_or_watch(call)
            case "POST", ():
                return await self._writer.create(call)
            case (("GET" | "HEAD"), (name,)):
                check_version(call, self._version(), self._policies.check)
                item = show_policy(self._policies.require(name))
                if call.table:
                    version = {"resourceVersion": item["metadata"]["resourceVersion"]}
                    return self._table(call, [item], version)
                return Response.of_json(item)
            case "DELETE", (name,):
                return await self._writer.delete(call, name)
            case (("PUT" | "PATCH"), (name,)):
                return await self._writer.change(call, name)
            case _, (() | (_,)):
                raise method_not_allowed(call)
        raise not_found()

    def _list_or_watch(self, call: Call) -> Outcome:
        selection = Selection(call.query, NAME_FIELD)
        if call.flag("watch"):
            return self._watch(call, selection)
        items = [item for item in map(show_policy, self._policies.list()) if selection.matches(item)]
        items, metadata = paged(call, items, self._version(), self._policies.check)
        if call.table:
            return self._table(call, items, metadata)
        return Response.of_json(
            {"apiVersion": API_VERSION, "kind": "AccessPolicyList", "metadata": metadata, "items": items}
        )

    def _watch(self, call: Call, selection: Selection) -> StreamingResponse:
        media = call.table

        def form(item: Object) -> Object:
            return table(POLICY_COLUMNS, [item], self._clock.seconds(), media=media, include=call.include)

        start = self._watching.watch(call.query, selection, form if media else None, bookmarks=not media)
        return StreamingResponse(start, 200, WATCH_HEADERS)

    def _table(self, call: Call, items: list[Object], metadata: dict[str, Any]) -> Response:
        now, media, include = self._clock.seconds(), call.table, call.include
        return Response.of_json(
            table(POLICY_COLUMNS, items, now, media=media, include=include, metadata=metadata)
        )

    def _shown(self, call: Call, policy: AccessPolicy) -> Object:
        item = show_policy(policy)
        if call.table in TABLES:
            return table(POLICY_COLUMNS, [item], self._clock.seconds(), media=call.table)
        return item


#: Most names in one cell of the table.
_NAMED = 3


def _several(texts: list[str]) -> str:
    more = [f"{len(texts) - _NAMED} more"] if len(texts) > _NAMED else []
    return ",".join([*texts[:_NAMED], *more])


def _subjects(item: Object, _now: float) -> str:
    found = []
    for each in item["spec"]["subjects"]:
        name = each["name"]
        if each["kind"] == "ServiceAccount":
            name = f"{each['namespace']}/{name}"
        elif each["kind"] == "Claim":
            name = f"{name}={each['value']}"
        found.append(f"{each['kind']}:{name}")
    return _several(found)


def _clusters(item: Object, _now: float) -> str:
    part = item["spec"].get("clusters") or {}
    found = list(part.get("names") or ())
    selector = part.get("selector") or {}
    found += [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    for each in selector.get("matchExpressions") or ():
        values = f" ({' '.join(each['values'])})" if each.get("values") else ""
        found.append(f"{each['key']} {each['operator']}{values}")
    return _several(found)


def _window(item: Object, _now: float) -> str:
    part = item["spec"].get("timeWindow")
    if not part:
        return "always"
    days = ",".join(part.get("days") or ("daily",))
    return f"{days} {part.get('from', '00:00')}-{part.get('to', '24:00')} {part['timeZone']}"


POLICY_COLUMNS = (
    name_column("Name of the policy."),
    Column("Subjects", "Users, groups and service accounts that it admits.", _subjects),
    Column("Clusters", "Names and labels of the clusters that it admits them to.", _clusters),
    Column("Access", "Requests that it permits.", lambda item, _: item["spec"].get("access", "full")),
    Column("Window", "Times at which it admits them.", _window),
    age_column(),
    Column(
        "Targets",
        "Targets that it permits.",
        lambda item, _: ",".join(item["spec"].get("targets") or ("kubernetes",)),
        priority=1,
    ),
    Column("TTL", "Longest connection.", lambda item, _: str(item["spec"].get("ttl", "")), priority=1),
)
