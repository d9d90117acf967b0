"""One cluster: etcd, kube-apiserver and the kubelet stand-in on loopback.

All of its state is in one directory, and a directory that was used before is resumed.
"""

import ctypes
import json
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from .api import HOST, Api, StartError
from .authority import Authority, encoded, write_private

START_TIMEOUT = 120.0  # seconds until a part must be ready
STOP_TIMEOUT = 5.0  # seconds that a part gets after SIGTERM
PARTS = ("etcd", "kube-apiserver", "kubelet-standin", "network")  # what has a port
SERVICES = "10.0.0.0/20"  # 4,093 of them
API_SERVICE = "10.0.0.1"  # the Service kubernetes
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)

TICK = 'i=0; while :; do i=$((i+1)); echo "line $i"; sleep 0.1; done'
BURST = "seq -f %063.0f 81920; exec sleep infinity"  # 5 MiB of log at once

AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}

# The controllers that the objects of usual charts and manifests require.
CONTROLLERS = (
    *("clusterrole-aggregation", "cronjob", "daemonset", "deployment", "disruption", "endpoints"),
    *("endpointslice", "endpointslice-mirroring", "garbage-collector", "job", "namespace"),
    *("persistentvolume-binder", "persistentvolume-protection", "persistentvolumeclaim-protection"),
    *("pod-garbage-collector", "replicaset", "replicationcontroller", "resourcequota"),
    *("root-ca-certificate-publisher", "serviceaccount", "serviceaccount-token", "statefulset"),
    "ttl-after-finished",
)

STORAGE = {
    "metadata": {
        "name": "standard",
        "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
    },
    "provisioner": "realcluster/directory",  # the stand-in's
}

Flags = dict[str, object]


def die_with_parent(number: signal.Signals) -> None:
    """Make the kernel send this process a signal when its parent ends for any reason."""
    LIBC.prctl(PR_SET_PDEATHSIG, number)


def free_ports(count: int) -> list[int]:
    """Return `count` different ports that are not in use now."""
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def is_free(port: int) -> bool:
    """Return whether a port from 1 on can be listened on now."""
    try:
        socket.create_server((HOST, port)).close()
    except OSError:
        return False
    return port > 0


