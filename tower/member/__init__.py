"""The agent in its member cluster: options, streams to targets, the relay to the API server, reconnecting.

Start with `tower.member.outgoing`, then `tower.member.apiserver_relay`; `reconnecting` has the retry backoff.
May import `tower.nodes` and below, but does not use `tower.nodes` or `tower.cloud`.
"""
