"""WebSocket (RFC 6455): frames, both handshakes, the agent's dialer, the proxy's endpoint.

Start with `tower.websocket.frames`.  May import `tower.http`, `tower.net` and below.
"""

import os

# Autobahn is used for handshakes only: its fast masks and UTF-8 checks would parse C when they are imported.
os.environ.setdefault("AUTOBAHN_USE_NVX", "0")
