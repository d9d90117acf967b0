"""HTTP/1.1 without I/O: request and response heads, paths, body framing; also agents of Twisted's client.

Start with `tower.http.requests`, which parses request heads; `tower.http.responses` rewrites ``Location``.
The agents send Tower's own requests: `verifying_agent` to clouds and providers, `pipe_agent` to API servers.
May import `tower.net` and below.
"""
