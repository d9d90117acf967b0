"""Users' connections, and the relay of their requests into tunnels.

Start with `gateway`, which describes the parts.  `http_channel` is one connection, `request` one request,
`relay` and `proxy_client` send it to a cluster and return the answer: the rewriting of `Location` is in
`proxy_client`.  It imports `tower.web.outcome` and lower rooms, and only types of `tower.web.access`.
"""
