"""SSH transport (RFC 4253): packets, ciphers, key exchange, rekeying, limits; keys and signatures.

Start with `tower.conch.transport.transport` and `tower.conch.transport.packets`.  `limits` has all limits,
such as the rate of key exchanges that a peer may start; `rate_limit` is the token bucket that counts them.
"""
