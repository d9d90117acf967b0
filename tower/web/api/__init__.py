"""Tower's own API: clusters, nodes, join tokens, credentials, discovery, OpenAPI, watches.

Start with `resources`, the table of resources, and `dispatch`; `calls` are parsed requests.  `clusters` and
`writes` are the resource `clusters`.  It imports `tower.web.access`, `tower.web.gateway`, `tower.web.outcome`
and lower rooms.
"""
