"""Users' connections and the relay of their requests into tunnels.

Start with `tower.web.gateway.gateway`; the rewriting of `Location` is in `tower.web.gateway.proxy_client`.
"""
