"""Tower's own API: clusters, nodes, join tokens, credentials, discovery, OpenAPI, watches.

Start with `tower.web.api.resources`, the table of resources, and `tower.web.api.dispatch`.
"""
