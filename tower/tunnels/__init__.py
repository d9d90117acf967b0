"""Live tunnels into clusters, whatever carries them: the registry where control and data plane meet.

Start with `tower.tunnels.registry`.  TLS and the credential inside a channel are here too, for
tunnels without an agent of ours.  May import `tower.kube`, `tower.net` and below.
"""

from __future__ import annotations

from tower.tunnels.registry import (
    RECONNECTING,
    SSH,
    Tunnel,
    Tunnels,
)

__all__ = [
    "RECONNECTING",
    "SSH",
    "Tunnel",
    "Tunnels",
]
