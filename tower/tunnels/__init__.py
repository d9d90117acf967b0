"""The registry of live tunnels into clusters, used by control plane and data plane.

Start with `tower.tunnels.registry`.  For tunnels without a Tower agent, `tls_pipe` is TLS inside a channel
and `apiserver_gate` adds the cluster's credential.  May import `tower.store` and below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tower.deferred import deferred_names

if TYPE_CHECKING:
    from tower.tunnels.live import Tunnel
    from tower.tunnels.registry import RECONNECTING, SSH, Tunnels

__all__ = ["RECONNECTING", "SSH", "Tunnel", "Tunnels"]

__getattr__ = deferred_names(__name__, {**dict.fromkeys(__all__, "registry"), "Tunnel": "live"})
