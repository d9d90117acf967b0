"""The records of clusters: specifications, nodes, join tokens, credentials, ports.

Start with `tower.clusters.clusters`; `tower.clusters.records` has all kinds together.  `join_tokens` checks
the join tokens of tower-v2 (`tower.v2.userauth` receives them), `v1_tokens` those of kubesphere-v1;
`credentials` are the users'.  Live lists of a cluster's nodes are in `tower.nodes.node_sources`.  May import
`tower.cloud.registry`, `tower.tunnels`, `tower.store` and below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tower.deferred import deferred_names

if TYPE_CHECKING:
    from tower.clusters.cluster import API_VERSION, Cluster, ConditionStatus, Live, to_object
    from tower.clusters.clusters import Clusters

__all__ = ["API_VERSION", "Cluster", "Clusters", "ConditionStatus", "Live", "to_object"]

__getattr__ = deferred_names(__name__, {**dict.fromkeys(__all__, "cluster"), "Clusters": "clusters"})
