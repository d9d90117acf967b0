"""The proxy's ports: routers of the front door, the plain port and the clusters' ports.

Start with `router`.  `cluster_proxy` opens and closes the clusters' own ports.  It imports all of
`tower.web`.
"""
