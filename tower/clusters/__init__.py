"""The records of clusters: specifications, nodes, join tokens, credentials, ports.

Start with `tower.clusters.clusters`; join tokens are checked in `tower.clusters.join_tokens`.  May import
`tower.cloud.registry`, `tower.tunnels`, `tower.store` and below.
"""

from __future__ import annotations

from tower.clusters.cluster import API_VERSION, Cluster, ConditionStatus, Live, timestamp, to_object
from tower.clusters.clusters import Clusters

__all__ = ["API_VERSION", "Cluster", "Clusters", "ConditionStatus", "Live", "timestamp", "to_object"]
