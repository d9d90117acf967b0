"""`tower rotate`: replace a key or CA of the proxy while old and new ones work."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from tower.cli.client import GROUP_PATH, TowerClient
from tower.cli.listing import listed_or_watched, selection
from tower.cli.output import confirm, is_asked
from tower.escaping import escaped

_PATH = f"{GROUP_PATH}/rotations"

#: Cure for the objects that a finished rotation affects.
_CURE = (
    "replace join lines with 'tower join CLUSTER', kubeconfigs with 'tower kubeconfig CLUSTER --user USER'; "
    "an agent without the new key needs a new join line"
)

#: Most objects of a kind that a message lists; 'tower rotate status -o yaml' lists more.
_LISTED = 10

#: Fields of the status: list, number, and names for one and for several.
_KINDS = (
    ("agents", "lackingAgents", "agent", "agents"),
    ("joinLines", "joinTokens", "join line", "join lines"),
    ("kubeconfigs", "credentials", "kubeconfig", "kubeconfigs"),
)


def rotate(client: TowerClient, options: argparse.Namespace) -> str:
    """Begin a rotation, change its date, or cancel it."""
    target = options.target
    if options.cancel:
        client.call("DELETE", f"{_PATH}/{target}")
        return f"rotation of {target} canceled: the old key stays in use"
    spec = {"target": target}
    if options.now or options.after:
        spec["after"] = "0s" if options.now else options.after
    body = {"apiVersion": "cluster.kubesphere.io/v1alpha1", "kind": "Rotation", "spec": spec}
    if options.now and is_asked(yes=options.yes):
        _confirm(client.call("POST", _PATH, body, query={"dryRun": "All"}), client.access.server)
    return _described(client.call("POST", _PATH, body))


def _confirm(item: dict[str, Any], server: str) -> None:
    """Ask first if the rotation affects anything now.

    :raise CommandFailed: the answer is not yes.
    """
    target, remaining = item["spec"]["target"], item["status"]["remaining"]
    if counts := _counts(remaining):
        lines = [f"This rotates {target} of {server} now.  {counts} {_consequence(target)}:"]
        confirm("\n".join([*lines, *_dependents(target, remaining), ""]), f"{target} not rotated")


def _consequence(target: str, *, done: bool = False) -> str:
    if target == "users-ca":
        return "revoked" if done else "will be revoked"
    return "without the new key" if done else "will lack the new key, and fail"


def status(client: TowerClient, options: argparse.Namespace) -> str:
    """Show the rotations in progress and the last finished ones."""
    query, fetch = selection(options), partial(client.call, "GET", _PATH)
    empty = "no rotation matches the selector" if query else "there are no rotations"
    text = listed_or_watched(fetch, query, options, empty)
    if options.output not in ("table", "wide") or text == empty:
        return text
    return "\n".join([text, *(line for item in fetch(query=query)["items"] for line in _listed(item))])


def _described(item: dict[str, Any]) -> str:
    target, state = item["spec"]["target"], item["status"]
    new = escaped(state["new"])
    if state["phase"] == "Finished":
        text, counts = f"{target} rotated: {new} is in use", _counts(state["stranded"])
        if not counts:
            return text
        return "\n".join([f"{text}; {counts} {_consequence(target, done=True)}:", *_listed(item), _CURE])
    remaining, until = state["remaining"], item["spec"].get("untilTimestamp")
    if target == "users-ca":
        count = remaining["credentials"]
        older = "1 older certificate is" if count == 1 else f"{count} older certificates are"
        progress = f"{new} signs; {older} valid until expiry"
    else:
        ready, lacking = remaining["readyAgents"], remaining["lackingAgents"]
        progress = (
            f"{ready} {'agent has' if ready == 1 else 'agents have'} {new}, "
            f"{lacking} {'lacks' if lacking == 1 else 'lack'} it; it is used "
            "when 'tower rotate status' shows nothing to wait for"
        )
    end = f", at the latest at {escaped(until)}" if until else ""
    return "\n".join([f"rotation of {target} in progress: {progress}{end}", *_listed(item)])


def _listed(item: dict[str, Any]) -> list[str]:
    """Return a line for each object that depends on the old key, or did at the end."""
    status = item["status"]
    return _dependents(item["spec"]["target"], status.get("remaining") or status["stranded"])


def _counts(found: dict[str, Any]) -> str:
    counts = [(found[number], one, several) for _, number, one, several in _KINDS if found[number]]
    return ", ".join(f"{count} {one if count == 1 else several}" for count, one, several in counts)


def _dependents(target: str, found: dict[str, Any]) -> list[str]:
    lines = []
    for kind, number, one, several in _KINDS:
        shown = found[kind][:_LISTED]
        lines += [f"{target}: {_named(kind, each)}" for each in shown]
        if more := found[number] - len(shown):
            lines.append(f"{target}: {more} more {one if more == 1 else several}")
    return [escaped(line) for line in lines]


def _named(kind: str, one: dict[str, Any]) -> str:
    cluster = one["cluster"]
    if kind == "agents":
        agent = one["agent"]
        title = f"agents with token {agent}" if agent.startswith("v1:") else f"agent {agent}"
        return f"{title} of {cluster}: {one['reason']}"
    until = one["expirationTimestamp"]
    if token := one.get("token"):
        return (
            f"unused token {token} of {cluster}, counted until {until}: "
            f"'tower cluster revoke {cluster} {token}' revokes it"
        )
    if kind == "joinLines":
        return f"join line of {cluster}, valid until {until}"
    where = cluster or "Tower's own API"
    return f"kubeconfig of {one['user']} for {where}, credential {one['credential']}, valid until {until}"
