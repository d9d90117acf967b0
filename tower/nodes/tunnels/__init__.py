"""The list of SSH tunnels to the nodes of one cluster.

Start with `tower.nodes.tunnels.tunnels`; `tunnel` is one of them, `slot` opens it anew when it is lost.
"""
