"""Which replica of the proxy leads, and what it shares with the others.

Start with `tower.controller.leader.leader_election`; `tower.hosted` uses all of it.
"""
