"""SSH transport (RFC 4253): packets, ciphers, key exchange, rekeying, limits; keys and signatures.

Start with `tower.conch.transport.transport` and `tower.conch.transport.packets`.
"""
