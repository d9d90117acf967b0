"""``tower login`` with Dex, browsers and kubectl: contexts, the plugin, and the end of sessions."""

from __future__ import annotations

import json
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlsplit
from urllib.request import Request, urlopen

import yaml
from twisted.trial.unittest import SynchronousTestCase

from tests.integration import certified_provider, dex
from tests.integration.certified_provider import CertifiedProvider
from tests.integration.harness import Tower
from tests.integration.matrix import Matrix
from tests.integration.member import Running, kubectls, member, oldest_and_newest
from tests.integration.person_login import PersonAtMachine, browse, chromium, follower, form_browser
from tests.integration.plain_service import COOKIE, PlainService
from tests.integration.programs import run, script, wait_for
from tests.integration.shared_clock import set_clock
from tests.integration.token_issuer import TokenIssuer
from tests.integration.token_users import CLUSTERS, PODS, allow, anybody, is_authenticated, message


class LoginTests(SynchronousTestCase):
    """A Tower with Dex as identity provider, and one real cluster."""

    timeout = 300

    def setUp(self) -> None:
        """Start both."""
        self.folder = Path(tempfile.mkdtemp(prefix="tower-test-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.dex = dex.Dex(self.folder)
        self.addCleanup(self.dex.stop)
        self.dex.start()
        self.tower = Tower(self.folder)
        self.addCleanup(self.tower.stop)
        self.tower.proxy = self.tower.proxy_program(
            f"--oidc-issuer-url={self.dex.url}",
            f"--oidc-client-id={dex.CLIENT}",
            f"--login-client-id={self.dex.url}={dex.PUBLIC_CLIENT}",
            f"--oidc-ca-file={self.dex.ca}",
            "--oidc-username-claim=email",
            "--oidc-groups-claim=groups",
        )
        self.tower.start()
        self.url = f"https://127.0.0.1:{self.tower.secure_port}"
        wait_for("the keys", lambda: "its keys are in use" in self.tower.proxy.output(), 30)
        allow(self.tower, "authors", {"kind": "Group", "name": "authors"}, "alpha", "beta")

    def person(self, browser: str) -> PersonAtMachine:
        """Return a user at an own machine."""
        return PersonAtMachine(Path(tempfile.mkdtemp(dir=self.folder)), browser)

    def test_kubectl(self) -> None:
        """kubectl, old and new, uses the contexts; the end of the session cuts its watch and its access."""
        cluster = Running(self.folder, "--bare")
        self.addCleanup(cluster.stop)
        cluster.run()
        service = PlainService()
        self.addCleanup(service.close)
        self.tower.add("alpha", cluster.member.admin, f"--target=web=127.0.0.1:{service.port}")
        self.tower.tower("cluster", "add", "beta")
        jane = self.person(chromium(self.folder))
        jane.kubeconfig.parent.mkdir()
        own: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "mine",
            "x": {"kept": True},
        }
        own |= {"contexts": [{"name": "mine", "context": {"cluster": "c", "user": "u"}}]}
        own |= {"clusters": [{"name": "c", "cluster": {"server": "https://c"}}], "users": [{"name": "u"}]}
        jane.kubeconfig.write_text(yaml.safe_dump(own))
        jane.kubeconfig.chmod(0o600)

        code, _, error = jane.try_tower("login", self.url)
        self.assertEqual(code, 1)
        self.assertIn("cannot be verified", error)
        self.assertIn("--certificate-authority FILE", error)
        ca = self.tower.state / "serving-ca.pem"
        out = jane.tower("login", self.url, "--certificate-authority", str(ca))
        self.assertIn(f"logged in to {self.url} as {dex.USER} until ", out)
        self.assertIn("tower/alpha\n  tower/beta\n", out)
        page = self.folder / "page.html"  # complete when the browser ends
        wait_for("the page", lambda: "has confirmed your identity" in page.read_text(), 60)
        written = yaml.safe_load(jane.kubeconfig.read_text())
        self.assertEqual((written["current-context"], written["x"]), ("mine", {"kept": True}))
        self.assertEqual(written["contexts"][0], own["contexts"][0])

        listed = jane.tower("cluster", "list")
        self.assertRegex(listed, r"tower/alpha +alpha +True +full\n")
        admin = cluster.member.kubectl
        admin("create", "clusterrole", "reader", "--verb=get,list,watch", "--resource=namespaces,configmaps")
        admin("create", "clusterrolebinding", "authors", "--clusterrole=reader", "--group=authors")
        oldest, newest = oldest_and_newest()
        for program in (oldest, newest):
            self.assertIn("default", jane.kubectl(program, "--context", "tower/alpha", "get", "namespaces"))
        out = jane.kubectl(newest, "--context", "tower/alpha", "auth", "whoami", "-o", "json")
        user = json.loads(out)["status"]["userInfo"]
        self.assertEqual((user["username"], user["groups"][0]), (dex.USER, "authors"))
        text = jane.kubeconfig.read_text()
        older = text.replace("authentication.k8s.io/v1\n", "authentication.k8s.io/v1beta1\n")
        self.assertNotEqual(older, text)
        jane.kubeconfig.write_text(older)
        self.assertIn("default", jane.kubectl(oldest, "--context", "tower/alpha", "get", "namespaces"))

        self.check_commands(jane)
        watch = jane.begin_kubectl(newest, "--context", "tower/alpha", "get", "namespaces", "--watch")
        assert watch.stdout is not None
        watch.stdout.readline()
        (name,) = re.findall(r"^(s-\w+)", self.tower.tower("session", "list"), re.MULTILINE)
        path = f"/apis/cluster.kubesphere.io/v1alpha1/loginsessions/{name}"
        config = self.tower.state / "admin.kubeconfig"
        words = ("delete", "loginsession", name, "--dry-run=server")
        jane.kubectl(newest, "--kubeconfig", str(config), *words)
        self.assertIn(name, self.tower.tower("session", "list"))
        self.assertEqual(self.tower.admin().request("DELETE", path).status, 200)
        begin = time.monotonic()
        watch.communicate(timeout=30)
        self.assertLess(time.monotonic() - begin, 4, "the watch")
        code, _, error = jane.try_kubectl(newest, "--context", "tower/alpha", "get", "namespaces")
        self.assertNotEqual(code, 0)
        self.assertIn("this login session has ended", error)
        self.assertIn(f"(tower login {self.url})", error)
        code, _, error = jane.try_tower("cluster", "list")
        self.assertEqual(code, 1)
        self.assertIn("this login session has ended", error)

    def check_commands(self, jane: PersonAtMachine) -> None:
        """Check the commands of Tower that use a context."""
        for words in (("doctor", "alpha"), ("--context", "tower/alpha", "doctor")):
            self.assertIn(f"user: {dex.USER}, groups authors", jane.tower(*words))
        forward = jane.begin("forward", "alpha", "web", "--listen", "127.0.0.1:0")
        self.addCleanup(forward.kill)
        assert forward.stderr is not None
        found = re.search(r"forwarding (\S+) to alpha/web", forward.stderr.readline())
        assert found is not None
        request = Request(f"http://{found[1]}/home", headers={"Cookie": COOKIE})
        with urlopen(request, timeout=60) as answer:
            self.assertEqual(answer.read(), b"welcome")
        forward.send_signal(signal.SIGINT)
        forward.communicate(timeout=30)

    def test_doctor(self) -> None:
        """The checks of the proxy's machine include the provider, as the proxy and as this machine see it."""
        words = [script("tower"), "--state-dir", str(self.tower.state), "doctor"]
        out = run(words).stdout.decode()
        self.assertRegex(out, rf"ok +proxy's keys: keys of {self.dex.url} in use by the proxy: \d+\n")
        self.assertRegex(out, r"ok +identity provider: .*\nok +provider's keys: usable keys at .*: \d+\n")
        self.assertIn("ok    provider's clock: ", out)
        self.dex.kill()
        done = run(words)
        self.assertEqual(done.returncode, 1)
        (line,) = (line for line in done.stdout.decode().splitlines() if line.startswith("FAIL"))
        self.assertRegex(line, "FAIL +identity provider: .*refused -> start the provider, or correct its URL")

    def test_matrix_newest(self) -> None:
        """All operations of the newest kubectl work with a login's context, also as other users."""
        self.matrix(kubectls()[-1])

    def test_matrix_oldest(self) -> None:
        """All operations of the oldest kubectl work with a login's context, also as other users."""
        self.matrix(kubectls()[0])

    def matrix(self, kubectl: Path) -> None:
        """Run them, also by impersonation."""
        cluster = member()
        self.tower.add("alpha", cluster.agent)
        bind = ("create", "clusterrolebinding", "authors", "--clusterrole=cluster-admin", "--group=authors")
        cluster.kubectl(*bind)
        self.addCleanup(cluster.kubectl, "delete", "clusterrolebinding", "authors")
        admin = f"--kubeconfig={self.tower.state / 'admin.kubeconfig'}"
        done = run([str(kubectls()[-1]), admin, *bind])  # Tower lets them act as others
        self.assertEqual(done.returncode, 0, done.stderr)
        jane = self.person(follower())
        jane.tower("login", self.url, "--certificate-authority", str(self.tower.state / "serving-ca.pem"))
        since = cluster.audit_size()
        matrix = Matrix(self.folder, cluster, kubectl, jane.kubeconfig, environment=jane.plugin_environment)
        self.addCleanup(matrix.stop)
        matrix.start()
        self.assertEqual(matrix.failed(), [])
        self.assertEqual(cluster.acted(cluster.least, since), {dex.USER, "jane"})

    def test_device_and_logout(self) -> None:
        """A code for another machine; then a logout removes contexts and the session."""
        self.tower.tower("cluster", "add", "alpha")
        joe = self.person("")
        words = [
            "login",
            self.url,
            "--device",
            "--certificate-authority",
            str(self.tower.state / "serving-ca.pem"),
        ]
        process = joe.begin(*words)
        assert process.stderr is not None
        found = re.search(r"open (\S+) on any machine.* code (\S+)", process.stderr.readline())
        assert found is not None
        self.assertIn("only if you started the login yourself", process.stderr.readline())
        self.dex.enter(found[2])
        out, error = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, error)
        self.assertIn("tower/alpha", out)
        self.assertIn("the current context is tower/alpha", out)
        self.assertIn("s-", self.tower.tower("session", "list"))
        out = joe.tower("logout")
        self.assertIn(f"logged out of {self.url}; removed 1 contexts", out)
        self.assertEqual(yaml.safe_load(joe.kubeconfig.read_text())["contexts"], [])
        self.assertIn("no login sessions", self.tower.tower("session", "list"))
        code, _, error = joe.try_tower("credential", "get", "--server", self.url)
        self.assertEqual(code, 1)
        self.assertIn(f"run 'tower login {self.url}'", error)

    def test_callback_page(self) -> None:
        """The page of the login accepts only the answer to its own request, and reports a refusal."""
        jane = self.person("true")
        ca = str(self.tower.state / "serving-ca.pem")
        process = jane.begin("login", self.url, "--browser", "--certificate-authority", ca)
        assert process.stderr is not None
        process.stderr.readline()
        query = parse_qs(urlsplit(process.stderr.readline().strip()).query)
        (page,), (state,) = query["redirect_uri"], query["state"]
        page = page.replace("localhost", "127.0.0.1")
        for bad in (
            "?code=x",
            "?code=x&state=x",
            f"?code=x&state={state}&iss=https://other",
            f"x?state={state}",
        ):
            self.assertRaises(HTTPError, urlopen, page + bad)
        self.assertIsNone(process.poll())
        error: HTTPError = self.assertRaises(HTTPError, urlopen, f"{page}?error=access_denied&state={state}")
        self.assertEqual(error.code, 400)
        _, text = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1)
        self.assertIn("refused the login: access_denied", text)

    def test_confirmation(self) -> None:
        """The provider confirms a session after ten minutes; one that it does not know any more ends."""
        self.tower.tower("cluster", "add", "alpha")
        jane = self.person(follower())
        jane.tower("login", self.url, "--certificate-authority", str(self.tower.state / "serving-ca.pem"))
        set_clock(self.tower, 600)
        self.assertIn("no agent", self.asked(jane)[1], "the session is confirmed")
        set_clock(self.tower, 1200)
        status, text = self.asked(jane)  # with the next refresh token
        self.assertIn("no agent", text, self.tower.proxy.output())
        self.dex.kill()
        set_clock(self.tower, 1800)
        status, text = self.asked(jane)
        self.assertEqual(status, 503, text)
        self.assertIn("does not answer, and must confirm kilgore@kilgore.trout every ten minutes", text)
        self.dex.start()  # without its former users
        wait_for("the end", lambda: self.asked(jane)[0] == 401, 60)
        code, _, error = jane.try_tower("credential", "get", "--server", self.url)
        self.assertEqual(code, 1)
        self.assertIn("this login session has ended", error)
        self.assertRegex(self.tower.proxy.output(), r"login session s-\w+ of kilgore@kilgore.trout ends: ")
        metrics = self.tower.admin().get("/metrics").body.decode()
        self.assertRegex(metrics, r'tower_login_confirmations_total\{result="refused"\} 1(\.0)?\n')
        self.assertRegex(metrics, r"tower_login_sessions 0(\.0)?\n")

    def asked(self, jane: PersonAtMachine) -> tuple[int, str]:
        """Return status and message of a request with a new token."""
        for path in jane.home.rglob("*.token"):
            path.unlink()
        code, out, error = jane.try_tower("credential", "get", "--server", self.url)
        if code:
            return 401, error
        status, _, text = message(anybody(self.tower), PODS, json.loads(out)["status"]["token"])
        return status, text

    def test_second_tower_and_groups(self) -> None:
        """The contexts of a second Tower have its host; a new login replaces the session."""
        self.tower.tower("cluster", "add", "alpha")
        jane = self.person(follower())
        jane.kubeconfig.parent.mkdir()
        other = {"name": "tower/alpha", "cluster": {"server": "https://other.example/clusters/alpha"}}
        context = {"name": "tower/alpha", "context": {"cluster": "tower/alpha", "user": "tower/alpha"}}
        jane.kubeconfig.write_text(
            yaml.safe_dump({"clusters": [other], "contexts": [context], "users": [{"name": "tower/alpha"}]})
        )
        ca = str(self.tower.state / "serving-ca.pem")
        name = "127.0.0.1/alpha"
        self.assertIn(name, jane.tower("login", self.url, "--certificate-authority", ca))
        self.assertIn(name, jane.tower("login", self.url))
        sessions = self.tower.tower("session", "list")
        self.assertEqual(sessions.count("s-"), 1, sessions)
        written = yaml.safe_load(jane.kubeconfig.read_text())
        self.assertEqual([each["name"] for each in written["contexts"]], ["tower/alpha", name])
        self.assertEqual(written["clusters"][0], other)

    def test_changed_contexts(self) -> None:
        """Names and the current context that a user chose with kubectl stay after later logins."""
        for name in ("alpha", "beta"):
            self.tower.tower("cluster", "add", name)
        jane, program = self.person(follower()), kubectls()[-1]
        words = ["login", self.url, "--certificate-authority", str(self.tower.state / "serving-ca.pem")]
        jane.tower(*words)
        config = partial(jane.kubectl, program, "config")
        config("rename-context", "tower/beta", "prod")
        config("use-context", "prod")
        self.assertIn("the current context is prod", jane.tower(*words))
        self.assertEqual(config("get-contexts", "-o", "name").split(), ["prod", "tower/alpha"])
        self.assertIn("no agent", jane.try_kubectl(program, "get", "pods")[2])
        self.tower.tower("cluster", "remove", "beta", "-y")
        self.assertIn("the current context was prod: choose another one", jane.tower(*words))
        self.assertEqual(config("current-context"), "prod\n")
        error = jane.try_kubectl(program, "get", "pods")[2]
        self.assertIn("context was not found for specified context: prod", error)
        jane.tower("logout")
        self.assertNotIn("the current context is", jane.tower(*words))
        self.assertEqual(config("get-contexts", "-o", "name").split(), ["tower/alpha"])


