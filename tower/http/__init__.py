"""HTTP/1.1 without I/O: request and response heads, paths, body framing; also bodies for Twisted's client.

Start with `tower.http.requests`, which parses request heads; `tower.http.responses` rewrites ``Location``.
May import `tower.net` and below.
"""
