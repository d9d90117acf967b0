"""The servers behind the front door, in a chain as kube-apiserver's.

A request goes to the first server that serves its path: clusters (`tower.web.ports.router`), Tower's own
pages and API, not found.  Each `ChainedServer` has its paths, health checks and hooks; `tower.server.chain`
merges them and serves the health pages and the index.  Start with `tower.server.chained_server`.  May import
`tower.web` and below.
"""
