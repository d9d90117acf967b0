"""Types of the conditions that make up whether a cluster is available."""

from __future__ import annotations

from typing import Final

from tower.kube.member_status import CHECK_KINDS

#: The sum: whether users' requests reach the cluster's API server and are answered there.
AVAILABLE: Final = "Available"

#: Its reason if only some of the agents can be used.
AGENT_DEGRADED: Final = "AgentDegraded"

#: Its reason if an administrator has disabled the cluster.
DISABLED: Final = "Disabled"

#: Reason of conditions that no proxy has checked yet.
NOT_CHECKED: Final = "NotChecked"

#: Message of conditions that were true in a backup, until a proxy has checked them.
RESTORED: Final = "Restored from a backup: not known until a proxy serves the cluster."

#: An agent is connected, as in upstream's CRD; of clusters with an agent.
AGENT_AVAILABLE: Final = "AgentAvailable"

#: A tunnel to a node works; of clusters of type ssh.
NODES_AVAILABLE: Final = "NodesAvailable"

#: The checks of `tower.kube.member_status.MemberStatus`, in the order in which they depend on each other.
MEMBER_CHECKS: Final = tuple(kind.condition for kind in CHECK_KINDS)
