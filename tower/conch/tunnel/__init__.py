"""SSH on one connection, with or without WebSocket frames.

Start with `tower.conch.tunnel.tunnel`; `inlet` receives, `outlet` sends.
"""
