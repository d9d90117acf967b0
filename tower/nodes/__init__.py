"""Clusters reached by SSH to their nodes, without an agent.

Start with `tower.nodes.clusters`: it keeps a `tower.nodes.cluster.NodeCluster` for each enabled cluster of
type ssh.  `tunneler` lists the nodes, keeps the tunnels and installs the key; `node_sources` is where a list
comes from; `cluster_tunnel` is what the rooms above dial.  The rooms `ssh` and `tunnels` hold one SSH
connection and the list of tunnels.

May import `tower.clusters`, `tower.cloud` and the rooms below.  Public for other programs:
`tower.nodes.dialer` and `tower.nodes.node_sources`.
"""
