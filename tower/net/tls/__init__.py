"""TLS on a connection: sessions without I/O, resumption, client certificates, trust by CA hash.

Start with `tower.net.tls.connection`, TLS on a socket; it drives a `tower.net.tls.session`.  TLS inside a
channel is in `tower.tunnels.tls_pipe`.
"""
