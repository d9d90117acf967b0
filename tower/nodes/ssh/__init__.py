"""SSH clients for nodes: login, host keys, known_hosts files, single commands.

Start with `tower.nodes.ssh.client`; `host_keys` declares what verifies a node, `failures` words why a
connection ended.  May import `tower.conch`, `tower.clusters.node` and the rooms below.  `command` is public
for other programs.
"""
