"""tower-v2, the protocol between Tower's agents and proxies, both ends (docs/protocol-tower-v2.md).

Start with `tower.v2.acceptor` (proxy; public: `AgentAcceptor`) or `tower.v2.uplink` (agent; `Uplink`,
`AgentIdentity`).  `userauth` authenticates agents over SSH; `tower.clusters.join_tokens` decides on keys and
tokens.  `known_proxies` pins the proxy's host keys in the agent.
May import `tower.member`, `tower.clusters`, `tower.tunnels`, `tower.conch` and lower rooms.
"""
