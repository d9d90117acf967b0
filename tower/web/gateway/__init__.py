"""Users' connections, and the relay of their requests into tunnels.

Start with `gateway`, which describes the parts.  `http_channel` is one connection, `request` one request,
`relay` sends it to a cluster through a channel of `upstream`, `proxy_client` returns the answer and has
`tower.http.responses` rewrite its `Location`, and `inflight` admits requests within the limits.
`outcomes` carries out what else the router decides, and `refusals` answers errors.  It imports
`tower.web.outcome` and lower rooms, and only types of `tower.web.access`.
"""
