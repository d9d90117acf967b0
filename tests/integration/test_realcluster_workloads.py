"""A real cluster with controllers: Deployments, service accounts, Secrets, probes, Services, deletion."""

from __future__ import annotations

import http.client
import json
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.host import ABSENT, HostCluster, host, missing_rights
from tests.integration.programs import PATIENCE, wait_for

SPACE = "workloads"

# Prints its variables and files, sends requests as its account, and serves a page that can be broken.
PROGRAM = """
import http.server, json, os, pathlib, signal, ssl, sys, urllib.error, urllib.request

ACCOUNT = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")
SECRET = pathlib.Path("/etc/given/word")
TLS = ssl.create_default_context(cafile=ACCOUNT / "ca.crt")
SERVER = "https://%s:%s" % (os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"])


def ask(path):
    token = (ACCOUNT / "token").read_text()
    request = urllib.request.Request(SERVER + path, headers={"Authorization": "Bearer " + token})
    try:
        return urllib.request.urlopen(request, context=TLS).status
    except urllib.error.HTTPError as error:
        return error.code


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        broken = pathlib.Path("/tmp/broken").exists()
        self.send_response(500 if broken else 200)
        self.end_headers()
        self.wfile.write(os.environ["POD_NAME"].encode())

    def log_message(self, *_):
        pass


def end(*_):
    print("asked to end", flush=True)
    pathlib.Path("/exchange", os.environ["POD_NAME"]).write_text("ended")
    sys.exit(0)


signal.signal(signal.SIGTERM, end)
space = (ACCOUNT / "namespace").read_text()
print(json.dumps({
    "namespace": space,
    "pod": [os.environ["POD_NAMESPACE"], os.environ["POD_IP"], sys.argv[1]],
    "secret": [os.environ["WORD"], os.environ["ALL_word"], SECRET.read_text()],
    "allowed": ask(f"/api/v1/namespaces/{space}/configmaps"),
    "forbidden": ask(f"/api/v1/namespaces/{space}/secrets"),
    "scratch": sorted(os.listdir("/scratch")),
    "fresh": not os.path.exists("/tmp/broken"),
}), flush=True)
http.server.HTTPServer(("", 8080), Page).serve_forever()
"""


def given(kind: str, version: str, name: str, **fields: Any) -> dict[str, Any]:
    """Return an object in the namespace of these tests."""
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, "namespace": SPACE, "labels": {"app": "reader"}},
        **fields,
    }


def probe(failures: int) -> dict[str, Any]:
    """Return a probe of the program's page; its timeout is long enough for a loaded machine."""
    page = {"path": "/", "port": "page"}
    return {"httpGet": page, "periodSeconds": 1, "timeoutSeconds": 20, "failureThreshold": failures}


def field(path: str) -> dict[str, Any]:
    """Return the source of a variable of the downward API."""
    return {"valueFrom": {"fieldRef": {"fieldPath": path}}}


def deployment(exchange: Path) -> dict[str, Any]:
    """Return two replicas of the program, which all serve the same port."""
    container = {
        "name": "reader",
        "image": "example.org/tower:1",
        "command": ["python", "-c", PROGRAM],
        "args": ["$(POD_NAME)"],
        "ports": [{"name": "page", "containerPort": 8080}],
        "env": [
            {"name": "POD_NAME", **field("metadata.name")},
            {"name": "POD_NAMESPACE", **field("metadata.namespace")},
            {"name": "POD_IP", **field("status.podIP")},
            {"name": "WORD", "valueFrom": {"secretKeyRef": {"name": "given", "key": "word"}}},
        ],
        "envFrom": [{"prefix": "ALL_", "secretRef": {"name": "given"}}],
        "startupProbe": probe(60),
        "readinessProbe": probe(1),
        "livenessProbe": probe(2),
        "volumeMounts": [
            {"name": "given", "mountPath": "/etc/given", "readOnly": True},
            {"name": "scratch", "mountPath": "/scratch"},
            {"name": "exchange", "mountPath": "/exchange"},
        ],
    }
    pod = {
        "serviceAccountName": "reader",
        "terminationGracePeriodSeconds": 10,
        "containers": [container],
        "volumes": [
            {"name": "given", "secret": {"secretName": "given"}},
            {"name": "scratch", "emptyDir": {}},
            {"name": "exchange", "hostPath": {"path": str(exchange)}},
        ],
    }
    labels = {"app": "reader"}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    return given("Deployment", "apps/v1", "reader", spec=spec)