class Cluster:
    """A cluster named `name` in `directory`; its binaries are taken from `assets` and `standin`.

    Without a stand-in for the kubelet it has no node, and so no pods run.  With `rsa` the API server's
    certificate has the kind of key that kubeadm makes.  With `controllers`, objects such as Deployments have
    their effects, and pods are isolated; `images` is a file with substitutes for images.  `flags` are options
    of the API server that replace those here; only the CAs of clients are added.
    """

    def __init__(
        self,
        name: str,
        directory: Path,
        assets: Path,
        standin: Path | None,
        *,
        rsa: bool = False,
        controllers: bool = False,
        images: Path | None = None,
        flags: Flags | None = None,
    ) -> None:
        self.name = name
        self.directory = directory
        self._assets = assets
        self._standin = standin
        self._rsa = rsa
        self._controllers = controllers
        self._images = images
        self._flags = flags or {}
        self._info = directory / "info.json"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._authority = Authority(directory / "pki", f"{name}-ca")
        self._ports = self._choose_ports()
        self._admin = self._authority.issue("admin", "/O=system:masters/CN=admin", "clientAuth")
        self._api = Api(self._ports["kube-apiserver"], self._authority.certificate, *self._admin)
        self._kubelet = Api(self._ports["kubelet-standin"], self._authority.certificate, *self._admin)

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.directory / "admin.kubeconfig"

    @property
    def node(self) -> str:
        """Name of the only Node."""
        return f"{self.name}-node"

    @property
    def server(self) -> str:
        """The API server's URL."""
        return f"https://{HOST}:{self._ports['kube-apiserver']}"

    def _choose_ports(self) -> dict[str, int]:
        """Keep the ports of an earlier run where they are still free, so that kubeconfigs stay true."""
        note = self.directory / "ports.json"
        earlier = json.loads(note.read_text()) if note.exists() else {}
        chosen = {
            part: earlier[part] if is_free(earlier.get(part, 0)) else port
            for part, port in zip(PARTS, free_ports(len(PARTS)), strict=True)
        }
        note.write_text(json.dumps(chosen))
        return chosen

    def start(self) -> None:
        """Start every part, without waiting for it."""
        self._info.unlink(missing_ok=True)
        etcd = f"http://{HOST}:{self._ports['etcd']}"
        self._spawn(self._assets / "etcd", self._etcd_flags(etcd), signal.SIGKILL)
        self._spawn(self._assets / "kube-apiserver", self._apiserver_flags(etcd), signal.SIGKILL)
        if self._standin:
            # It gets a chance to end what its pods have started.
            self._spawn(self._standin, self._kubelet_flags(), signal.SIGTERM)

    def _start_controllers(self) -> None:
        """Start the programs that do not wait for the API server themselves."""
        for flags in (self._manager_flags(), self._scheduler_flags()):
            self._spawn(self._standin.with_name(str(flags.pop("program"))), flags, signal.SIGKILL)

    def _etcd_flags(self, etcd: str) -> Flags:
        return {
            "data-dir": self.directory / "etcd",
            "listen-client-urls": etcd,
            "advertise-client-urls": etcd,
            "listen-peer-urls": f"http://{HOST}:0",
            "unsafe-no-fsync": "true",
            "log-level": "warn",
        }

    def _apiserver_flags(self, etcd: str) -> Flags:
        issue = self._authority.issue
        names = (
            f"IP:{HOST},IP:{API_SERVICE},DNS:localhost,"
            "DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc"
        )
        serving, serving_key = issue(
            "kube-apiserver", "/CN=kube-apiserver", "serverAuth", names, rsa=self._rsa
        )
        kubelet, kubelet_key = issue(
            "apiserver-kubelet-client",
            "/O=system:masters/CN=kube-apiserver-kubelet-client",
            "clientAuth",
        )
        front, front_key = issue("front-proxy-client", "/CN=front-proxy-client", "clientAuth")
        accounts, accounts_key = self._accounts()
        policy = self.directory / "audit-policy.json"
        policy.write_text(json.dumps(AUDIT_POLICY))
        ca = self._authority.certificate
        # It waits for accounts that a controller makes.
        without = {} if self._controllers else {"disable-admission-plugins": "ServiceAccount"}
        return {
            **without,
            "etcd-servers": etcd,
            "bind-address": HOST,
            "advertise-address": HOST,
            "secure-port": self._ports["kube-apiserver"],
            "tls-cert-file": serving,
            "tls-private-key-file": serving_key,
            "authorization-mode": "Node,RBAC",
            "kubelet-client-certificate": kubelet,
            "kubelet-client-key": kubelet_key,
            "kubelet-certificate-authority": ca,
            "kubelet-preferred-address-types": "InternalIP",
            "proxy-client-cert-file": front,
            "proxy-client-key-file": front_key,
            "requestheader-client-ca-file": ca,
            "requestheader-allowed-names": "front-proxy-client",
            "requestheader-username-headers": "X-Remote-User",
            "requestheader-group-headers": "X-Remote-Group",
            "requestheader-extra-headers-prefix": "X-Remote-Extra-",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": accounts,
            "service-account-signing-key-file": accounts_key,
            "service-cluster-ip-range": SERVICES,
            "endpoint-reconciler-type": "none",  # it refuses loopback addresses
            "audit-policy-file": policy,
            "audit-log-path": self.directory / "audit.log",
            "profiling": "false",
            **self._flags,
            "client-ca-file": self._client_authorities(),
        }

    def _client_authorities(self) -> Path:
        """Return the file with the CAs of clients: those that an option names, too."""
        if "client-ca-file" not in self._flags:
            return self._authority.certificate
        path = self.directory / "clients.crt"
        given = Path(self._flags["client-ca-file"]).read_bytes()
        path.write_bytes(self._authority.certificate.read_bytes() + given)
        return path

    def _accounts(self) -> tuple[Path, Path]:
        """Return the certificate and key for tokens of service accounts."""
        return self._authority.issue("service-accounts", "/CN=service-accounts", "clientAuth")

    def _part_kubeconfig(self, part: str) -> Path:
        """Write the kubeconfig of a part, which has all rights."""
        return self._write_kubeconfig(
            part, *self._authority.issue(part, f"/O=system:masters/CN=system:{part}", "clientAuth")
        )

    def _manager_flags(self) -> Flags:
        return {
            "program": "kube-controller-manager",
            "kubeconfig": self._part_kubeconfig("kube-controller-manager"),
            "controllers": ",".join(f"{name}-controller" for name in CONTROLLERS),
            "root-ca-file": self._authority.certificate,
            "service-account-private-key-file": self._accounts()[1],
            "leader-elect": "false",
            "secure-port": "0",
            "profiling": "false",
            "kube-api-qps": "200",
            "kube-api-burst": "400",
        }

    def _scheduler_flags(self) -> Flags:
        return {
            "program": "kube-scheduler",
            "kubeconfig": self._part_kubeconfig("kube-scheduler"),
            "leader-elect": "false",
            "secure-port": "0",
            "profiling": "false",
        }

    def _kubelet_flags(self) -> Flags:
        names = f"IP:{HOST},DNS:{self.node},DNS:metrics.kube-system.svc"
        serving, serving_key = self._authority.issue("kubelet", f"/CN={self.node}", "serverAuth", names)
        client = self._authority.issue("node", f"/O=system:masters/CN=system:node:{self.node}", "clientAuth")
        isolation: Flags = {}
        if self._controllers:
            isolation = {
                "network-address": f"{HOST}:{self._ports['network']}",
                "service-cidr": SERVICES,
                "service-address": f"{API_SERVICE}:443",
            }
            if self._images:
                isolation["images"] = self._images
        return {
            **isolation,
            "kubeconfig": self._write_kubeconfig("node", *client),
            "node-name": self.node,
            "port": self._ports["kubelet-standin"],
            "root-dir": self.directory / "pods",
            "tls-cert-file": serving,
            "tls-private-key-file": serving_key,
            "client-ca-file": self._authority.certificate,
        }

    def populate(self) -> None:
        """Wait for the API server, create the first objects, wait for their pods and write info.json last."""
        self._write_kubeconfig("admin", *self._admin)
        (self.directory / "ca.crt").write_bytes(self._authority.certificate.read_bytes())
        self._wait("kube-apiserver", self._apiserver_ready)
        self._api.apply("/api/v1/namespaces", "Namespace", {"metadata": {"name": "demo"}})
        if self._controllers:
            self._start_controllers()
            self._api.apply("/apis/storage.k8s.io/v1/storageclasses", "StorageClass", STORAGE)
            account = "/api/v1/namespaces/default/serviceaccounts/default"
            self._wait("kube-controller-manager", lambda: self._api.get(account) != {})
        if self._standin:
            self._create_pods()
        self._write_info()

    def _create_pods(self) -> None:
        """Create the first pods and the metrics API, and wait for them."""
        for pod in first_pods():
            if self._controllers:
                pod["spec"]["hostNetwork"] = True  # the matrix uses ports of this machine
            self._api.apply("/api/v1/namespaces/default/pods", "Pod", pod)
        self._register_metrics()
        self._wait("kubelet-standin", self._pods_ready)
        self._wait(
            "kube-apiserver",
            lambda: self._api.get("/apis/metrics.k8s.io/v1beta1") != {},
        )

    def _register_metrics(self) -> None:
        """Make the API server aggregate metrics.k8s.io, which the stand-in serves, for `kubectl top`."""
        service = {
            "metadata": {"name": "metrics"},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        }
        self._api.apply("/api/v1/namespaces/kube-system/services", "Service", service)
        spec = {
            "group": "metrics.k8s.io",
            "version": "v1beta1",
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "caBundle": encoded(self._authority.certificate),
            "service": {
                "namespace": "kube-system",
                "name": "metrics",
                "port": self._ports["kubelet-standin"],
            },
        }
        api_service = {"metadata": {"name": "v1beta1.metrics.k8s.io"}, "spec": spec}
        self._api.apply("/apis/apiregistration.k8s.io/v1/apiservices", "APIService", api_service)

    def _apiserver_ready(self) -> bool:
        try:
            return self._api.request("GET", "/readyz")[0] == 200
        except OSError:
            return False

    def _pods_ready(self) -> bool:
        """Return whether the stand-in runs every first pod and the API server knows it."""
        running = {pod["metadata"]["name"] for pod in self._kubelet.get("/pods").get("items") or ()}
        for pod in first_pods():
            name = pod["metadata"]["name"]
            status = self._api.get(f"/api/v1/namespaces/default/pods/{name}").get("status", {})
            conditions = {each["type"]: each["status"] for each in status.get("conditions", ())}
            if name not in running or conditions.get("Ready") != "True":
                return False
        return True

    def _wait(self, part: str, ready: Callable[[], bool]) -> None:
        """Wait until `ready` returns true; raise StartError when the part ends or takes too long."""
        deadline = time.monotonic() + START_TIMEOUT
        while not ready():
            if self._processes[part].poll() is not None or time.monotonic() > deadline:
                raise StartError(f"{part} did not become ready; see {self.directory / part}.log")
            time.sleep(0.05)

    def _spawn(self, binary: Path, flags: Flags, orphaned: signal.Signals) -> None:
        """Start a part, which gets the signal `orphaned` when this process ends without stopping it."""
        log = self.directory / f"{binary.name}.log"
        with log.open("ab") as output:
            self._processes[binary.name] = subprocess.Popen(
                [str(binary), *(f"--{flag}={value}" for flag, value in flags.items())],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for the supervisor alone
                preexec_fn=partial(die_with_parent, orphaned),  # noqa: PLW1509 (one system call)
            )

    def _write_kubeconfig(self, user: str, certificate: Path, key: Path) -> Path:
        path = self.directory / f"{user}.kubeconfig"
        cluster = {
            "server": self.server,
            "certificate-authority-data": encoded(self._authority.certificate),
        }
        credentials = {
            "client-certificate-data": encoded(certificate),
            "client-key-data": encoded(key),
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": self.name, "cluster": cluster}],
            "users": [{"name": user, "user": credentials}],
            "contexts": [{"name": self.name, "context": {"cluster": self.name, "user": user}}],
            "current-context": self.name,
        }
        write_private(path, json.dumps(config, indent=1))
        return path

    def _write_info(self) -> None:
        paths = ("admin.kubeconfig", "ca.crt", "audit.log")
        info = {
            "name": self.name,
            "server": self.server,
            "node": self.node,
            "pids": {part: process.pid for part, process in self._processes.items()},
            "ports": self._ports,
            "paths": {path: str(self.directory / path) for path in paths},
        }
        if self._controllers:
            info["network"] = f"http://{HOST}:{self._ports['network']}"
        self._info.write_text(json.dumps(info, indent=1) + "\n")

    def ended(self) -> str | None:
        """Name a part that has ended by itself, if any."""
        ended = (part for part, process in self._processes.items() if process.poll() is not None)
        return next(ended, None)

    def stop(self) -> None:
        """Stop every part, the last started first, and wait for it."""
        self._info.unlink(missing_ok=True)
        for process in reversed(self._processes.values()):
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def first_pods() -> list[dict]:
    """Return the pods that every cluster has: a shell with a log ticker, a terminal, and a big log."""

    def container(name: str, script: str | None = None, **fields: object) -> dict:
        command = {"command": ["sh", "-c", script]} if script else {}
        return {"name": name, "image": "local/process", **command, **fields}

    pods = {
        "shell": [container("main", stdin=True), container("sidecar", TICK)],
        "terminal": [container("main", stdin=True, tty=True)],
        "burst": [container("main", BURST)],
    }
    return [
        {
            "metadata": {"name": name, "labels": {"app": name}},
            "spec": {"containers": containers},
        }
        for name, containers in pods.items()
    ]
