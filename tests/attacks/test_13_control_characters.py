"""Item 13: characters that control terminals, or split or turn a line, from users and from agents."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

from tests.attacks.cleanliness import HOSTILE, WORSE, unfit
from tests.integration import harness
from tests.integration.backends import Backend
from tests.integration.person import Answer
from tests.integration.programs import wait_for
from tests.integration.raw_peer import Gone, RawPeer, agent_peer, open_socket
from tower.conch.transport.keys import KeyPair
from tower.v2.hello import AgentHello

PODS = "/api/v1/namespaces/{}/pods"
CLUSTERS = "/apis/cluster.kubesphere.io/v1alpha1/clusters"


class UserTests(harness.TowerTestCase):
    """A user and an administrator who put them into every text that they can set.

    :cvar form: of the audit log.
    """

    form: ClassVar[str] = "json"
    place: Path

    def setUp(self) -> None:
        """Start a cluster."""
        super().setUp()
        backend = Backend(self.folder, "alpha")
        self.addCleanup(backend.program.stop)
        backend.start()
        self.tower.add("alpha", backend.kubeconfig("alpha"), harness.PATIENT)

    def new_tower(self) -> harness.Tower:
        """Return a Tower with an audit log."""
        tower = super().new_tower()
        self.place = self.folder / "audit.log"
        tower.proxy = tower.proxy_program(
            f"--audit-log-path={self.place}", f"--audit-log-format={self.form}", "--v=4"
        )
        return tower

    def assertStatus(self, answer: Answer, code: int) -> str:
        """A Status is printable, as it is sent and as clients print it; return its message."""
        self.assertEqual(answer.status, code, answer.body)
        self.assertEqual(unfit(answer.body), [])
        message = json.loads(answer.body)["message"]
        self.assertEqual(unfit(message), [])
        return str(message)

    def assertLogged(self, *wanted: str) -> None:
        """The log and the audit log are printable, and the latter has all wanted texts."""
        wait_for("the audit", lambda: all(each in self.place.read_text() for each in wanted))
        self.assertEqual(unfit(self.place.read_bytes()), [])
        self.assertEqual(unfit(self.tower.proxy.output()), [])

    def test_requests(self) -> None:
        """Paths, names in paths, User-Agents and claims of other identities."""
        jane = self.tower.person("alpha", "jane")
        raw = HOSTILE.encode().decode("latin-1")  # as http.client sends UTF-8
        path = PODS.format(quote(HOSTILE)) + f"/{quote(WORSE)}"
        jane.request("GET", jane.prefix + path, headers={"User-Agent": raw})
        claims = {"Impersonate-User": raw, "Impersonate-Group": raw}
        self.assertStatus(jane.request("GET", jane.prefix + "/api", headers=claims), 403)
        self.assertStatus(jane.request("GET", f"/clusters/alpha/targets/{quote(HOSTILE)}/"), 404)
        self.assertStatus(jane.request("GET", f"/clusters/{quote(HOSTILE)}/"), 400)
        self.assertLogged(*self.wanted)
        self.assertIn("%C2%9B", self.place.read_text())

    #: Its form in the audit log.
    wanted: ClassVar[tuple[str, ...]] = (
        r'"userAgent":"\u009b31mred\u009d0;title\u009c\u0085forged\u2028',
        r'"namespace":"\u009b31mred',
        r"forged\u001b[2J\u009b",
    )

    def test_administration(self) -> None:
        """Names and values in Tower's own API, by hand and by its command; no such user is made."""
        admin = self.tower.admin()
        for user in ("x\x9b31m", "a\u2028b", "a\rb", "a\x85b", "\u202ex"):
            code, out, error = self.tower.try_tower("kubeconfig", "alpha", "--user", user)
            self.assertEqual((code, out, unfit(error)), (2, "", []))
            self.assertIn("printable", error)
            code, out, error = self.tower.try_tower("kubeconfig", "alpha", "--user", "x", "--group", user)
            self.assertEqual((code, out, unfit(error)), (2, "", []))
            self.assertEqual(self.tower.try_tower("cluster", "add", user)[0], 2)
        for query in ("labelSelector", "fieldSelector", "resourceVersion", "timeoutSeconds"):
            answer = admin.get(f"{CLUSTERS}?watch=1&{query}={quote(WORSE)}")
            self.assertStatus(answer, answer.status)
            self.assertGreaterEqual(answer.status, 400)
        body = {"kind": "Cluster", "metadata": {"name": "x", WORSE: 1}, "spec": {"enable": WORSE, WORSE: 1}}
        for query in ("", "?fieldValidation=Strict", f"?dryRun={quote(WORSE)}"):
            data, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
            answer = admin.request("POST", CLUSTERS + query, body=data, headers=headers)
            self.assertStatus(answer, answer.status)
            self.assertGreaterEqual(answer.status, 400)
            self.assertTrue(all(value.isprintable() for value in answer.headers.values()))
        self.assertLogged()

    def test_output(self) -> None:
        """The command's output of a member's or an administrator's words, in every form."""
        annotations = {"note": HOSTILE}
        answer = self.tower.admin().request(
            "PATCH",
            f"{CLUSTERS}/alpha",
            body=json.dumps({"metadata": {"annotations": annotations}}).encode(),
            headers={"Content-Type": "application/merge-patch+json"},
        )
        self.assertEqual((answer.status, unfit(answer.body)), (200, []))
        for form in ("json", "yaml", "table"):
            out = self.tower.tower("cluster", "show", "alpha", "-o", form)
            self.assertEqual(unfit(out), [], form)
        shown = json.loads(self.tower.tower("cluster", "show", "alpha", "-o", "json"))
        self.assertEqual(shown["metadata"]["annotations"]["note"], HOSTILE)


class LegacyUserTests(UserTests):
    """The same with the other format of the audit log."""

    form = "legacy"
    wanted = (r'as="\u009b31mred', r'asgroups="\"', r'namespace="\u009b31mred')


class AgentTests(harness.TowerTestCase):
    """A client that is not an agent yet."""

    def test_hello(self) -> None:
        """An agent with such a name or version is rejected; names from clients are escaped in the log."""
        self.tower.tower("cluster", "add", "evil")
        line = self.tower.tower("join", "evil")
        words: Any = shlex.split(line)
        host_key = words[words.index("--host-key") + 1]
        token = re.search(r"tower-[0-9A-Za-z_-]{20,}", line)
        assert token is not None
        port = self.tower.port
        for hello in (AgentHello(version=HOSTILE), AgentHello(name=WORSE), AgentHello(server=HOSTILE)):
            peer: RawPeer = agent_peer(port, "evil", KeyPair.generate(), host_key, token[0])
            peer.ssh._hello = hello
            self.assertRaises(Gone, peer.authenticate)
            peer.close()
        rejected = agent_peer(port, f"evil{HOSTILE}", KeyPair.generate(), host_key, token[0])
        self.assertRaises(Gone, rejected.authenticate)
        rejected.close()
        with open_socket(port) as early:
            early.sendall(RawPeer(early, None, from_client=False).writer.wrap(WORSE.encode()))
        wait_for("the lines", lambda: self.tower.proxy.output().count("was rejected") >= 5)
        self.assertEqual(unfit(self.tower.proxy.output()), [])