RIGHTS = [
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}},
    given("ServiceAccount", "v1", "reader"),
    given(
        "Role",
        "rbac.authorization.k8s.io/v1",
        "reader",
        rules=[{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}],
    ),
    given(
        "RoleBinding",
        "rbac.authorization.k8s.io/v1",
        "reader",
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        subjects=[{"kind": "ServiceAccount", "name": "reader", "namespace": SPACE}],
    ),
    given(
        "Service",
        "v1",
        "reader",
        spec={"selector": {"app": "reader"}, "ports": [{"port": 80, "targetPort": "page"}]},
    ),
]


def secret(word: str) -> dict[str, Any]:
    """Return the Secret that the program reads."""
    return given("Secret", "v1", "given", stringData={"word": word})


def stateful_set() -> dict[str, Any]:
    """Return a set of one pod, which adds a line to a file of its own volume at each start."""
    data = [{"name": "data", "mountPath": "/data"}]
    first = {
        "name": "prepare",
        "image": "example.org/shell",
        "command": ["sh", "-c", "echo $(hostname) >> /data/starts"],
        "volumeMounts": data,
    }
    serve = "cat /data/starts; cd /data; exec python -m http.server 8080"
    main = {
        "name": "serve",
        "image": "tower",
        "command": ["sh", "-c", serve],
        "readinessProbe": {"httpGet": {"path": "/starts", "port": 8080}, "periodSeconds": 1},
        "securityContext": {"readOnlyRootFilesystem": True},
        "volumeMounts": data,
    }
    labels = {"app": "store"}
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
    }
    pod = {"terminationGracePeriodSeconds": 5, "initContainers": [first], "containers": [main]}
    spec = {
        "serviceName": "store",
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
        "volumeClaimTemplates": [claim],
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete"},
    }
    return given("StatefulSet", "apps/v1", "store", spec=spec)


