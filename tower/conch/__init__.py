"""SSH for tunnels, on Twisted's Conch; public: `tower.conch.tunnel.tunnel.SSHTunnel` and the two SSH ends.

* `tower.conch.transport`: RFC 4253: packets, ciphers, key exchange; keys and signatures.
* `tower.conch.connection`: RFC 4254: channels (with their `window`), global requests, keepalives, and the
  base classes of both ends, `client` and `server`.
* `tower.conch.tunnel`: SSH on one connection, in WebSocket frames or unframed.

Each imports those above it; all may import `tower.websocket`, `tower.net`, `tower.reactor` and lower rooms.
Start with `tower.conch.tunnel.tunnel`; docs/data-path.md follows a byte through these modules.
"""
