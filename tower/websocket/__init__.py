"""WebSocket (RFC 6455): frames, both handshakes, the agent's dialer, the proxy's endpoint.

Start with `tower.websocket.frames`.  May import `tower.http`, `tower.net` and below.
"""