class CertifiedProviderTests(SynchronousTestCase):
    """A provider whose refresh tokens are valid once, and require consent; its client has a secret."""

    timeout = 300

    def test_logins(self) -> None:
        """By browser and by device code; refresh tokens are replaced, and revoked at the end of a session."""
        folder = Path(tempfile.mkdtemp(prefix="tower-test-"))
        self.addCleanup(shutil.rmtree, folder, True)
        provider = CertifiedProvider(folder, {"jane": ["authors"], "joe": ["authors"]})
        self.addCleanup(provider.stop)
        provider.start()
        secret = folder / "client-secret"
        secret.write_text(certified_provider.SECRET)
        tower = Tower(folder)
        self.addCleanup(tower.stop)
        tower.proxy = tower.proxy_program(
            f"--oidc-issuer-url={provider.url}",
            f"--oidc-client-id={certified_provider.CLIENT}",
            f"--login-client-id={provider.url}={certified_provider.CLIENT}",
            f"--login-client-secret-file={provider.url}={secret}",
            f"--oidc-ca-file={provider.ca}",
            "--oidc-username-prefix=-",
            "--oidc-groups-claim=groups",
        )
        tower.start()
        wait_for("the keys", lambda: "its keys are in use" in tower.proxy.output(), 30)
        tower.tower("cluster", "add", "alpha")
        allow(tower, "authors", {"kind": "Group", "name": "authors"}, "alpha")
        url = f"https://127.0.0.1:{tower.secure_port}"
        words = ("login", url, "--certificate-authority", str(tower.state / "serving-ca.pem"))

        jane = PersonAtMachine(Path(tempfile.mkdtemp(dir=folder)), form_browser("jane"))
        for answers in (2, 1):  # the first login learns that the provider needs the user's consent
            before = provider.count("authorization.success")
            code, out, shown = jane.try_tower(*words)
            self.assertEqual(code, 0, shown)
            self.assertIn("as jane until", out)
            self.assertEqual(shown.count("log in with a browser"), 1, shown)
            self.assertEqual(provider.count("authorization.success") - before, answers)
        jane.tower("logout")
        self.assertIn("as jane until", jane.tower(*words))

        joe = PersonAtMachine(Path(tempfile.mkdtemp(dir=folder)))
        process = joe.begin(*words, "--device")
        assert process.stderr is not None
        found = re.search(r"open (\S+) on any machine", process.stderr.readline())
        assert found is not None
        browse(found[1], "joe")
        out, error = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, error)
        self.assertIn("as joe until", out)

        for ahead in (600, 1200):  # the second confirmation has the refresh token of the first one
            set_clock(tower, ahead)
            for person in (jane, joe):
                self.assertIn("tower/alpha", person.tower("cluster", "list"))
        self.assertEqual(provider.count("grant.error"), 0, provider.program.output())
        provider.set_users({"joe": ["authors"]})
        set_clock(tower, 1800)
        code, _, error = jane.try_tower("cluster", "list")
        self.assertEqual(code, 1)
        self.assertIn("this login session has ended", error)
        self.assertIn("tower/alpha", joe.tower("cluster", "list"))
        self.assertRegex(tower.proxy.output(), r"login session s-\w+ of jane ends: .*invalid_grant")

        (name,) = re.findall(r"^(s-\w+)", tower.tower("session", "list"), re.MULTILINE)
        before = provider.count("grant.revoked")
        path = f"/apis/cluster.kubesphere.io/v1alpha1/loginsessions/{name}"
        self.assertEqual(tower.admin().request("DELETE", path).status, 200)
        wait_for("the revocation", lambda: provider.count("grant.revoked") == before + 1, 30)
        self.assertNotIn("was not revoked", tower.proxy.output())


