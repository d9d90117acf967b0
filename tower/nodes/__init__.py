"""Clusters reached by SSH to their nodes, without an agent.

Start with `tower.nodes.clusters`: it keeps a `tower.nodes.cluster.NodeCluster` for each enabled cluster of
type ssh.  `node_sources` lists the nodes (files, API servers, clouds); `tunneler` calls it, keeps the tunnels
and installs the key; `host_key_policy` verifies host keys, `host_key_pins` remembers those of first
connections; `cluster_tunnel` is what the rooms above dial.  Rooms: `ssh`, one connection, and `tunnels`.

May import `tower.clusters`, `tower.cloud` and the rooms below.  Public for other programs:
`tower.nodes.dialer` and `tower.nodes.node_sources`.
"""
