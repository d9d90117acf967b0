"""tower-v2, the protocol between Tower's agents and proxies, both ends (docs/protocol-tower-v2.md).

Start with `tower.v2.acceptor` (proxy) and `tower.v2.uplink` (agent).
"""
