"""The proxy's ports and their routers: front door, plain port, ports of clusters.

Start with `tower.web.ports.router`.
"""
