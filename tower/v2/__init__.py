"""tower-v2, the protocol between Tower's agents and proxies, both ends (docs/protocol-tower-v2.md).

Start with `tower.v2.acceptor` (proxy; public: `AgentAcceptor`) or `tower.v2.uplink` (agent; `Uplink`,
`AgentIdentity`); `tower.v2.userauth` checks keys and join tokens.
May import `tower.member`, `tower.clusters`, `tower.tunnels`, `tower.conch` and lower rooms.
"""
