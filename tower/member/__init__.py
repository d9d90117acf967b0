"""The agent's side of its own cluster: options, outgoing streams, the relay to the API server, reconnecting.

Start with `tower.member.apiserver_relay`.  May import everything below `tower.web` but `tower.nodes`.
"""
