"""The conditions of a cluster, from its tunnels and the checks of its API server.  Sans-IO."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from tower.clusters import Cluster, ConditionStatus
from tower.clusters.cluster import Condition
from tower.clusters.condition_types import (
    AGENT_AVAILABLE,
    AGENT_DEGRADED,
    AVAILABLE,
    DISABLED,
    MEMBER_CHECKS,
    NODES_AVAILABLE,
    NOT_CHECKED,
    RESTORED,
)
from tower.escaping import quoted
from tower.kube.member_cures import WARNINGS
from tower.kube.member_status import MemberStatus
from tower.kube.timestamps import timestamp
from tower.tunnels import Tunnel, Tunnels
from tower.tunnels.replicas import problem
from tower.tunnels.silence import CURE

_NEVER = "AgentNeverConnected"

#: Messages of checks that were not made.
_UNREACHED = "Not checked, because the cluster cannot be reached."
_AWAITED = "The first check has not finished yet."

#: Messages of checks from the time without a tunnel, or without a proxy.
_STALE = (_UNREACHED, RESTORED)

#: Start of a sentence; others, such as a host name, stay unchanged.
_WORD = re.compile(r"[a-z]+(?=,? )")

#: Ends of sentences, and of texts that were shortened.
_ENDS = ".!?\N{HORIZONTAL ELLIPSIS}"


def link_type(cluster: Cluster) -> str:
    """Return the type of the condition of the cluster's tunnels."""
    return AGENT_AVAILABLE if cluster.ssh is None else NODES_AVAILABLE


def is_new(cluster: Cluster, tunnels: Tunnels, since: float) -> bool:
    """Return whether it is known that no agent of *cluster* has ever connected.

    :param since: start of this proxy; agents of older clusters without conditions may be reconnecting.
    """
    if cluster.ssh is not None or tunnels.last_seen(cluster.name) is not None:
        return False
    known = cluster.condition(AGENT_AVAILABLE)
    return cluster.created >= since if known is None else known.reason == _NEVER


def link_up(cluster: Cluster) -> Condition:
    """Return the condition while a tunnel works."""
    if cluster.ssh is None:
        return _made(AGENT_AVAILABLE, "True", "AgentConnected", "An agent is connected.")
    return _made(NODES_AVAILABLE, "True", "TunnelOpen", "An SSH tunnel to a node is open.")


def link_down(cluster: Cluster, tunnels: Tunnels) -> Condition:
    """Return the condition while no tunnel works."""
    name = cluster.name
    if cluster.ssh is None:
        seen, known = tunnels.last_seen(name), cluster.condition(AGENT_AVAILABLE)
        if seen is None and (known is None or known.reason == _NEVER):
            text = f"No agent has connected yet: run the line that 'tower join {name}' prints."
            return _made(AGENT_AVAILABLE, "False", _NEVER, text)
        silent = tunnels.silent_since(name)
        if silent is not None:
            text = f"An agent is connected, but has not answered since {timestamp(silent)}: {CURE}."
            return _made(AGENT_AVAILABLE, "False", "AgentNotResponding", text)
        last = "" if seen is None else f"; one was last seen at {timestamp(seen)}"
        if not cluster.enabled:
            text = f"No agent is connected{last}: agents of a disabled cluster are rejected."
            return _made(AGENT_AVAILABLE, "False", DISABLED, text)
        text = f"No agent is connected{last}: check whether it runs, and read its log."
        if revoked := tunnels.revoked_key(name):
            text = (
                f"No agent is connected{last}.  The agent with key {revoked} is rejected, because that key "
                f"was revoked: to allow it again, run the line of 'tower join {name}' on its machine."
            )
        return _made(AGENT_AVAILABLE, "False", "AgentDisconnected", text)
    if tunnels.live(name):
        return _made(NODES_AVAILABLE, "False", "NodesDegraded", tunnels.trouble(name))
    text = tunnels.explanation(name) or "No SSH tunnel to a node is open."
    return _made(NODES_AVAILABLE, "False", "NoTunnel", text)


def member_conditions(status: MemberStatus) -> list[Condition]:
    """Return the conditions of the API server."""
    return [
        _made(kind, check.status, check.reason, check.text)
        for kind, check in zip(MEMBER_CHECKS, status.checks, strict=True)
    ]


