"""WebSocket (RFC 6455): frames, both handshakes, the agent's dialer, the proxy's endpoint.

Start with `tower.websocket.frames`.  May import `tower.http`, `tower.net` and below.
"""

import os

# Do not load Autobahn's native masking and UTF-8 validation: importing them parses C declarations, which is
# slow, and only Autobahn's handshakes are used.
os.environ.setdefault("AUTOBAHN_USE_NVX", "0")
