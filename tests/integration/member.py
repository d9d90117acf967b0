"""Real Kubernetes API servers as member clusters, each of which runs until the tests end."""

from __future__ import annotations

import atexit
import base64
import json
import os
import re
import shutil
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.integration.programs import PATIENCE, Program, run, wait_for

HERE = Path(__file__).resolve().parent
REALCLUSTER = HERE / "realcluster" / "realcluster"
AGENT_RIGHTS = HERE.parent.parent / "deploy" / "agent-rbac.yaml"
OLDEST = "1.27"  # kubectl that users may have
BUILD_PATIENCE = 900.0  # s, on a machine that never built it
START_PATIENCE = 150.0  # s
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubject"
CHECKS = {
    *("/version", "/readyz", "/apis/authentication.k8s.io/v1/selfsubjectreviews"),
    *(f"{REVIEWS}accessreviews", f"{REVIEWS}rulesreviews"),
}
LITTLE = 100  # requests; every run of kubectl's operations makes many more


def _everything(name: str, subject: dict[str, str]) -> dict[str, Any]:
    """Return the object that allows a subject everything in the cluster."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [subject],
    }


# Users of the group dev may do everything, as KubeSphere's agents may; jane alone has no rights.
_DEV = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "dev"}
_CLUSTER_ADMIN = {"name": "mighty-agent", "namespace": "tower-system"}
DEVELOPERS = _everything("developers", _DEV)
RIGHTS = {
    "apiVersion": "v1",
    "kind": "List",
    "items": [
        DEVELOPERS,
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _CLUSTER_ADMIN},
        _everything("mighty-agent", {"kind": "ServiceAccount", **_CLUSTER_ADMIN}),
    ],
}


@dataclass(frozen=True)
class Access:
    """Credentials of one service account.

    :ivar user: its name at the API server.
    :ivar token: its bearer token.
    :ivar token_file: the same in a file.
    :ivar kubeconfig: the same in a kubeconfig.
    """

    user: str
    token: str
    token_file: Path
    kubeconfig: Path


class Member:
    """A real API server.

    :param folder: for its files.
    :param place: directory in which ``realcluster`` keeps the cluster.
    :ivar admin: kubeconfig of an administrator who does not go through Tower.
    :ivar least: a service account with the rights of ``deploy/agent-rbac.yaml``.
    :ivar cluster_admin: a service account that may do everything, as those of KubeSphere's agents.
    """

    least: Access
    cluster_admin: Access

    def __init__(self, folder: Path, place: Path) -> None:
        self.folder = folder
        self.place = place
        self.admin = place / "admin.kubeconfig"

    def prepare(self) -> None:
        """Create the rights of the agents and of the users."""
        self.folder.mkdir(exist_ok=True)
        self.kubectl("apply", "-f", str(AGENT_RIGHTS))
        self.kubectl("apply", "-f", "-", stdin=json.dumps(RIGHTS).encode())
        self.least, self.cluster_admin = self.access("tower-agent"), self.access("mighty-agent")

    def up(self) -> bool:
        """Return whether it is ready for `prepare`."""
        return (self.place / "info.json").exists()

    @property
    def info(self) -> dict[str, Any]:
        """Description of the cluster, as ``realcluster`` prints it."""
        report: dict[str, Any] = json.loads((self.place / "info.json").read_text())
        return report

    @property
    def agent(self) -> Path:
        """The kubeconfig of Tower's agents."""
        return self.least.kubeconfig

    @property
    def ca(self) -> Path:
        """The file with the CA of the API server."""
        return self.place / "ca.crt"

    @property
    def admin_pair(self) -> tuple[Path, Path]:
        """The files with the administrator's certificate and key."""
        return self.place / "pki" / "admin.crt", self.place / "pki" / "admin.key"

    @property
    def service(self) -> str:
        """The ``host:port`` of the API server."""
        return str(self.info["server"]).removeprefix("https://")

    def kubectl(self, *arguments: str, stdin: bytes = b"", timeout: float = PATIENCE) -> str:
        """Run the newest kubectl as the administrator, not through Tower; return its output."""
        argv = [str(kubectls()[-1]), f"--kubeconfig={self.admin}", *arguments]
        environment = {"KUBECACHEDIR": str(self.folder / "kubectl")}
        done = run(argv, environment=environment, stdin=stdin, timeout=timeout)
        if done.returncode:
            raise AssertionError(f"{arguments}: {done.stderr.decode(errors='replace')}")
        return done.stdout.decode()

    def remove_namespace(self, name: str) -> None:
        """Remove a namespace with its Deployments, which needs some help without controllers."""
        self.kubectl("-n", name, "delete", "deployments", "--all")
        self.kubectl("delete", "namespace", name, "--wait=false")
        manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        path = f"/api/v1/namespaces/{name}/finalize"
        self.kubectl("replace", "--raw", path, "-f", "-", stdin=json.dumps(manifest).encode())

    def audit(self, since: int = 0) -> list[dict[str, Any]]:
        """Return the API server's audit log from byte *since* on."""
        with (self.place / "audit.log").open("rb") as log:
            log.seek(since)
            return [json.loads(line) for line in log if line.endswith(b"\n")]

    def audit_size(self) -> int:
        """Return the size of the audit log, B."""
        return (self.place / "audit.log").stat().st_size

    def acted(self, access: Access, since: int) -> set[str]:
        """Return the names as which a service account has done something after byte *since* of the audit log.

        Requests of Tower's checks do not count.

        :raise AssertionError: it has done almost nothing.
        """
        events = [event for event in self.audit(since) if event["user"]["username"] == access.user]
        if len(events) <= LITTLE:
            raise AssertionError(f"{access.user} has done {len(events)} things only")
        return {
            event.get("impersonatedUser", event["user"])["username"]
            for event in events
            if "impersonatedUser" in event or event["requestURI"] not in CHECKS
        }

    def access(self, account: str, namespace: str = "tower-system") -> Access:
        """Create a token for a service account."""
        created = self.kubectl("-n", namespace, "create", "token", account, "--duration=24h")
        token = created.strip()
        ca = base64.b64encode(self.ca.read_bytes()).decode()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "member",
                    "cluster": {"server": self.info["server"], "certificate-authority-data": ca},
                }
            ],
            "users": [{"name": "agent", "user": {"token": token}}],
            "contexts": [{"name": "member", "context": {"cluster": "member", "user": "agent"}}],
            "current-context": "member",
        }
        kubeconfig, token_file = self.folder / f"{account}.kubeconfig", self.folder / f"{account}.token"
        for path, text in ((kubeconfig, json.dumps(config)), (token_file, token)):
            path.touch(0o600)
            path.write_text(text)
        return Access(f"system:serviceaccount:{namespace}:{account}", token, token_file, kubeconfig)


