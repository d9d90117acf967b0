"""Systems behind a link with 100 ms RTT and 1 Gbit/s (`benchmarks.link`).

The reference is one TCP connection to the backend over the link.  With Tower, the link is between agent and
proxy.
"""

from __future__ import annotations

import sys
from functools import partial

from benchmarks.processes import free_port, listens
from benchmarks.product import Product
from benchmarks.setting import Ground, System, https_way, stream_way


def start_link(ground: Ground, name: str, port: int) -> int:
    """Start a link to loopback port *port*; return the port at its near end."""
    near = free_port()
    link = ground.start(name, sys.executable, "-m", "benchmarks.link", str(near), str(port))
    link.wait_until(lambda: listens(near), "its port")
    return near


def direct(ground: Ground) -> System:
    """Return the backend behind the link."""
    stream = start_link(ground, "link-stream", ground.stream)
    https = start_link(ground, "link-https", ground.backend.port)
    return System("link", stream_way(stream) | https_way(https, ground.authority))


def tower(ground: Ground, product: Product) -> System:
    """Return the product with an agent behind the link."""
    far = partial(start_link, ground, "link-agent")
    return product.cluster("tower-far", "delta", ground.backend, far=far)


def old_agent(ground: Ground, product: Product) -> System:
    """Return the product with an old agent behind the link."""
    far = partial(start_link, ground, "link-old-agent")
    return product.old_cluster("tower-old-far", "zeta", ground.backend, far=far)
