"""The registry of live tunnels into clusters, used by control plane and data plane.

Start with `tower.tunnels.registry`.  TLS and the credential inside a channel are here too, for tunnels
without a Tower agent.  May import `tower.store` and below.
"""

from __future__ import annotations

from tower.tunnels.registry import RECONNECTING, SSH, Tunnel, Tunnels

__all__ = ["RECONNECTING", "SSH", "Tunnel", "Tunnels"]