def unreported(tunnels: Sequence[Tunnel]) -> list[Condition]:
    """Return the conditions of the API server while *tunnels* are open and none has reported."""
    if tunnels[0].check_member is not None:
        return _unknown(NOT_CHECKED, "The proxy's first check has not finished yet.")
    return _unknown(
        "NotReported",
        f"The agent, version {quoted(tunnels[0].version)}, does not report this: upgrade the agent",
    )


def unchecked(link: Condition) -> list[Condition]:
    """Return the conditions of the API server while no tunnel works."""
    return _unknown(link.reason, _UNREACHED)


def before_report(cluster: Cluster, *, is_live: bool) -> list[Condition]:
    """Return the conditions of the API server before the first report, within the grace period.

    Those of the record stay, unless a tunnel is open and they are from the time without one.
    """
    known = [condition for kind in MEMBER_CHECKS if (condition := cluster.condition(kind)) is not None]
    is_stale = len(known) < len(MEMBER_CHECKS) or any(each.message in _STALE for each in known)
    return _unknown(NOT_CHECKED, _AWAITED) if is_live and is_stale else known


def summary(
    cluster: Cluster,
    found: Mapping[str, Condition],
    tunnels: Sequence[Tunnel],
    is_silent: Callable[[Tunnel], bool],
) -> Condition:
    """Return the condition `Available`: the first failed one with its cure.

    A check that was not made does not count, so that the clusters of older agents stay available.

    :param found: the cluster's other conditions.
    :param tunnels: its live tunnels.
    :param is_silent: returns whether a tunnel does not answer.
    """
    if not cluster.enabled:
        text = f"The cluster is disabled: 'tower cluster enable {cluster.name}' enables it."
        return _made(AVAILABLE, "False", DISABLED, text)
    kinds = (link_type(cluster), *MEMBER_CHECKS)
    degraded = kinds[0] in found and found[kinds[0]].reason == "NodesDegraded"
    # degraded nodes cannot reach the API server, whose own check has the cure
    for kind in (*MEMBER_CHECKS, kinds[0]) if degraded else kinds:
        if kind in found and found[kind].status == "False":
            return _made(AVAILABLE, "False", found[kind].reason, found[kind].message)
    if any(kind not in found or found[kind].message in (_AWAITED, RESTORED) for kind in kinds):
        return _made(AVAILABLE, "Unknown", NOT_CHECKED, _AWAITED)
    broken = [(tunnel, text) for tunnel in tunnels if (text := _problem(tunnel, is_silent))]
    if broken:
        tunnel, text = broken[0]
        text = (
            f"{len(broken)} of {len(tunnels)} agents cannot be used and get no requests.  "
            f"Agent at {tunnel.peer}: {text}"
        )
        return _made(AVAILABLE, "True", AGENT_DEGRADED, text)
    for kind in kinds:
        if found[kind].reason in WARNINGS:
            return _made(AVAILABLE, "True", found[kind].reason, found[kind].message)
    unknown = next((found[kind] for kind in kinds if found[kind].status == "Unknown"), None)
    if unknown is not None:
        text = f"{unknown.type} is not known: {unknown.message}" if unknown.message else ""
        return _made(AVAILABLE, "True", found[kinds[0]].reason, text)
    return _made(AVAILABLE, "True", "Ready", "The API server answers users' requests.")


def _problem(tunnel: Tunnel, is_silent: Callable[[Tunnel], bool]) -> str:
    """Return why *tunnel* cannot be used, with the cure; empty: it works."""
    if is_silent(tunnel):
        return f"it does not answer: {CURE}"
    failed = problem(tunnel.member_status)
    return "" if failed is None else failed.text


def _unknown(reason: str, message: str) -> list[Condition]:
    return [_made(kind, "Unknown", reason, message) for kind in MEMBER_CHECKS]


def _made(kind: str, status: ConditionStatus, reason: str, message: str) -> Condition:
    """Return a condition, its message as a sentence; `Clusters.set_conditions` sets its time."""
    message = (
        _WORD.sub(lambda word: word[0].capitalize(), message, count=1) if _WORD.match(message) else message
    )
    if message and message[-1] not in _ENDS:
        message += "."
    return Condition(kind, status, reason, message, 0.0)
