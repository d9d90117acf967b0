"""The SSH tunnels to the nodes of one cluster.

Start with `tower.nodes.tunnels.tunnels`, the list of tunnels.  `slot` is one node in it and reopens its
tunnel, `tunnel` is one SSH connection, `dial` opens a stream through one or several nodes, `limiter` bounds
the number of handshakes.  May import `tower.nodes.ssh` and what that may import.
"""
