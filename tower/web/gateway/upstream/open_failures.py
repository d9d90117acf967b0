"""Errors of channels that were not opened, as users get them: cause and cure."""

from __future__ import annotations

from tower.errors import StreamRefused
from tower.kube.status import StatusError
from tower.tunnels import SSH, Tunnel
from tower.tunnels.silence import CURE
from tower.tunnels.targets import KUBERNETES

_CODES = {
    "not-allowed": (403, "Forbidden", "cluster {cluster}: {end} does not allow this: {text}"),
    "no-such-target": (404, "NotFound", "cluster {cluster}: {end} has no such target: {text}"),
    "busy": (503, "ServiceUnavailable", "cluster {cluster}: the tunnel is busy: {text}"),
    "timeout": (504, "Timeout", "cluster {cluster}: {target} did not answer {end}: {text}: {cure}"),
}
_OTHER = (503, "ServiceUnavailable", "cluster {cluster}: {end} cannot reach {target}: {text}: {cure}")


def open_failure(error: StreamRefused, cluster: str, target: str, tunnel: Tunnel) -> StatusError:
    """Return the error for a channel to *target* that the far end of *tunnel* did not open."""
    code, reason, text = _CODES.get(error.code, _OTHER)
    is_ssh = tunnel.protocol == SSH
    end = "a node" if is_ssh else "the agent"
    if target == KUBERNETES:
        name, owner = "the API server", "the cluster" if is_ssh else "the agent"
        cure = f"check that the API server runs, and its address in the kubeconfig of {owner}"
    else:
        name, cure = f"target {target}", "check that the target runs, and its address"
    why = error.reported_by(f"{end} of {cluster}")
    message = text.format(end=end, cluster=cluster, target=name, text=why, cure=cure)
    return StatusError(code, message, reason=reason)


def silent_text(cluster: str) -> str:
    """Return the error text for a cluster whose agents do not answer."""
    return f"cluster {cluster}: its agent is connected but does not answer: {CURE}"
