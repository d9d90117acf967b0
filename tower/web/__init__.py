"""The HTTP side: WebSocket endpoint, relay, per-cluster proxies, the filter chain, Tower's API."""
