"""SSH connection protocol (RFC 4254): channels, windows, global requests, keepalives; the two ends of SSH.

Start with `tower.conch.connection.mux`; `tower.conch.connection.window` has the window of a channel.
"""
