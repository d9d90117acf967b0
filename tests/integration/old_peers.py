"""KubeSphere Tower's agent and proxy in Go as real processes; ``gopeer`` plays them, see its README."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import NameOID

from benchmarks.processes import build
from tests.integration.ports import free_port, is_free
from tests.integration.programs import LOOPBACK, PATIENCE, Program, wait_for
from tower.trust.pki import pem_of_key, self_signed

DAY = 86400.0  # s


@cache
def gopeer(*, latest: bool = False) -> str:
    """Return the path of the program, built once for each state of its sources.

    :param latest: with the current libraries instead of those that deployed peers were built with.
    """
    return str(build("tests/integration/gopeer", *(["-modfile=latest.mod"] if latest else [])))


class OldAgent:
    """One ``kubesphere-v1`` agent; it is not started.

    :param folder: where its output goes, and a file with its token.
    :param proxy_url: ``http://…`` or ``https://…``, as its flag ``--proxy-server`` takes it.
    :param service: ``host:port`` of the API server.
    :param ca: file with the CA of that; none means the system's.
    :param bearer: file with the token that the proxy is to show there.
    :param pair: files with a certificate and its key, to show instead.
    :param kubesphere_service: where plain HTTP goes, with or without a port.
    :param trusts: file with the CA of an ``https://`` proxy.
    :param keepalive: how often it pings, s; 0 is never.
    :param once: whether it ends, and says why, when it has no connection any more.
    :param rekey: after how many bytes it changes keys, other than the library by itself.
    :ivar program: what runs.
    """

    def __init__(
        self,
        folder: Path,
        proxy_url: str,
        name: str,
        token: str,
        service: str,
        *,
        ca: Path | None = None,
        bearer: Path | None = None,
        pair: tuple[Path, Path] | None = None,
        kubesphere_service: str | None = None,
        trusts: Path | None = None,
        keepalive: float | None = None,
        once: bool = False,
        rekey: int | None = None,
        latest: bool = False,
        label: str = "old-agent",
    ) -> None:
        flags = {
            "proxy-server": proxy_url,
            "name": name,
            "token": token,
            "kubernetes-service": service,
            "kubesphere-service": kubesphere_service,
            "ca-file": ca,
            "bearer-token-file": bearer,
            "cert-file": pair and pair[0],
            "key-file": pair and pair[1],
            "keepalive": None if keepalive is None else f"{keepalive:g}s",
            "rekey": rekey,
        }
        argv = [gopeer(latest=latest), "v1-agent", *_flags(flags), *(["-once"] if once else [])]
        environment = {"SSL_CERT_FILE": str(trusts)} if trusts else {}
        self.name = f"{label}-{name}"
        self.program = Program(self.name, argv, folder, environment)

    def connections(self) -> int:
        """Return how often a proxy has accepted it so far."""
        return self.program.output().count(" connected to ")

    def failures(self) -> int:
        """Return how many of its attempts and connections have ended so far."""
        return self.program.output().count("; next attempt in ")

    def ready(self) -> bool:
        """Say whether the proxy has accepted it, as far as it knows."""
        if not self.program.running():
            raise AssertionError(f"{self.name} ended: {self.program.tail()}")
        said = self.program.output()
        return said.rfind(" connected to ") > said.rfind("; next attempt in ")

    def wait_until_ready(self, timeout: float = PATIENCE) -> None:
        """Return once the proxy has accepted it."""
        wait_for(f"the tunnel of {self.name}", self.ready, timeout)


class OldProxy:
    """One ``kubesphere-v1`` proxy with one cluster; it is not started.

    :param folder: where its output, its certificate and kubeconfigs go.
    :param name: of the cluster.
    :param token: that its agents must have.
    :param port: where agents come in, without TLS.
    :param kubernetes_port: where whoever comes in, by TLS, is the agent at the API server.
    :param kubesphere_port: the same for plain HTTP.
    :param pair: files with the certificate that the front shows and its key; by default one of its own.
    :param idle: how many idle connections to the API server it keeps; deployed proxies have 2.
    :ivar program: what runs.
    :ivar url: for agents.
    :ivar authority: file with the CA of the front.
    :ivar authority_key: file with its key, unless *pair* was given.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        token: str,
        *,
        port: int | None = None,
        kubernetes_port: int | None = None,
        kubesphere_port: int | None = None,
        pair: tuple[Path, Path] | None = None,
        idle: int = 2,
        latest: bool = False,
        label: str = "old-proxy",
    ) -> None:
        self.port = port or free_port()
        self.kubernetes_port = kubernetes_port or free_port()
        self.kubesphere_port = kubesphere_port or free_port()
        self.url = f"http://{LOOPBACK}:{self.port}"
        self.authority = folder / f"{label}-{name}.crt"
        self.authority_key = self.authority.with_suffix(".key")
        self._folder = folder
        self._before = 0
        cert, key = pair or self._certify()
        flags = {
            "listen": f"{LOOPBACK}:{self.port}",
            "kubernetes-port": self.kubernetes_port,
            "kubesphere-port": self.kubesphere_port,
            "name": name,
            "token": token,
            "idle": idle,
            "cert": cert,
            "key": key,
        }
        self.name = f"{label}-{name}"
        self.program = Program(self.name, [gopeer(latest=latest), "v1-proxy", *_flags(flags)], folder)

    def start(self) -> None:
        """Start it and wait until it listens."""
        self._before = len(self.program.output())
        self.program.start()
        wait_for(f"the ports of {self.name}", self._listens)

    def agents(self) -> int:
        """Return how many agents are connected, as far as it knows."""
        said = self.program.output()[self._before :]
        return said.count(" agent connected,") - said.count(" agent disconnected")

    def wait_for_agents(self, count: int = 1, timeout: float = PATIENCE) -> None:
        """Return once so many agents are connected."""
        wait_for(f"{count} agents at {self.name}", lambda: self.agents() == count, timeout)

    def kubeconfig(self, port: int | None = None) -> Path:
        """Return a kubeconfig with any credential: this front checks none, but kubectl wants one.

        :param port: of a relay to the front, to name instead of it.
        """
        cluster = {
            "server": f"https://{LOOPBACK}:{port or self.kubernetes_port}",
            "certificate-authority-data": base64.b64encode(self.authority.read_bytes()).decode(),
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "old", "cluster": cluster}],
            "users": [{"name": "nobody", "user": {"token": "of-no-meaning"}}],
            "contexts": [{"name": "old", "context": {"cluster": "old", "user": "nobody"}}],
            "current-context": "old",
        }
        path = self._folder / f"{self.name}.kubeconfig"
        path.write_text(json.dumps(config))
        return path

    def _listens(self) -> bool:
        if not self.program.running():
            raise AssertionError(f"{self.name} ended: {self.program.tail()}")
        return not any(map(is_free, (self.port, self.kubernetes_port, self.kubesphere_port)))

    def _certify(self) -> tuple[Path, Path]:
        """Make an authority, and the front's certificate; ECDSA P-256."""
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "old proxy")])
        authority = self_signed(name, DAY, time.time())
        issued = authority.server_certificate([LOOPBACK, "localhost"], DAY, time.time())
        cert, key = self.authority.with_suffix(".front.crt"), self.authority.with_suffix(".front.key")
        self.authority.write_bytes(authority.pem)
        cert.write_bytes(issued.certificate_pem)
        for path, pem in ((self.authority_key, pem_of_key(authority.key)), (key, issued.key_pem)):
            path.touch(0o600)
            path.write_bytes(pem)
        return cert, key


def _flags(values: Mapping[str, object]) -> list[str]:
    """Return Go flags for those that have a value."""
    return [f"-{name}={value}" for name, value in values.items() if value is not None]
