"""The WebSocket subprotocols of agents."""

from __future__ import annotations

#: Subprotocol of KubeSphere Tower's agents, and the version lines that both sides send.
KUBESPHERE_V1 = "kubesphere-v1"
#: Subprotocol of Tower's agents.
TOWER_V2 = "tower-v2"
