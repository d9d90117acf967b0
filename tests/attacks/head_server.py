"""An API server that records request heads, and names that no head may act as."""

from __future__ import annotations

import contextlib
import json
import socket
from pathlib import Path

from tests.integration.programs import LOOPBACK
from tests.integration.threaded import ThreadedServer

BOOTSTRAPPERS = "system:bootstrappers:kubeadm:default-node-token"


#: Header fields of the attack, and similar ones.
NAMES = (
    BOOTSTRAPPERS,
    "system:cluster-admins",
    "system:admin",
    "kubeadm:cluster-admins",
    "system:anything",
    "system:masters",
    "system:node:n1",
    "system:serviceaccounts",
    "system:unauthenticated",
    "kube:admin",
    "clusterAdmin",
)


class HeadServer(ThreadedServer):
    """An API server that allows everything.

    :ivar heads: of the requests so far.
    """

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        super().__init__()

    def identities(self) -> list[list[str]]:
        """Return the lines with the user, of each request since the last call."""
        heads, self.heads = self.heads, []
        return [
            [line for line in head.decode().split("\r\n") if line.startswith("Impersonate-")]
            for head in heads
        ]

    def kubeconfig(self, folder: Path) -> Path:
        """Return a kubeconfig for this server, without a credential."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "it", "cluster": {"server": f"http://{LOOPBACK}:{self.port}"}}],
            "users": [{"name": "agent", "user": {}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "agent"}}],
            "current-context": "it",
        }
        path = folder / "member.kubeconfig"
        path.write_text(json.dumps(config))
        return path

    def serve(self, connection: socket.socket) -> None:
        """See `ThreadedServer.serve`."""
        with connection, connection.makefile("rb") as stream, contextlib.suppress(OSError):
            head = b""
            while line := stream.readline():
                head += line
                if line == b"\r\n":
                    if (
                        b"\r\nImpersonate-User: " in head
                    ):  # else it is the proxy's own, about the server's health
                        self.heads.append(head)
                    head = b""
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
