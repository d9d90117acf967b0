"""The resource `rotations`: rotations of the proxy's keys and CAs."""

from __future__ import annotations

from typing import Any

from twisted.internet.interfaces import IReactorTime

from tower.clusters import API_VERSION
from tower.errors import Invalid, NotFound
from tower.kube.timestamps import timestamp
from tower.options.values import parse_duration
from tower.rotation.dependents import Dependents
from tower.rotation.rotation import TARGETS, Remaining, Rotation
from tower.rotation.rotations import Rotations
from tower.web.api.calls.call import Call, method_not_allowed, not_found
from tower.web.api.objects import delete, list_response, read_spec, selected
from tower.web.api.table import Column, Object, age_column, name_column, table
from tower.web.outcome import Outcome, Response


class RotationsApi:
    """`rotations`: a POST begins one or changes its date, a DELETE cancels it.

    In a dry run, a POST shows what the rotation would wait for now.
    """

    def __init__(self, rotations: Rotations, clock: IReactorTime) -> None:
        self._rotations = rotations
        self._clock = clock

    async def answer(self, call: Call, below: tuple[str, ...]) -> Outcome:
        """See `tower.web.api.dispatch.ResourceHandler.answer`."""
        now = self._clock.seconds()
        match call.method, below:
            case (("GET" | "HEAD"), ()):
                items = selected(call, [self._object(each) for each in self._rotations.all()], {})
                return list_response(call, "Rotation", items, ROTATION_COLUMNS, now)
            case (("GET" | "HEAD"), (name,)):
                item = self._object(self._find(name))
                if call.table:
                    return Response.of_json(table(ROTATION_COLUMNS, [item], now, media=call.table))
                return Response.of_json(item)
            case "POST", ():
                spec = await read_spec(call, below, "Rotation", {"target", "after"}, dry_run=True)
                target = spec.get("target")
                if target not in TARGETS:
                    raise Invalid(f"spec.target: {target!r}: must be one of {', '.join(TARGETS)}")
                after = _after(spec)
                if call.dry_run:
                    return Response.of_json(self._object(self._rotations.preview(target)), 201)
                rotation = await self._rotations.begin(target, after)
                return Response.of_json(self._object(rotation), 201)
            case "DELETE", (name,):
                self._find(name)
                return await delete(call, "rotations", name, lambda: self._rotations.cancel(name))
            case _, (() | (_,)):
                raise method_not_allowed(call)
        raise not_found()

    def _find(self, name: str) -> Rotation:
        rotation = self._rotations.get(name) if name in TARGETS else None
        if rotation is None:
            raise NotFound(f"there is no rotation {name}: 'tower rotate status' shows all")
        return rotation

    def _object(self, rotation: Rotation) -> Object:
        remaining = self._rotations.remaining(rotation)
        status: dict[str, Any] = {
            "phase": "InProgress" if rotation.finished is None else "Finished",
            "old": rotation.old,
            "new": rotation.new,
        }
        if rotation.finished is None:
            status["remaining"] = _remaining(remaining)
        else:
            status["finishedTimestamp"] = timestamp(rotation.finished)
            status["stranded"] = _dependents(rotation.stranded)
        spec = {"target": rotation.target}
        if rotation.until is not None:
            spec["untilTimestamp"] = timestamp(rotation.until)
        return {
            "apiVersion": API_VERSION,
            "kind": "Rotation",
            "metadata": {"name": rotation.target, "creationTimestamp": timestamp(rotation.started)},
            "spec": spec,
            "status": status,
        }


def _remaining(remaining: Remaining) -> dict[str, Any]:
    return {
        "readyAgents": remaining.ready,
        "secrets": remaining.secrets,
        **_dependents(remaining.dependents),
    }


def _dependents(found: Dependents) -> dict[str, Any]:
    return {
        "lackingAgents": found.agents,
        "joinTokens": found.join_lines,
        **({"joinTokensUntil": timestamp(found.join_until)} if found.join_lines else {}),
        "credentials": found.kubeconfigs,
        "agents": [
            {"cluster": one.cluster, "agent": one.agent, "reason": one.reason} for one in found.named_agents
        ],
        "joinLines": [
            {
                "cluster": one.cluster,
                "expirationTimestamp": timestamp(one.expires),
                **({"token": one.v1_token} if one.v1_token else {}),
            }
            for one in found.named_join_lines
        ],
        "kubeconfigs": [
            {
                "cluster": one.cluster,
                "user": one.user,
                "credential": one.credential,
                "expirationTimestamp": timestamp(one.expires),
            }
            for one in found.named_kubeconfigs
        ],
    }


def _after(spec: dict[str, Any]) -> float | None:
    text = spec.get("after")
    if text is None:
        return None
    try:
        return parse_duration(text if isinstance(text, str) else "")
    except ValueError as e:
        raise Invalid(f"spec.after: {text!r} {e}") from e


#: Fields of the status, with their names for one and for several.
_COUNTED = (
    ("lackingAgents", "agent", "agents"),
    ("joinTokens", "join line", "join lines"),
    ("credentials", "credential of a user", "credentials of users"),
    ("secrets", "sealed record", "sealed records"),
)


def _counts(item: Object, part: str) -> str:
    """Return the numbers in a part of the status, in words."""
    found, parts = item["status"].get(part, {}), []
    for key, one, several in _COUNTED:
        count, until = found.get(key, 0), found.get(f"{key}Until")
        if count:
            parts.append(f"{count} {one if count == 1 else several}" + (f" until {until}" if until else ""))
    return ", ".join(parts)


ROTATION_COLUMNS = (
    name_column("Key or CA that is rotated."),
    Column("Phase", "InProgress or Finished.", lambda item, _: item["status"]["phase"]),
    Column(
        "Ready",
        "Agents that have confirmed the new key.",
        lambda item, _: item["status"].get("remaining", {}).get("readyAgents", ""),
    ),
    Column("Waiting for", "Objects that depend on the old key.", lambda item, _: _counts(item, "remaining")),
    Column(
        "Stranded",
        "Objects that depended on the old key at the end.",
        lambda item, _: _counts(item, "stranded"),
    ),
    Column("Until", "Latest end, if set.", lambda item, _: item["spec"].get("untilTimestamp", "")),
    age_column(),
    Column(
        "Old", "Fingerprint, hash or ID of the old key.", lambda item, _: item["status"]["old"], priority=1
    ),
    Column("New", "The same of the new key.", lambda item, _: item["status"]["new"], priority=1),
)
