"""The proxy's CAs, certificates, keys and sealed secrets, and the state directory that holds them.

Start with `tower.trust.statedir` and `tower.trust.authorities`; `vault` seals secrets.  May import
`tower.conch`, `tower.options` and below.
"""