#: Claims as the systems document them, and the user that the mappings below make of them.
WORKLOADS: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "github": (
        {
            "sub": "repo:acme/shop:ref:refs/heads/main",
            "repository": "acme/shop",
            "repository_owner": "acme",
            "ref": "refs/heads/main",
            "ref_type": "branch",
            "workflow": "deploy",
            "event_name": "push",
            "runner_environment": "github-hosted",
            "job_workflow_ref": "acme/shop/.github/workflows/deploy.yml@refs/heads/main",
            "run_id": "1",
            "run_attempt": "1",
            "actor": "jane",
        },
        "github:repo:acme/shop:ref:refs/heads/main",
    ),
    "gitlab": (
        {
            "sub": "project_path:acme/shop:ref_type:branch:ref:main",
            "namespace_path": "acme",
            "project_path": "acme/shop",
            "project_id": "22",
            "user_login": "jane",
            "pipeline_source": "push",
            "ref": "main",
            "ref_type": "branch",
            "ref_protected": "true",
            "environment": "production",
        },
        "gitlab:project_path:acme/shop:ref_type:branch:ref:main",
    ),
    "kubernetes": (
        {
            "sub": "system:serviceaccount:ci:deployer",
            "kubernetes.io": {
                "namespace": "ci",
                "serviceaccount": {"name": "deployer", "uid": "u"},
                "pod": {"name": "p", "uid": "u2"},
            },
        },
        "build:system:serviceaccount:ci:deployer",
    ),
}


