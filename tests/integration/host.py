"""A real host cluster with controllers, in which a test's Deployments run this tree's programs."""

from __future__ import annotations

import atexit
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.integration.member import DEVELOPERS, Running
from tests.integration.programs import PATIENCE, wait_for

ROOT = Path(__file__).resolve().parent.parent.parent
IMAGES = ("tower", "tower-proxy", "tower-agent")  # last part of the names of images with this tree's programs
CAPABILITIES = (12, 21)  # CAP_NET_ADMIN, CAP_SYS_ADMIN
_FEW = 20  # requests; a proxy sends more when it starts
ABSENT: dict[str, Any] = {}
LONG = 180.0  # s for what starts or ends pods, on a loaded machine


def missing_rights() -> str:
    """Return the reason why pods cannot have their own networks and files here, "" if they can."""
    status = Path("/proc/self/status").read_text()
    effective = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff:"))
    if all(effective >> number & 1 for number in CAPABILITIES):
        return ""
    return "pods with their own networks require root, with CAP_SYS_ADMIN and CAP_NET_ADMIN"


class HostCluster:
    """A real API server with controllers, scheduler and pods.

    :param folder: for its files; removed in the end.
    :param manifests: files, or directories of files, to apply at the start, such as ``deploy/crds``.
    :ivar kubeconfig: of an administrator.
    """

    def __init__(self, folder: Path, *manifests: Path) -> None:
        self._folder = folder
        self._manifests = manifests
        images = folder / "images.json"
        programs = {"path": [str(Path(sys.executable).parent)], "environment": {"PYTHONPATH": str(ROOT)}}
        images.write_text(json.dumps(dict.fromkeys(IMAGES, programs)))
        self._running = Running(folder, "--controllers", f"--images={images}")
        self.kubeconfig = self._running.member.admin

    def start(self) -> None:
        """Start it, let users of the group dev do everything, and apply the manifests."""
        self._running.run()
        self.apply(DEVELOPERS, *self._manifests)

    def halt(self) -> None:
        """End it; `resume` starts it again with the same objects."""
        self._running.halt()

    def resume(self) -> None:
        """Start it again."""
        self._running.resume()

    def stop(self) -> None:
        """End it and remove its files."""
        self._running.stop()

    @property
    def service(self) -> str:
        """The ``host:port`` of the API server."""
        return self._running.member.service

    @property
    def ca(self) -> Path:
        """The file with the CA of the API server."""
        return self._running.member.ca

    @property
    def network(self) -> str:
        """URL of an HTTP proxy (CONNECT) into its network: it knows Services' names and pods' addresses."""
        return str(self._running.member.info["network"])

    def kubectl(self, *arguments: str, stdin: bytes = b"", timeout: float = PATIENCE) -> str:
        """Run the newest kubectl as the administrator; return its output."""
        return self._running.member.kubectl(*arguments, stdin=stdin, timeout=timeout)

    def delete(self, *arguments: str, stdin: bytes = b"") -> None:
        """Delete objects, with ``kubectl delete``; wait until they do not exist."""
        self.kubectl("delete", *arguments, stdin=stdin, timeout=LONG)

    def roll_out(self, name: str, namespace: str) -> None:
        """Wait until all pods of the present version of a Deployment or StatefulSet are ready."""
        words = ("rollout", "status", name, "-n", namespace, f"--timeout={LONG:g}s")
        self.kubectl(*words, timeout=LONG)

    def apply(self, *manifests: Path | dict[str, Any]) -> None:
        """Apply files, directories of files, and objects; wait until kinds among them can be used."""
        paths = [path for path in manifests if isinstance(path, Path)]
        objects = [each for each in manifests if not isinstance(each, Path)]
        if objects:
            items = {"apiVersion": "v1", "kind": "List", "items": objects}
            self.kubectl("apply", "-f", "-", stdin=json.dumps(items).encode())
        if paths:
            self.kubectl("apply", *(f"--filename={path}" for path in paths))
        if self.kubectl("get", "crd", "-o", "name"):
            self.kubectl("wait", "crd", "--all", "--for=condition=Established", f"--timeout={PATIENCE:g}s")

    def get(self, kind: str, name: str, namespace: str = "default") -> dict[str, Any]:
        """Return an object, or `ABSENT`."""
        answer = self.kubectl("get", kind, name, "-n", namespace, "-o", "json", "--ignore-not-found")
        found: dict[str, Any] = json.loads(answer) if answer else ABSENT
        return found

    def objects(self, kind: str, namespace: str = "default", selector: str = "") -> list[dict[str, Any]]:
        """Return the objects of a kind, of those with labels if a selector is given."""
        answer = self.kubectl("get", kind, "-n", namespace, "-o", "json", "-l", selector)
        found: list[dict[str, Any]] = json.loads(answer)["items"]
        return found

    def wait(
        self, kind: str, name: str, until: Callable[[dict[str, Any]], object], namespace: str = "default"
    ) -> dict[str, Any]:
        """Return an object as soon as *until* is true for it."""
        last: list[dict[str, Any]] = []

        def reached() -> bool:
            last[:] = [self.get(kind, name, namespace)]
            return bool(until(last[0]))

        wait_for(f"the expected state of {kind} {name}", reached, every=0.2)
        return last[0]

    def wait_for_condition(self, kind: str, name: str, condition: str, namespace: str = "default") -> None:
        """Return when a condition is true, as ``kubectl wait`` and ``helm --wait`` do."""
        self.kubectl(
            *("wait", f"{kind}/{name}", f"--for=condition={condition}", "-n", namespace),
            f"--timeout={PATIENCE:g}s",
        )

    def endpoints(self, service: str, namespace: str = "default") -> list[tuple[str, int]]:
        """Return addresses and ports of the ready endpoints of a Service; `network` leads to them."""
        slices = self.objects("endpointslices", namespace, f"kubernetes.io/service-name={service}")
        return [
            (address, port["port"])
            for each in slices
            for endpoint in each["endpoints"] or ()
            if endpoint.get("conditions", {}).get("ready", True)
            for address in endpoint["addresses"]
            for port in each["ports"] or ()
        ]

    def through(self, kubeconfig: Path) -> Path:
        """Return a copy of a kubeconfig whose server is an address or a name in this cluster's network."""
        config = yaml.safe_load(kubeconfig.read_text())
        for each in config["clusters"]:
            each["cluster"]["proxy-url"] = self.network
        descriptor, name = tempfile.mkstemp(suffix=".kubeconfig", dir=self._folder)
        os.write(descriptor, yaml.safe_dump(config).encode())
        os.close(descriptor)
        return Path(name)

    def offer(self, *ports: int) -> None:
        """Let pods that start from now on reach these ports of this machine at their own 127.0.0.1."""
        data = {str(port): "" for port in ports}
        metadata = {"name": "machine-ports", "namespace": "kube-system"}
        self.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})

    def refused(self, user: str) -> set[str]:
        """Return verb and URI of the requests of *user* that the API server forbade.

        :raise AssertionError: it has hardly sent any.
        """
        events = [event for event in self._running.member.audit() if event["user"]["username"] == user]
        if len(events) <= _FEW:
            raise AssertionError(f"{user} has sent {len(events)} requests only")
        return {
            f"{event['verb']} {event['requestURI']}"
            for event in events
            if event.get("responseStatus", {}).get("code") == 403
        }

    def logs(self, selector: str, namespace: str = "default") -> str:
        """Return the logs of all containers of the pods with these labels."""
        return self.kubectl(
            "logs", "-n", namespace, "-l", selector, "--all-containers", "--tail=-1", "--prefix"
        )


def host(*manifests: Path) -> HostCluster:
    """Return the host cluster of this run, started at the first call and ended with the process.

    :param manifests: see `HostCluster`; applied by the first call that names them.
    """
    shared = _shared()
    _apply_once(shared, manifests)
    return shared


@cache
def _shared() -> HostCluster:
    made = HostCluster(Path(tempfile.mkdtemp(prefix="tower-host-")))
    owner = os.getpid()
    atexit.register(lambda: made.stop() if os.getpid() == owner else None)
    made.start()
    return made


@cache
def _apply_once(shared: HostCluster, manifests: Iterable[Path]) -> None:
    paths = tuple(manifests)
    if paths:
        shared.apply(*paths)
