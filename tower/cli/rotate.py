"""`tower rotate`: replace a key or CA of the proxy while old and new ones work."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from tower.cli.client import GROUP_PATH, TowerClient
from tower.cli.listing import listed_or_watched, selection
from tower.escaping import escaped

#: Targets of rotations: summary and description of their commands.
TARGETS = {
    "host-key": (
        "rotate the SSH host key that agents verify",
        "The next key is announced to all agents, and used when all of them have it.",
    ),
    "serving-ca": (
        "rotate the CA of the front door's certificate",
        "Agents and new kubeconfigs get the next CA.  It is used when older kubeconfigs have expired.",
    ),
    "users-ca": (
        "rotate the CA of users' client certificates",
        "The new CA signs at once.  Older certificates are valid until they expire; --now revokes them.",
    ),
    "secrets-key": (
        "rotate the key that seals stored credentials",
        "All stored credentials are sealed again, then the old key is removed.",
    ),
}

#: Help of --cancel of each target.
CANCELS = {
    "host-key": "keep the old key; possible until the next one is used",
    "serving-ca": "keep the old CA; possible until the next one is used",
    "users-ca": "not possible: the new CA signs from the beginning",
    "secrets-key": "not possible: the new key seals from the beginning",
}

_PATH = f"{GROUP_PATH}/rotations"

#: Most agents that a message lists; 'tower rotate status -o yaml' lists more.
_LISTED = 10


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
    return _described(client.call("POST", _PATH, body))


def status(client: TowerClient, options: argparse.Namespace) -> str:
    """Show the rotations in progress and the last finished ones."""
    query, fetch = selection(options), partial(client.call, "GET", _PATH)
    empty = "no rotation matches the selector" if query else "there are no rotations"
    text = listed_or_watched(fetch, query, options, empty)
    if options.output not in ("table", "wide") or text == empty:
        return text
    return "\n".join([text, *(line for item in fetch(query=query)["items"] for line in _agents(item))])


def _described(item: dict[str, Any]) -> str:
    target, state = item["spec"]["target"], item["status"]
    new = escaped(state["new"])
    if state["phase"] == "Finished":
        return f"{target} rotated: {new} is in use"
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
    return "\n".join([f"rotation of {target} in progress: {progress}{end}", *_agents(item)])


def _agents(item: dict[str, Any]) -> list[str]:
    """Return a line for each agent without the new key."""
    target, remaining = item["spec"]["target"], item["status"].get("remaining") or {}
    lines = [
        f"{target}: agent {one['agent']} of {one['cluster']}: {one['reason']}"
        for one in remaining.get("agents", [])[:_LISTED]
    ]
    more = remaining.get("lackingAgents", 0) - len(lines)
    return [escaped(line) for line in lines] + (
        [f"{target}: {more} more {'agent' if more == 1 else 'agents'}"] if more > 0 else []
    )