class WorkloadTests(SynchronousTestCase):
    """Pipelines whose system signs a token for each job."""

    timeout = 240

    def test_exchange(self) -> None:
        """Each token becomes a short session where a policy admits the user; without one it is rejected."""
        folder = Path(tempfile.mkdtemp(prefix="tower-test-"))
        self.addCleanup(shutil.rmtree, folder, True)
        issuers = {name: TokenIssuer(folder, name) for name in WORKLOADS}
        entries = []
        for name, issuer in issuers.items():
            self.addCleanup(issuer.close)
            prefix = "build:" if name == "kubernetes" else f"{name}:"
            mappings: dict[str, Any] = {"username": {"claim": "sub", "prefix": prefix}}
            if name != "kubernetes":
                project = "repository" if name == "github" else "project_path"
                extra = {"key": "example.org/repository", "valueExpression": f"claims.{project}"}
                mappings["extra"] = [extra]
            where = {"url": issuer.url, "audiences": ["tower"], "certificateAuthority": issuer.ca.read_text()}
            entries.append({"issuer": where, "claimMappings": mappings})
        path = folder / "authentication.yaml"
        head = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration"}
        path.write_text(yaml.safe_dump({**head, "jwt": entries}))
        tower = Tower(folder)
        self.addCleanup(tower.stop)
        tower.proxy = tower.proxy_program(f"--authentication-config={path}", "--login-workload-ttl=10m")
        tower.start()
        tower.tower("cluster", "add", "alpha")
        url, ca = f"https://127.0.0.1:{tower.secure_port}", str(tower.state / "serving-ca.pem")
        claim = {"kind": "Claim", "name": "example.org/repository", "value": "acme/shop"}
        for name, (claims, user) in WORKLOADS.items():
            job = PersonAtMachine(Path(tempfile.mkdtemp(dir=folder)))
            file = job.home / "token"
            token = issuers[name].token(**claims)
            file.write_text(token)
            client = anybody(tower)
            wait_for("the keys", partial(is_authenticated, client, CLUSTERS, token), 30)
            words = ("login", url, "--certificate-authority", ca, "--token-file", str(file))
            if name != "gitlab":  # the claim's policy is for both
                code, _, error = job.try_tower(*words)
                self.assertEqual(code, 1, name)
                self.assertIn(f"no access policy admits {user} to a cluster", error)
                subject = {"kind": "User", "name": user} if name == "kubernetes" else claim
                allow(tower, name, subject, "alpha")
            self.assertIn(f"as {user} until", job.tower(*words))
            self.assertNotIn(token, job.kubeconfig.read_text())
            self.assertIn("tower/alpha", job.tower("cluster", "list"))
            answer = json.loads(job.tower("credential", "get", "--server", url, "--token-file", str(file)))
            self.assertTrue(answer["status"]["token"].startswith("towerk-"))
        listed = tower.tower("session", "list", "-o", "json")
        lives = [each["spec"] for each in json.loads(listed)["items"]]
        self.assertEqual({each["user"] for each in lives}, {user for _, user in WORKLOADS.values()})
        self.assertNotIn("Traceback", tower.proxy.output())
