"""``kubesphere-v1``, the agent protocol of KubeSphere Tower (Go), both ends (docs/protocol-kubesphere-v1.md).

Start with `tower.v1.acceptor` (proxy) and `tower.v1.uplink` (agent).  Their peers are deployed programs:
texts that are sent to them stay as they are.
"""
