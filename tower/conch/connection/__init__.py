"""SSH connection protocol (RFC 4254): channels, windows, global requests, keepalives.

Start with `tower.conch.connection.mux`; the window of a channel is in `tower.conch.connection.window`.
"""
