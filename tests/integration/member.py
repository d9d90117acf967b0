"""A real Kubernetes API server as the member cluster; one for a whole run of the tests."""

from __future__ import annotations

import atexit
import base64
import json
import os
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from .programs import Program, run, wait_for

HERE = Path(__file__).resolve().parent
REALCLUSTER = HERE / "realcluster" / "realcluster"
AGENT_RIGHTS = HERE.parent.parent / "deploy" / "agent-rbac.yaml"
BUILD_PATIENCE = 900.0  # s, on a machine that never built it
START_PATIENCE = 90.0  # s

# People of the group dev may do everything in this cluster; jane alone may nothing.
PEOPLE_RIGHTS = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "developers"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "dev"}],
}


class Member:
    """The real API server.

    :ivar admin: kubeconfig of an administrator who does not go through Tower.
    :ivar agent: kubeconfig of the service account with the rights of ``deploy/agent-rbac.yaml``.
    :ivar agent_token: the token in it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.admin = folder / "cluster" / "admin.kubeconfig"
        self.agent = folder / "agent.kubeconfig"
        self.agent_token = ""
        argv = [sys.executable, str(REALCLUSTER), "up", "--dir", str(folder / "cluster")]
        self._program = Program("realcluster", argv, folder)

    def start(self) -> None:
        """Build what is not built yet, start, and create the rights of the agent and of the people."""
        built = run([sys.executable, str(REALCLUSTER), "build"], timeout=BUILD_PATIENCE)
        if built.returncode:
            raise AssertionError(built.stderr.decode(errors="replace"))
        self._program.start()
        wait_for("the real API server", self._is_up, START_PATIENCE, 0.1)
        self.kubectl("apply", "-f", str(AGENT_RIGHTS))
        self.kubectl("apply", "-f", "-", stdin=json.dumps(PEOPLE_RIGHTS).encode())
        token = self.kubectl("-n", "tower-system", "create", "token", "tower-agent", "--duration=24h")
        self.agent_token = token.strip()
        self._write_agent_kubeconfig()

    def stop(self) -> None:
        """End it and remove what it has written."""
        self._program.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _is_up(self) -> bool:
        if not self._program.running():
            raise AssertionError(f"the real API server ended: {self._program.tail()}")
        return (self.folder / "cluster" / "info.json").exists()

    @property
    def info(self) -> dict[str, Any]:
        """What ``realcluster`` tells about itself."""
        told: dict[str, Any] = json.loads((self.folder / "cluster" / "info.json").read_text())
        return told

    def kubectl(self, *arguments: str, stdin: bytes = b"") -> str:
        """Run the newest kubectl as the administrator, not through Tower; return its output."""
        argv = [str(kubectls()[-1]), f"--kubeconfig={self.admin}", *arguments]
        environment = {"KUBECACHEDIR": str(self.folder / "kubectl")}
        done = run(argv, environment=environment, stdin=stdin)
        if done.returncode:
            raise AssertionError(f"{arguments}: {done.stderr.decode(errors='replace')}")
        return done.stdout.decode()

    def audit(self, since: int = 0) -> list[dict[str, Any]]:
        """Return the API server's audit log from byte *since* on."""
        with (self.folder / "cluster" / "audit.log").open("rb") as log:
            log.seek(since)
            return [json.loads(line) for line in log if line.endswith(b"\n")]

    def audit_size(self) -> int:
        """Return how long the audit log is, B."""
        return (self.folder / "cluster" / "audit.log").stat().st_size

    def _write_agent_kubeconfig(self) -> None:
        ca = (self.folder / "cluster" / "ca.crt").read_bytes()
        cluster = {"server": self.info["server"], "certificate-authority-data": base64.b64encode(ca).decode()}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "member", "cluster": cluster}],
            "users": [{"name": "agent", "user": {"token": self.agent_token}}],
            "contexts": [{"name": "member", "context": {"cluster": "member", "user": "agent"}}],
            "current-context": "member",
        }
        self.agent.touch(0o600)
        self.agent.write_text(json.dumps(config))


@cache
def kubectls() -> list[Path]:
    """Return the kubectl binaries of this machine, the oldest first, releases only."""
    listed = run([sys.executable, str(REALCLUSTER), "kubectls"], timeout=120).stdout.decode().splitlines()
    pairs = [line.split(" ", 1) for line in listed]
    return [Path(path) for version, path in pairs if "-" not in version]


@cache
def member() -> Member:
    """Return the one real cluster of this run, started at the first call and ended with the process."""
    started = Member(Path(tempfile.mkdtemp(prefix="tower-member-")))
    owner = os.getpid()
    atexit.register(lambda: started.stop() if os.getpid() == owner else None)
    started.start()
    return started
