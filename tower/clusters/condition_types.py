"""Types of the conditions that make up whether a cluster is available."""

from __future__ import annotations

from typing import Final

#: The sum: whether users' requests reach the cluster's API server and are answered there.
AVAILABLE: Final = "Available"

#: An agent is connected, as in upstream's CRD; of clusters with an agent.
AGENT_AVAILABLE: Final = "AgentAvailable"

#: A tunnel to a node works; of clusters of type ssh.
NODES_AVAILABLE: Final = "NodesAvailable"

#: The checks of `tower.kube.member_status.MemberStatus`, in the order in which they depend on each other.
API_SERVER_REACHABLE: Final = "APIServerReachable"
MEMBER_CREDENTIAL: Final = "MemberCredential"
IMPERSONATION_ALLOWED: Final = "ImpersonationAllowed"
MEMBER_CHECKS: Final = (API_SERVER_REACHABLE, MEMBER_CREDENTIAL, IMPERSONATION_ALLOWED)
