"""CRDs and rights in a real host cluster: installed, used by a proxy that has no others, and removed."""

from __future__ import annotations

import atexit
import contextlib  # trial takes a name `suppress` in a module for its own
import json
import os
import re
import shutil
import tempfile
import time
from base64 import b64encode
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import yaml
from twisted.trial.unittest import SynchronousTestCase

from tests.integration.guide import Guide, path_with
from tests.integration.harness import Tower
from tests.integration.member import Member, Running, kubectls, oldest_and_newest
from tests.integration.ports import free_port
from tests.integration.programs import LOOPBACK, Program, run, script, wait_for

NAMESPACE = "kubesphere-system"
TOKENS = "jointokens.tower.kubesphere.io"
CLUSTERS = "clusters.cluster.kubesphere.io"
KINDS = (CLUSTERS, TOKENS, "credentials.tower.kubesphere.io", "v1tokens.tower.kubesphere.io")
REVISION = "tower.kubesphere.io/crd-revision"
LEADER = "tower.kubesphere.io/leader=true"
HEADING, HANGING = "A proxy with a host cluster", "If a deletion hangs"
PATIENCE = 180.0  # s for the API server to remove CRDs on a busy machine
IN_POD = "kubectl -n kubesphere-system exec service/tower -- tower"
ADDRESS = "10.1.2.3"  # the proxy's, if it is not in a pod

#: Rights that the test uses rarely: an object is read after another program has changed it at the same time.
AFTER_CONFLICTS = {
    ("", "services", "", "get"),
    ("discovery.k8s.io", "endpointslices", "", "get"),
    ("tower.kubesphere.io", "records", "", "get"),
}


@cache
def host() -> Member:
    """Return an API server for these tests only, started at the first call and ended with the process."""
    running = Running(Path(tempfile.mkdtemp(prefix="tower-host-")), "--bare")
    owner = os.getpid()
    atexit.register(lambda: running.stop() if os.getpid() == owner else None)
    running.start()
    return running.member


