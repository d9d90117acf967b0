"""Bytes between two ends: sockets, TLS, pipes, addresses, HTTP CONNECT.

Start with `tower.net.pipes`, the two contracts that hold the data path together, then `tower.net.connection`,
which owns a socket from the first byte to the last.  TLS is in `tower.net.tls`.  May import `tower.reactor`.
"""