class WorkloadTests(SynchronousTestCase):
    """A Deployment and a StatefulSet from their creation to their deletion."""

    timeout = 900  # s; the programs are built once
    if missing_rights():
        skip = missing_rights()

    def setUp(self) -> None:
        """Start the cluster and create accounts, rights and Services."""
        self.host: HostCluster = host()
        self.host.apply(*RIGHTS)
        self.exchange = Path(self.mktemp()).resolve()
        self.exchange.mkdir()

    def pods(self) -> list[dict[str, Any]]:
        """Return the pods of the Deployment."""
        return self.host.objects("pods", SPACE, "app=reader")

    def printed(self, pod: str) -> dict[str, Any]:
        """Return what a pod has printed at its last start."""
        line = self.host.kubectl("logs", pod, "-n", SPACE).splitlines()[0]
        found: dict[str, Any] = json.loads(line)
        return found

    def page(self, host: str, port: int) -> tuple[int, str]:
        """Ask a server in the cluster's network; return its status and its answer."""
        door = urlsplit(self.host.network)
        assert door.hostname is not None
        connection = http.client.HTTPConnection(door.hostname, door.port, timeout=PATIENCE)
        connection.set_tunnel(host, port)
        with closing(connection):
            connection.request("GET", "/")
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def in_pod(self, pod: str, *command: str) -> str:
        """Run a command in a container of a pod; return its output."""
        return self.host.kubectl("exec", pod, "-n", SPACE, "--", *command)

    def test_deployment(self) -> None:
        """Its pods have their account and Secrets, answer through the Service, restart, and end with it."""
        self.host.apply(deployment(self.exchange))
        self.check_that_pods_wait_for_their_secret()
        self.host.apply(secret("first"))
        self.host.roll_out("deployment/reader", SPACE)
        self.host.wait_for_condition("deployment", "reader", "Available", SPACE)
        names = [pod["metadata"]["name"] for pod in self.check_pods()]
        self.check_service(names)
        self.check_restart(names[0])
        self.check_changed_secret(names[0])
        self.check_deletion(names)

    def test_stateful_set(self) -> None:
        """A pod keeps its name and volume, which end with the set; a node port connects to it."""
        port = {"port": 80, "targetPort": 8080}
        spec = {"type": "NodePort", "selector": {"app": "store"}, "ports": [port]}
        self.host.apply(stateful_set(), given("Service", "v1", "store", spec=spec))
        self.host.roll_out("statefulset/store", SPACE)
        printed = self.host.kubectl("logs", "store-0", "-n", SPACE, "-c", "serve")
        self.assertTrue(printed.startswith("store-0\n"), printed)
        self.host.delete("pod", "store-0", "-n", SPACE)
        self.host.wait("pod", "store-0", lambda pod: pod, SPACE)
        self.host.wait_for_condition("pod", "store-0", "Ready", SPACE)
        number = self.host.get("service", "store", SPACE)["spec"]["ports"][0]["nodePort"]
        with urlopen(f"http://127.0.0.1:{number}/starts", timeout=PATIENCE) as answer:
            self.assertEqual(answer.read(), b"store-0\nstore-0\n")
        error = self.host.kubectl("exec", "store-0", "-n", SPACE, "--", "sh", "-c", "touch /x 2>&1 || true")
        self.assertIn("Read-only file system", error)
        (volume,) = self.host.objects("persistentvolumes")
        self.assertTrue(Path(volume["spec"]["hostPath"]["path"]).exists())
        self.host.kubectl("delete", "statefulset", "store", "-n", SPACE)
        wait_for("the end of the volume", lambda: not self.host.objects("persistentvolumes"), every=0.3)
        self.assertFalse(Path(volume["spec"]["hostPath"]["path"]).exists())

    def check_that_pods_wait_for_their_secret(self) -> None:
        """A volume whose Secret is missing is an Event, and no container starts."""
        events = ("get", "events", "-n", SPACE)
        wait_for("an Event", lambda: 'secrets "given" not found' in self.host.kubectl(*events), every=0.3)
        self.assertEqual({pod["status"]["phase"] for pod in self.pods()}, {"Pending"})

    def check_pods(self) -> list[dict[str, Any]]:
        """Each pod has its own address and name, and the rights of its account."""
        pods = self.pods()
        for pod in pods:
            name, address = pod["metadata"]["name"], pod["status"]["podIP"]
            wanted = {
                "namespace": SPACE,
                "pod": [SPACE, address, name],
                "secret": ["first", "first", "first"],
                "allowed": 200,
                "forbidden": 403,
                "scratch": [],
                "fresh": True,
            }
            self.assertEqual(self.printed(name), wanted)
        self.assertEqual(len({pod["status"]["podIP"] for pod in pods}), 2)
        return pods

    def check_service(self, names: list[str]) -> None:
        """The endpoints are the pods, and the Service's name leads to them, from here and from a pod."""
        wait_for("the endpoints", lambda: len(self.host.endpoints("reader", SPACE)) == 2, every=0.3)
        endpoints = self.host.endpoints("reader", SPACE)
        self.assertEqual({self.page(*each) for each in endpoints}, {(200, name) for name in names})
        self.assertIn(self.page(f"reader.{SPACE}.svc", 80)[1], names)
        script = "import urllib.request as r; print(r.urlopen('http://reader').read().decode())"
        self.assertIn(self.in_pod(names[0], "python", "-c", script).strip(), names)

    def check_restart(self, name: str) -> None:
        """A failed liveness probe ends the container; the next one has new files and becomes ready."""
        self.in_pod(name, "touch", "/tmp/broken", "/scratch/kept")

        def restarted(pod: dict[str, Any]) -> bool:
            (status,) = pod["status"]["containerStatuses"]
            return bool(status["restartCount"] == 1 and status["ready"])

        self.host.wait("pod", name, restarted, SPACE)
        printed = self.printed(name)
        self.assertEqual((printed["scratch"], printed["fresh"]), (["kept"], True))
        self.assertIn("asked to end", self.host.kubectl("logs", name, "-n", SPACE, "--previous"))

    def check_changed_secret(self, name: str) -> None:
        """A changed Secret reaches the files of a running container."""
        self.host.apply(secret("second"))
        wait_for(
            "the changed Secret",
            lambda: self.in_pod(name, "cat", "/etc/given/word") == "second",
            every=0.5,
        )

    def check_deletion(self, names: list[str]) -> None:
        """The Deployment's deletion ends its pods by SIGTERM, and the namespace's deletion ends."""
        self.host.kubectl("delete", "deployment", "reader", "-n", SPACE)
        wait_for("the end of the pods", lambda: not self.pods(), every=0.3)
        wait_for("the end of the set", lambda: not self.host.objects("replicasets", SPACE), every=0.3)
        self.assertEqual(sorted(path.name for path in self.exchange.iterdir()), sorted(names))
        wait_for("the end of the endpoints", lambda: not self.host.endpoints("reader", SPACE), every=0.3)
        self.host.delete("namespace", SPACE)
        self.assertEqual(self.host.get("namespace", SPACE), ABSENT)