class HostTestCase(SynchronousTestCase):
    """A test with an API server, whose objects of Tower it removes."""

    timeout = 400

    def setUp(self) -> None:
        """Start it."""
        self.folder = Path(tempfile.mkdtemp(prefix="tower-test-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.member = host()


class CRDTests(HostTestCase):
    """``tower-proxy --install-crds`` with the least rights, and ``tower crds``."""

    def setUp(self) -> None:
        """Make the proxy's namespace and account."""
        super().setUp()
        self.member.kubectl("create", "namespace", NAMESPACE)
        self.addCleanup(self.member.remove_namespace, NAMESPACE)
        self.member.kubectl("-n", NAMESPACE, "create", "serviceaccount", "tower")
        self.kubeconfig = self.member.access("tower", NAMESPACE).kubeconfig

    def install(self, code: int = 0) -> str:
        """Run the proxy for it; return its log."""
        done = run([script("tower-proxy"), "--install-crds", f"--kubeconfig={self.kubeconfig}"])
        log = done.stderr.decode()
        self.assertEqual(done.returncode, code, log)
        self.assertNotIn("Traceback", log)
        return log

    def tower(self, *arguments: str) -> bytes:
        """Return the output of the command."""
        done = run([script("tower"), *arguments])
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def crds(self) -> dict[str, Any]:
        """Return the CRDs by name."""
        listed = json.loads(self.member.kubectl("get", "crd", "-o", "json"))["items"]
        return {each["metadata"]["name"]: each for each in listed}

    def change(self, name: str, revision: str | None, columns: list[dict[str, str]]) -> None:
        """Change a CRD as another version of Tower would."""
        patch = [
            {
                "op": "replace",
                "path": "/metadata/annotations",
                "value": {REVISION: revision} if revision else {},
            },
            {"op": "replace", "path": "/spec/versions/0/additionalPrinterColumns", "value": columns},
        ]
        self.member.kubectl("patch", "crd", name, "--type=json", "-p", json.dumps(patch))

    def columns(self, name: str) -> list[str]:
        """Return the columns of a CRD."""
        return [each["name"] for each in self.crds()[name]["spec"]["versions"][0]["additionalPrinterColumns"]]

    def test_crds(self) -> None:
        """CRDs are created and updated with the documented rights; newer ones and KubeSphere's are kept."""
        log = self.install(1)
        self.assertIn("grant the rights of 'tower rbac crds', or install the CRDs as an administrator", log)
        self.member.kubectl("apply", "-f", "-", stdin=self.tower("rbac", "crds"))
        log = self.install()
        self.assertIn(f"CRD {TOKENS} created", log)
        names = sorted(self.crds())
        self.assertIn(f"{len(names)} CRDs at {self.member.service}: {len(names)} installed or updated", log)
        self.member.kubectl("get", "clusters,jointokens", "-A")

        wanted = self.columns(TOKENS)
        other = [{"name": "Other", "type": "string", "jsonPath": ".spec.other"}]
        self.change(TOKENS, "0", other)
        self.change(CLUSTERS, None, other)
        self.change("settings.tower.kubesphere.io", "99", other)
        log = self.install()
        self.assertIn(f"CRD {TOKENS} updated to revision", log)
        self.assertEqual(self.columns(TOKENS), wanted)
        self.assertIn(f"CRD {CLUSTERS} of KubeSphere is kept", log)
        self.assertEqual(self.columns(CLUSTERS), ["Other"])
        self.assertIn("CRD settings.tower.kubesphere.io is newer (revision 99", log)
        self.assertEqual(self.columns("settings.tower.kubesphere.io"), ["Other"])

        self.printed(wanted)

    def printed(self, wanted: list[str]) -> None:
        """Let the oldest kubectl apply the printed CRDs over the installed ones, and remove all.

        If the API server's first list of the objects fails because nothing has read this kind yet ("storage
        is (re)initializing"), it deletes a CRD only at its next change, or after 5 minutes.  So read all.
        """
        oldest = [str(oldest_and_newest()[0]), f"--kubeconfig={self.member.admin}", "apply", "-f", "-"]
        applied = run(oldest, stdin=self.tower("crds", "--without-clusters"))
        self.assertEqual(applied.returncode, 0, applied.stderr)
        self.assertEqual(self.columns(TOKENS), wanted)
        self.assertEqual(self.columns(CLUSTERS), ["Other"])
        self.member.kubectl("get", ",".join(self.crds()), "-A")
        self.member.kubectl("delete", "--wait=false", "-f", "-", stdin=self.tower("crds"))
        wait_for("the end of the CRDs", self.are_removed, PATIENCE, every=2.0)
        self.member.kubectl("delete", "-f", "-", stdin=self.tower("rbac", "crds"))

    def are_removed(self) -> bool:
        """Return whether there are no CRDs; if there are, change them, so that the API server tries again."""
        if not self.crds():
            return True
        with contextlib.suppress(AssertionError):  # one is removed in between
            self.member.kubectl("annotate", "crd", "--all", "--overwrite", f"example.org/at={time.time()}")
        return False


class HostedTower(Tower):
    """A proxy with the rights of ``tower rbac host``.

    :param pod: name of its pod; empty: outside of the host cluster, at an address that it can reach.
    """

    def __init__(self, folder: Path, kubeconfig: Path, pod: str) -> None:
        super().__init__(folder)
        self.health_port = free_port()
        program = self.proxy_program(f"--kubeconfig={kubeconfig}", f"--health-port={self.health_port}")
        environment = {"POD_NAME": pod, "POD_NAMESPACE": NAMESPACE} if pod else {"POD_IP": ADDRESS}
        self.proxy = Program("proxy", program.argv, folder, environment)

    def page(self) -> str:
        """Return what ``/readyz?verbose`` shows; empty: it does not answer yet."""
        try:
            with urlopen(f"http://{LOOPBACK}:{self.health_port}/readyz?verbose", timeout=PATIENCE) as answer:
                return str(answer.read().decode())
        except HTTPError as e:
            return e.read().decode()
        except URLError:
            return ""


class LifeTests(HostTestCase):
    """A proxy from the installation to its removal, by the commands of the pages."""

    def setUp(self) -> None:
        """Install it; remember all objects from before."""
        super().setUp()
        programs = (kubectls()[-1], Path(script("tower")))
        environment = {
            "KUBECONFIG": str(self.member.admin),
            "PATH": path_with(self.folder / "bin", *programs),
        }
        names = {IN_POD: f"tower --state-dir {self.folder / 'outside' / 'proxy'}"}
        self.guide = Guide("install.md", self.folder, environment, names)
        self.before = self.objects()
        self.log = self.member.audit_size()
        self.shell = ["env", *(f"{name}={value}" for name, value in environment.items()), "sh", "-ec"]
        self.do(f"kubectl create namespace {NAMESPACE}")
        self.do("tower rbac host | kubectl apply -f -")
        self.access = self.member.access("tower", NAMESPACE)
        self.inside, self.outside = self.proxy("inside", "tower-0"), self.proxy("outside", "")
        self.lead_without_kinds()

    def lead_without_kinds(self) -> None:
        """Start the proxy before the CRDs are installed: it shows that, and waits for them."""
        tower = self.outside
        tower.proxy.start()
        text = "install Tower's CRDs with 'tower crds | kubectl apply -f -'"
        wait_for("the missing CRD", lambda: text in tower.page())
        self.do("tower crds | kubectl apply -f -")
        wait_for("the leader", tower.healthy, 2 * PATIENCE)
        wait_for("the end of the problem", lambda: "readyz check passed" in tower.page())
        wait_for("the end of its text", lambda: text not in tower.page())
        tower.stop()

    def proxy(self, name: str, pod: str) -> HostedTower:
        """Return a proxy, which is stopped with the test."""
        folder = self.folder / name
        folder.mkdir()
        made = HostedTower(folder, self.access.kubeconfig, pod)
        self.addCleanup(made.stop)
        return made

    def do(self, line: str) -> str:
        """Run a line in a shell; return its output."""
        done = run([*self.shell, line], timeout=PATIENCE)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.decode()

    def objects(self) -> set[str]:
        """Return kind, namespace and name of all objects except events."""
        found: list[str] = []

        def are_listed() -> bool:
            kinds = set(self.member.kubectl("api-resources", "--verbs=list", "-o", "name").split())
            kinds -= {"events", "events.events.k8s.io", "componentstatuses"}
            form = 'jsonpath={range .items[*]}{.kind}/{.metadata.namespace}/{.metadata.name}{"\\n"}{end}'
            try:
                found[:] = self.member.kubectl("get", ",".join(sorted(kinds)), "-A", "-o", form).split()
            except AssertionError:  # a kind that was removed is in the list for a while
                return False
            return True

        wait_for("the list of all objects", are_listed)
        return set(found)

    def kubectl(self, *arguments: str, stdin: object = None) -> str:
        """Run kubectl in the proxy's namespace."""
        return self.member.kubectl("-n", NAMESPACE, *arguments, stdin=json.dumps(stdin).encode())

    def exists(self, name: str) -> bool:
        """Return whether an object such as service/mc-alpha exists."""
        return bool(self.kubectl("get", name, "--ignore-not-found", "-o", "name"))

    def apply(self, name: str, *, is_joined: bool = True, **spec: Any) -> None:
        """Apply a cluster."""
        body = {
            "apiVersion": "cluster.kubesphere.io/v1alpha1",
            "kind": "Cluster",
            "metadata": {"name": name},
            "spec": {"joinFederation": is_joined, "connection": {"type": "proxy"}, **spec},
        }
        self.kubectl("apply", "-f", "-", stdin=body)

    def test_life(self) -> None:
        """The rights are exactly those that a proxy uses; the commands of the page leave nothing."""
        self.lead_in_a_pod()
        self.lead_outside()
        for name in ("alpha", "gamma"):
            self.do(self.guide.command(HEADING, 0).replace("alpha", name))
        self.check_rights()
        self.lose_rights()
        examined = self.do(
            f"tower --state-dir {self.outside.state} doctor --host-kubeconfig {self.access.kubeconfig}"
        )
        self.assertIn("ok    rights in the host cluster: this account has all", examined)
        self.assertIn("leads, and renewed the Lease", examined)
        self.assertNotIn("FAIL", examined)
        self.remove_late()
        self.remove_hanging()
        self.kubectl("delete", "pods", "--all", "--force", "--grace-period=0")
        self.do(self.guide.command(HEADING, 1))
        self.remove_kinds()
        self.assertEqual(self.objects() - self.before, set())

    def remove_late(self) -> None:
        """Let the next leader finish a deletion, and wait for it by the commands of the page."""
        self.apply("late")
        wait_for("the Service", lambda: self.exists("service/mc-late"))
        self.outside.proxy.stop()
        self.kubectl("delete", "cluster", "late", "--wait=false")
        self.assertTrue(self.exists("cluster/late"))
        self.outside.proxy.start()
        self.do(self.guide.command(HANGING, 0).replace("alpha", "late"))
        self.assertFalse(self.exists("cluster/late"))
        self.outside.stop()

    def remove_hanging(self) -> None:
        """Remove a cluster without its proxy, by the commands of the page."""
        self.kubectl("delete", "cluster", "beta", "--wait=false")
        self.assertTrue(self.exists("cluster/beta"))
        self.do(self.guide.command(HANGING, 1).replace("alpha", "beta"))
        self.assertEqual(json.loads(self.kubectl("get", "clusters", "-o", "json"))["items"], [])

    def remove_kinds(self) -> None:
        """Remove the kind of the clusters, and the namespace, which needs some help without controllers."""
        first, second = self.guide.command(HEADING, 2).strip().splitlines()
        self.do(first)
        self.assertEqual(second.strip(), f"kubectl delete namespace {NAMESPACE}")
        left = {name for name in self.objects() - self.before if f"/{NAMESPACE}/" in name}
        self.assertEqual(left, set())
        self.member.remove_namespace(NAMESPACE)

    def lead_in_a_pod(self) -> None:
        """Let the proxy lead in one of two pods, and use it."""
        for pod in ("tower-0", "tower-1"):
            labels = {"app.kubernetes.io/name": "tower"}
            if pod == "tower-1":
                labels["tower.kubesphere.io/leader"] = "true"  # left by a leader that was killed
            spec = {"containers": [{"name": "proxy", "image": "tower"}]}
            body = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": pod, "labels": labels},
                "spec": spec,
            }
            self.kubectl("create", "-f", "-", stdin=body)
        tower = self.inside
        tower.start()
        wait_for("the label", lambda: "tower-0" in self.kubectl("get", "pod", "-l", LEADER, "-o", "name"))
        tower.add("alpha", self.member.agent)
        tower.kubeconfig("alpha", "jane")
        listed = tower.tower("credential", "list", "--cluster=alpha").splitlines()
        (line,) = (each for each in listed if "jane" in each)
        tower.tower("credential", "revoke", line.split()[0])
        self.issue_tokens(tower)
        key = tower.node_files / "id"
        key.write_text("no key")
        ssh = ("--ssh-user=core", "--ssh-keyfile=id", "--ssh-host-keys=accept-new", "--nodes=127.0.0.1:1")
        tower.tower("cluster", "add", "gamma", "--type=ssh", *ssh, f"--member-kubeconfig={self.member.agent}")
        tower.tower("cluster", "set", "gamma", f"--member-kubeconfig={self.member.cluster_admin.kubeconfig}")
        self.apply("beta")
        wait_for("the Service", lambda: self.exists("service/mc-beta"))
        self.apply("beta", externalKubeAPIEnabled=True)
        form = ("-o", "jsonpath={.spec.type}")
        wait_for("the type", lambda: self.kubectl("get", "service", "mc-beta", *form) == "LoadBalancer")
        wait_for("the Secret", lambda: self.exists("secret/mc-beta"))
        self.kubectl("delete", "secret", "mc-beta")
        wait_for("the Secret again", lambda: self.exists("secret/mc-beta"))
        self.apply("beta", is_joined=False)
        wait_for("no Service", lambda: not self.exists("service/mc-beta"))
        tower.tower("rotate", "host-key", "--now", "--yes")

    def issue_tokens(self, tower: Tower) -> None:
        """Issue tokens of each kind; no object of the host has one, plain or encoded."""
        joined = tower.tower("join", "alpha")
        config = tower.kubeconfig("alpha", "jane", "--auth=token").read_text()
        tokens = re.findall(r"\btower-[\w-]{43}(?![\w-])|\btowerk-[\w-]{43}(?![\w-])", joined + config)
        self.assertEqual(len({*tokens}), 2, joined)
        shown = self.kubectl("get", ",".join((*KINDS, "secrets", "events")), "-A", "-o", "json")
        self.assertIn(sha256(tokens[0].encode()).hexdigest(), shown)
        for token in tokens:
            self.assertNotIn(token, shown)
            self.assertNotIn(b64encode(token.encode()).decode().rstrip("="), shown)

    def lead_outside(self) -> None:
        """Hand over to a standby outside of the host cluster."""
        self.outside.proxy.start()
        role = self.outside.state / "host-cluster"
        wait_for("the standby", lambda: role.exists() and role.read_text().startswith("standby: tower-0"))
        self.inside.stop()
        wait_for("the new leader", self.outside.healthy)
        self.apply("beta")
        name = "endpointslice/mc-beta-ipv4"
        wait_for("the endpoints", lambda: self.exists(name))
        self.kubectl("patch", name, "--type=merge", "-p", '{"endpoints":[]}')
        wait_for("the address", lambda: ADDRESS in self.kubectl("get", name, "-o", "yaml"))
        self.apply("beta", is_joined=False)
        wait_for("no endpoints", lambda: not self.exists(name))
        self.apply("beta")

    def lose_rights(self) -> None:
        """Take some rights from the running proxy: page and condition show it until they are back."""
        role = json.loads(self.kubectl("get", "role", "tower-host", "-o", "json"))
        for rule in role["rules"]:
            if "services" in rule["resources"]:
                rule["verbs"] = ["get", "list", "watch"]
        patch = json.dumps({"rules": role["rules"]})
        self.kubectl("patch", "role", "tower-host", "--type=merge", "-p", patch)
        wait_for("the loss of the rights", lambda: not self.may_delete_services())
        form = 'jsonpath={.status.conditions[?(@.type=="Initialized")].reason}'
        reason = ("get", "cluster", "beta", "-o", form)
        self.apply("beta", is_joined=False)
        wait_for("the condition", lambda: self.kubectl(*reason) == "Forbidden")
        wait_for("the problem", lambda: "grant it the rights of 'tower rbac host" in self.outside.page())
        self.do("tower rbac host | kubectl apply -f -")
        wait_for("the end", lambda: self.kubectl(*reason) == "NotJoined")
        wait_for("no problem", lambda: "grant it the rights" not in self.outside.page())
        self.apply("beta")
        wait_for("the Service again", lambda: self.exists("service/mc-beta"))

    def may_delete_services(self) -> bool:
        """Return whether the API server, which follows its roles, allows the proxy to delete Services."""
        wanted = {"namespace": NAMESPACE, "verb": "delete", "resource": "services"}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": self.access.user, "resourceAttributes": wanted},
        }
        answer = self.kubectl("create", "-f", "-", "-o", "jsonpath={.status.allowed}", stdin=review)
        return answer == "true"

    def check_rights(self) -> None:
        """Compare the requests of the proxy with its rights, in both directions."""
        events = [
            each for each in self.member.audit(self.log) if each["user"]["username"] == self.access.user
        ]
        denied = [f"{each['verb']} {each['requestURI']}" for each in events if _code(each) == 403]
        self.assertEqual(denied, [])
        used = {_request(each) for each in events if "objectRef" in each}
        rights = set(_rights(self.do("tower rbac host")))
        self.assertLessEqual(AFTER_CONFLICTS, rights)
        self.assertEqual({right for right in rights - AFTER_CONFLICTS if not _is_used(right, used)}, set())


Right = tuple[str, str, str, str]


def _rights(manifest: str) -> Iterator[Right]:
    """Yield group, resource, name (empty: any) and verb of each right in a manifest."""
    for each in yaml.safe_load_all(manifest):
        for rule in each.get("rules", ()):
            (group,) = rule["apiGroups"]
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames", [""]):
                        yield group, _kind(group, resource), name, verb


def _request(event: dict[str, Any]) -> Right:
    reference = event["objectRef"]
    group = reference.get("apiGroup", "")
    resource = "/".join(filter(None, (reference["resource"], reference.get("subresource", ""))))
    return group, _kind(group, resource), reference.get("name", ""), event["verb"]


def _kind(group: str, resource: str) -> str:
    """Return the same word for all kinds of records, which have the same rights."""
    return "records" if group == "tower.kubesphere.io" and resource != "transactions" else resource


def _is_used(right: Right, used: set[Right]) -> bool:
    group, resource, name, verb = right
    return any(each[:2] == (group, resource) and each[3] == verb and name in ("", each[2]) for each in used)


def _code(event: dict[str, Any]) -> int:
    return int(event.get("responseStatus", {}).get("code", 0))
