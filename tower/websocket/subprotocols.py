"""The WebSocket subprotocols of agents."""

from __future__ import annotations

#: The WebSocket subprotocol of those agents, and the version lines that both sides send.
KUBESPHERE_V1 = "kubesphere-v1"
#: The subprotocol of Tower's own agents.
TOWER_V2 = "tower-v2"
