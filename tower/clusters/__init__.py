"""What is recorded about clusters: specifications, nodes, join tokens, credentials, ports.

Start with `tower.clusters.clusters`; join tokens are checked in `tower.clusters.join_tokens`.  May import
`tower.store`, `tower.tunnels`, `tower.trust` and below.
"""

from __future__ import annotations

from tower.clusters.clusters import (
    API_VERSION,
    Cluster,
    Clusters,
    ConditionStatus,
    Live,
    timestamp,
    to_object,
)

__all__ = [
    "API_VERSION",
    "Cluster",
    "Clusters",
    "ConditionStatus",
    "Live",
    "timestamp",
    "to_object",
]
