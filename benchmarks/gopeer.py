"""``gopeer``: SSH in a WebSocket in Go, as a TCP tunnel and with KubeSphere Tower's structure."""

from __future__ import annotations

from pathlib import Path

from benchmarks.processes import LOOPBACK, Process, free_port, listens
from benchmarks.setting import Ground, System, Upstream, http_way, https_way, stream_way

#: Token of agents at ``gopeer v1-proxy``.
V1_TOKEN = "token"


def forward(ground: Ground, name: str, kind: str, *, secure: bool = False) -> System:
    """Return ``gopeer forward`` to the backend's port for *kind*, ``stream`` or ``http``."""
    agents, remote = free_port(), free_port()
    local = ground.stream if kind == "stream" else ground.http
    server = ground.start(
        f"{name}-server",
        str(ground.peer),
        "forward-server",
        f"-listen={LOOPBACK}:{agents}",
        *(ground.pair("-cert=", "-key=") if secure else ()),
    )
    server.wait_until(lambda: listens(agents), "its port")
    client = ground.start(
        f"{name}-client",
        str(ground.peer),
        "forward-client",
        f"-server={'wss' if secure else 'ws'}://{LOOPBACK}:{agents}",
        f"-remote={LOOPBACK}:{remote}",
        f"-local={LOOPBACK}:{local}",
        extra={"SSL_CERT_FILE": str(ground.authority)},
    )
    client.wait_until(lambda: "forwarding" in client.said(), "its tunnel")
    return System(name, stream_way(remote) | http_way(remote), {"proxy": server, "agent": client})


def v1_proxy(ground: Ground, name: str, idle: int, program: Path) -> tuple[Process, int, int]:
    """Start ``gopeer v1-proxy`` with a pool of *idle* connections.

    :return: the process, its port for agents, and its port for users.
    """
    agents, front = free_port(), free_port()
    proxy = ground.start(
        f"{name}-proxy",
        str(program),
        "v1-proxy",
        f"-listen={LOOPBACK}:{agents}",
        f"-kubernetes-port={front}",
        f"-kubesphere-port={free_port()}",
        "-name=alpha",
        f"-token={V1_TOKEN}",
        f"-idle={idle}",
        *ground.pair("-cert=", "-key="),
    )
    proxy.wait_until(lambda: listens(agents) and listens(front), "its ports")
    return proxy, agents, front


def v1_agent(
    ground: Ground, name: str, port: int, cluster: str, token: str, upstream: Upstream, program: Path
) -> Process:
    """Start ``gopeer v1-agent`` with a proxy at loopback port *port*; return when its tunnel is up."""
    agent = ground.start(
        f"{name}-agent",
        str(program),
        "v1-agent",
        f"-proxy-server=http://{LOOPBACK}:{port}",
        f"-name={cluster}",
        f"-token={token}",
        f"-kubernetes-service={LOOPBACK}:{upstream.port}",
        f"-ca-file={upstream.authority}",
        f"-bearer-token-file={ground.write(f'{name}.token', upstream.token.encode())}",
    )
    agent.wait_until(lambda: "connected to" in agent.said(), "its tunnel")
    return agent


def v1(ground: Ground, name: str, idle: int, upstream: Upstream, program: Path) -> System:
    """Return ``gopeer v1-proxy`` with a pool of *idle* connections, and an agent."""
    proxy, agents, front = v1_proxy(ground, name, idle, program)
    agent = v1_agent(ground, name, agents, "alpha", V1_TOKEN, upstream, program)
    return System(name, https_way(front, ground.authority), {"proxy": proxy, "agent": agent})
