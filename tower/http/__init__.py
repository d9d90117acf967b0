"""HTTP/1.1 without I/O: request and response heads, field lines, paths, where a body ends.

Start with `tower.http.requests`, which parses request heads.  May import `tower.net` and below.
"""
