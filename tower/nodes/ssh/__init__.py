"""SSH clients for nodes: authentication, host keys, known_hosts, commands.

Start with `tower.nodes.ssh.client`.
"""
