"""What ``twistd`` finds of Tower.  Every ``twistd`` on this machine imports this file: keep it this small."""

from __future__ import annotations

from twisted.application.service import ServiceMaker

tower_proxy = ServiceMaker(
    "Tower proxy", "tower.proxy", "The front door: kubectl to all clusters.", "tower-proxy"
)
tower_agent = ServiceMaker("Tower agent", "tower.agent", "Dials out of a private cluster.", "tower-agent")
