"""TLS on a connection: sessions without I/O, resumption, client certificates, trust by CA hash.

Start with `tower.net.tls.session`.  TLS inside a channel is in `tower.tunnels`.
"""
