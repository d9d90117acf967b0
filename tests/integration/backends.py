"""The program `markserver` as the API server of the clusters of a test."""

from __future__ import annotations

import base64
import http.client
import json
import sys
import time
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.x509.oid import NameOID

from tests.integration.programs import LOOPBACK, PATIENCE, Program, wait_for
from tower.trust.pki import Authority, self_signed

ROOT = Path(__file__).resolve().parent.parent.parent
DAY = 86400.0


class Backend:
    """Serves some clusters; see `tests.integration.markserver`.

    :ivar ports: by cluster and kind.
    """

    def __init__(self, folder: Path, *clusters: str) -> None:
        self._folder = folder
        now = time.time()
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "backend")])
        self._authority: Authority = self_signed(name, DAY, now)
        issued = self._authority.server_certificate([LOOPBACK], DAY, now)
        certificate, key = folder / "backend.crt", folder / "backend.key"
        certificate.write_bytes(issued.certificate_pem)
        key.touch(0o600)
        key.write_bytes(issued.key_pem)
        argv = [sys.executable, "-m", "tests.integration.markserver", str(certificate), str(key), *clusters]
        self.program = Program("backend", argv, folder, {"PYTHONPATH": str(ROOT)})
        self.ports: dict[str, dict[str, int]] = {}

    @property
    def authority(self) -> bytes:
        """The CA of its certificates, PEM."""
        return self._authority.pem

    def start(self) -> None:
        """Start it and learn its ports."""
        self.program.start()
        wait_for("the backend", lambda: self.program.output().endswith("\n") or not self.program.running())
        self.ports = json.loads(self.program.output())

    def kubeconfig(self, cluster: str, *, secure: bool = True) -> Path:
        """Return the kubeconfig for the agent of a cluster.

        :param secure: whether the agent speaks TLS with it.
        """
        way: dict[str, str] = {"server": f"http://{LOOPBACK}:{self.ports[cluster]['http']}"}
        if secure:
            way = {
                "server": f"https://{LOOPBACK}:{self.ports[cluster]['https']}",
                "certificate-authority-data": base64.b64encode(self._authority.pem).decode(),
            }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "it", "cluster": way}],
            "users": [{"name": "agent", "user": {"token": "the-agent-of-" + cluster} if secure else {}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "agent"}}],
            "current-context": "it",
        }
        path = self._folder / f"{cluster}-{'https' if secure else 'http'}.kubeconfig"
        path.touch(0o600)
        path.write_text(json.dumps(config))
        return path

    def target(self, cluster: str, kind: str) -> str:
        """Return the option with which an agent lists one of the ports for raw streams."""
        return f"--target={kind}={LOOPBACK}:{self.ports[cluster][kind]}"

    def report(self, path: str = "/report") -> dict[str, Any]:
        """Request a report directly, without Tower."""
        port = next(iter(self.ports.values()))["http"]
        connection = http.client.HTTPConnection(LOOPBACK, port, timeout=PATIENCE)
        try:
            connection.request("GET", path)
            parsed: dict[str, Any] = json.loads(connection.getresponse().read())
            return parsed
        finally:
            connection.close()

    def close_idle(self) -> None:
        """Close every connection that waits for a request."""
        self.report("/close-idle")
