"""A Tower whose clusters have old agents, and the secrets that its programs must not show."""

from __future__ import annotations

import atexit
import base64
import functools
import os
import shlex
import shutil
import tempfile
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.fakes.chains import issue
from tests.integration import harness
from tests.integration.backends import Backend
from tests.integration.old_peers import OldAgent
from tests.integration.programs import LOOPBACK
from tower.v1.config import AgentConfig

#: The most verbose logs.
LOUD = "--v=9"


class OldTower:
    """One proxy with verbose logs, and a backend with two clusters.

    :ivar tokens: of their agents, by cluster.
    :ivar agents: all agents so far.
    :ivar bearer: file with the proxy's token for the backend.
    :ivar pair: a client certificate and its key, PEM, and the certificate's DER.
    :ivar authority: file with the CA of the backend; its certificate and key are in the same directory.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.tower = harness.Tower(folder)
        self.tower.proxy = self.tower.proxy_program(LOUD, *options)
        self.backend = Backend(folder, "alpha", "beta")
        self.tokens: dict[str, str] = {}
        self.bearer = folder / "bearer"
        self.bearer.write_text("s3cret-bearer-of-an-old-agent\n")
        self.authority = folder / "backend-ca.crt"
        self.authority.write_bytes(self.backend.authority)
        certificate, key = issue("old-agent")
        self.pair = (
            certificate.public_bytes(Encoding.PEM),
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
            certificate.public_bytes(Encoding.DER),
        )
        self.agents: list[OldAgent] = []

    @property
    def url(self) -> str:
        """URL for agents."""
        return f"http://{LOOPBACK}:{self.tower.port}"

    def start(self) -> None:
        """Start proxy and backend, and add the clusters."""
        self.tower.start()
        self.backend.start()
        for cluster in ("alpha", "beta"):
            self.tower.tower("cluster", "add", cluster)
            self.tokens[cluster] = self.mint(cluster)

    def mint(self, cluster: str) -> str:
        """Return a new token for old agents of a cluster."""
        words = shlex.split(self.tower.tower("join", cluster, "--protocol", "v1"))
        return words[words.index("--token") + 1]

    def agent(
        self,
        cluster: str = "alpha",
        *,
        token: str = "",
        rekey: int | None = None,
        trusts: Path | None = None,
        credential: bool = True,
    ) -> OldAgent:
        """Return an agent of Go; it is not started.

        :param credential: whether it sends a credential for the API server.
        :param trusts: file with the CA of the proxy, which is then dialed by TLS.
        """
        ports = self.backend.ports[cluster]
        made = OldAgent(
            self.folder,
            f"https://{LOOPBACK}:{self.tower.secure_port}" if trusts else self.url,
            cluster,
            token or self.tokens[cluster],
            f"{LOOPBACK}:{ports['https']}",
            ca=self.authority,
            bearer=self.bearer if credential else None,
            kubesphere_service=f"{LOOPBACK}:{ports['http']}",
            rekey=rekey,
            trusts=trusts,
            label=f"old-agent-{len(self.agents)}",
        )
        self.agents.append(made)
        return made

    def config(self, cluster: str = "beta") -> AgentConfig:
        """Return the config of that cluster's agent."""
        return AgentConfig(
            version="by hand",
            name=cluster,
            token=self.tokens[cluster],
            kubernetes=f"{LOOPBACK}:6443",
            kubesphere=f"{LOOPBACK}:9090",
            authority=self.authority.read_bytes(),
            bearer=self.bearer.read_bytes(),
        )

    def secrets(self) -> set[bytes]:
        """Return the secrets, in all their encodings, that must not be in the proxy's logs or on its disk."""
        texts = [*self.tokens.values(), self.bearer.read_text().strip()]
        forms = {
            form(text.encode()) for text in texts for form in (bytes, bytes.hex, base64.b64encode, _decimals)
        }
        return {form if isinstance(form, bytes) else form.encode() for form in forms}

    def leaks(self) -> list[str]:
        """Return the files of the proxy that contain a secret, including its log."""
        files = [self.tower.proxy.log, *(path for path in self.tower.state.rglob("*") if path.is_file())]
        secrets = self.secrets()
        return [str(path) for path in files if any(secret in path.read_bytes() for secret in secrets)]

    def stop(self) -> None:
        """End all of it."""
        for agent in self.agents:
            agent.program.stop()
        self.tower.stop()
        self.backend.program.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def _decimals(data: bytes) -> str:
    """Return *data* as Go prints it."""
    return " ".join(map(str, data))


@functools.cache
def old_tower() -> OldTower:
    """Return the instance that the tests of this run share, which ends with the process."""
    made = OldTower(Path(tempfile.mkdtemp(prefix="tower-old-")), harness.PATIENT)
    owner = os.getpid()
    atexit.register(lambda: made.stop() if os.getpid() == owner else None)
    made.start()
    return made
