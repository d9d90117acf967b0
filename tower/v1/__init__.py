"""kubesphere-v1, the agent protocol of KubeSphere Tower (Go), both ends (docs/protocol-kubesphere-v1.md).

Start with `tower.v1.acceptor` (proxy; public: `V1AgentAcceptor`) or `tower.v1.uplink` (agent; `V1Uplink`,
`EitherUplink`).  Peers are deployed programs: texts that are sent to them stay unchanged.
May import `tower.v2`, `tower.member`, `tower.clusters`, `tower.tunnels`, `tower.conch` and lower rooms.
"""