class Running:
    """A real API server that can be started and ended; see `member`.

    :param folder: for its files; removed in the end.
    :param options: of ``realcluster up``.
    :ivar member: the cluster, prepared, after `start`.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        self._folder = folder
        place = folder / "real"
        self.member = Member(folder / "member", place)
        argv = [sys.executable, str(REALCLUSTER), "up", f"--dir={place}", *options]
        self._program = Program("realcluster", argv, folder)

    def start(self) -> None:
        """Build the missing parts, start, and create the rights of the agents and of the users."""
        self.run()
        self.member.prepare()

    def run(self) -> None:
        """Build the missing parts and start."""
        build()
        self.resume()

    def resume(self) -> None:
        """Start, with the files of an earlier run if there are any."""
        self._program.start()
        wait_for("the real API server", self._is_up, START_PATIENCE, 0.1)

    def halt(self) -> None:
        """End it."""
        self._program.stop()

    def stop(self) -> None:
        """End it and remove its files."""
        self.halt()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _is_up(self) -> bool:
        if not self._program.running():
            raise AssertionError(f"the real API server ended: {self._program.tail()}")
        return self.member.up()


@cache
def build() -> None:
    """Build the parts of the real clusters that are missing."""
    built = run([sys.executable, str(REALCLUSTER), "build"], timeout=BUILD_PATIENCE)
    if built.returncode:
        raise AssertionError(built.stderr.decode(errors="replace"))


@cache
def _releases() -> list[tuple[str, Path]]:
    """Return version and path of each kubectl of this machine, the oldest first, releases only."""
    listed = run([sys.executable, str(REALCLUSTER), "kubectls"], timeout=120).stdout.decode().splitlines()
    pairs = [line.split(" ", 1) for line in listed]
    return [(version, Path(path)) for version, path in pairs if "-" not in version]


def kubectls() -> list[Path]:
    """Return the kubectl binaries of this machine, the oldest first, releases only."""
    return [path for _, path in _releases()]


def oldest_and_newest() -> tuple[Path, Path]:
    """Return two kubectl binaries: `OLDEST`, and the newest, at least the release of the real clusters.

    :raise AssertionError: this machine has others only.
    """
    build()
    (oldest, first), (newest, last) = _releases()[0], _releases()[-1]
    built = re.search(r"k8s\.io/kubernetes v(\S+)", (REALCLUSTER.parent / "go.mod").read_text())
    assert built is not None, "go.mod names no release"
    versions = [version for version, _ in _releases()]
    if not oldest.startswith(f"{OLDEST}.") or built[1] not in versions or newest == oldest:
        raise AssertionError(
            f"kubectl {OLDEST} and {built[1]} are required, on PATH or next to one that is: found {versions}"
        )
    return first, last


def member(number: int = 1) -> Member:
    """Return a real cluster of this run, started at the first call for it and ended with the process.

    :param number: of the cluster; all tests that need only one share the first.
    """
    return _started(number)


@cache
def _started(number: int) -> Member:
    started = Running(Path(tempfile.mkdtemp(prefix=f"tower-member-{number}-")))
    owner = os.getpid()
    atexit.register(lambda: started.stop() if os.getpid() == owner else None)
    started.start()
    return started.member
