"""The same requests, with the same credentials, have the same answers of a real kube-apiserver and of Tower.

The tables are in `tests.integration.differential`.
"""

from __future__ import annotations

import shutil
import time
from functools import partial
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.fakes.certificates import DAY, authority
from tests.integration import harness
from tests.integration.differential import ASKING
from tests.integration.differential.answers import difference, is_as_stated
from tests.integration.differential.asks import Ask, Certificate, Hook, Token
from tests.integration.differential.certificates import Authorities
from tests.integration.differential.impersonation import RULES
from tests.integration.differential.rbac_objects import ROLES, binding, cluster_role, role
from tests.integration.differential.servers import Answer, Side, Signer, answer_of
from tests.integration.differential.tokens import AUDIENCE, ISSUER
from tests.integration.member import Running
from tests.integration.person import Person
from tests.integration.programs import LOOPBACK, run, wait_for
from tests.integration.review_webhook import ReviewWebhook, reviewed_user

#: Both servers know these users; kube-apiserver also knows an administrator.
TOKENS = """\
plain-token,joe,1,"dev,qa"
twice,first,2
,nobody,3
twice,second,4
t-jane,jane,7,dev
"""
ROOT = "t-root,root,0,system:masters\n"

_USER = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "jane"}

#: Both servers have these objects: jane has the rights of RULES, in Tower for Tower's own API.
OBJECTS = (
    role("acting", *RULES),
    binding("acting", cluster_role("acting"), _USER),
    role("one", namespace="default"),
)


class AsKubeAPIServerTests(harness.TowerTestCase):
    """All rows."""

    timeout = 300

    def setUp(self) -> None:
        """Start both servers, and create the objects in both."""
        self.authorities = Authorities(time.time())
        super().setUp()
        log = self.server.member.place / "kube-apiserver.log"
        admin = Person(self.tower.state / "admin.kubeconfig")
        jane = {"jane": "t-jane"}
        self.theirs = Side(Person(self.server.member.admin), {**jane, "admin": "t-root"}, log)
        self.ours = Side(admin, {**jane, "admin": admin.token or ""})
        self.signer = Signer(None, "")
        for value in OBJECTS:
            self.create(value)
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}
        path = "/api/v1/namespaces/default/serviceaccounts"
        made = self.ask(self.theirs, Ask(path=path, body=account, user="admin"))
        key = (self.server.member.place / "pki" / "service-accounts.key").read_bytes()
        uid = made.value["metadata"]["uid"]
        self.signer = Signer(serialization.load_pem_private_key(key, None), uid)

    def new_tower(self) -> harness.Tower:
        """Return a Tower with the API server's options, and make that server."""
        folder = self.folder / "server"
        folder.mkdir()
        self.hook = ReviewWebhook(folder, reviewed_user)
        self.addCleanup(self.hook.stop)
        options = self.options()
        users = self.folder / "users.csv"
        users.write_text(TOKENS + ROOT)
        flags = (*options, f"--token-auth-file={users}", "--anonymous-auth=false")
        self.server = Running(folder, "--bare", *(f"--apiserver-flag={each}" for each in flags))
        self.addCleanup(self.server.stop)
        self.server.run()
        tower = super().new_tower()
        tokens = self.folder / "tokens.csv"
        tokens.write_text(TOKENS)
        self.keys = self.folder / "accounts.pem"
        shutil.copy(self.server.member.place / "pki" / "service-accounts.crt", self.keys)
        tower.proxy = tower.proxy_program(
            *options,
            f"--token-auth-file={tokens}",
            f"--service-account-key-file={self.keys}",
            f"--service-account-issuer={ISSUER}",
        )
        return tower

    def options(self) -> tuple[str, ...]:
        """Write the files of both; return the options of both."""
        front, users = self.folder / "front.crt", self.folder / "ca.crt"
        front.write_bytes(self.authorities.front)
        users.write_bytes(self.authorities.trusted)
        public = authority("public", now=self.authorities.now)
        issued = public.server_certificate(["login.example", "DNS:*.apps.example"], DAY, self.authorities.now)
        (self.folder / "public.crt").write_bytes(public.pem)
        pair = self.folder / "login.crt", self.folder / "login.key"
        pair[0].write_bytes(issued.certificate_pem)
        pair[1].write_bytes(issued.key_pem)
        return (
            f"--tls-sni-cert-key={pair[0]},{pair[1]}",
            "--tls-min-version=VersionTLS13",
            f"--client-ca-file={users}",
            f"--requestheader-client-ca-file={front}",
            "--requestheader-allowed-names=proxy,other",
            "--requestheader-username-headers=X-Remote-User,X-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-uid-headers=X-Remote-Uid",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--api-audiences={AUDIENCE}",
            f"--authentication-token-webhook-config-file={self.hook.kubeconfig}",
            "--authentication-token-webhook-version=v1",
            "--authentication-token-webhook-cache-ttl=2s",
        )

    def ask(self, side: Side, ask: Ask) -> Answer:
        """Send a request."""
        if ask.hook is not None:
            self.hook.faults[:] = [partial(answer_of, ask.hook)]
        return side.ask(ask, self.signer, self.authorities, self.folder)

    def create(self, value: dict[str, Any]) -> None:
        """Create an object on both sides."""
        namespace, plural = value["metadata"].get("namespace"), f"{value['kind'].lower()}s"
        path = f"{ROLES}/namespaces/{namespace}/{plural}" if namespace else f"{ROLES}/{plural}"
        own = {
            **value,
            "metadata": {**value["metadata"], "annotations": {"tower.kubesphere.io/clusters": "@tower"}},
        }
        for side, body in ((self.theirs, value), (self.ours, own)):
            answer = self.ask(side, Ask(path=path, body=body, user="admin"))
            self.assertEqual(answer.status, 201, answer)

    def test_answers(self) -> None:
        """Status, reason and message are equal, or differ as the rows state."""
        wrong = []
        for table in ASKING:
            for row in table.rows:
                theirs, ours = self.ask(self.theirs, row.case), self.ask(self.ours, row.case)
                problem = "" if row.other is None else "not the stated difference"
                if row.other is None:
                    problem = difference(theirs, ours)
                elif is_as_stated(row.other, theirs, ours):
                    problem = ""
                if problem:
                    wrong.append(f"{table.title}: {row.name}: {problem}\n   {theirs}\n   {ours}")
        self.assertEqual(wrong, [], "\n".join(wrong))
        self.assertNotIn("hook-jane", self.tower.proxy.output())
        self.names()
        self.reasons()
        self.changes()

    def names(self) -> None:
        """Both show the certificate for the name that a client requests, and both require TLS 1.3."""
        for side in (self.theirs, self.ours):
            port = side.person.port
            for host, is_public in (
                ("login.example", True),
                ("LOGIN.example", True),
                ("a.apps.example", True),
                ("a.b.apps.example", False),
                ("other.example", False),
                ("localhost", False),
            ):
                argv = ["curl", "-s", "--cacert", str(self.folder / "public.crt")]
                argv += ["--resolve", f"{host.lower()}:{port}:{LOOPBACK}", f"https://{host}:{port}/"]
                code = run(argv).returncode
                self.assertEqual(code == 0, is_public, f"{host}:{port}: {code}")
            old = run(["curl", "-sk", "--tls-max", "1.2", f"https://{LOOPBACK}:{port}/"])
            self.assertNotEqual(old.returncode, 0)

    def reasons(self) -> None:
        """Tower's log has all reasons, in the form of kube-apiserver's."""
        hook = Hook({"authenticated": False, "error": "the directory is down"})
        ask = Ask(token="hook-reason", hook=hook, has_reason=True)
        self.assertEqual(self.ask(self.theirs, ask).logged, "the directory is down")
        self.ask(self.ours, ask)
        self.assertIn("401 [invalid bearer token, the directory is down]", self.tower.proxy.output())

    def changes(self) -> None:
        """A CA, a token or a key that is removed from its file counts on connections that are open."""
        by_ca = Ask(certificate=Certificate(by="second"))
        by_token, by_key = Ask(token="plain-token"), Ask(token=Token())
        asks = (by_ca, by_token, by_key)
        connections = [self.ours.connect(each, self.authorities, self.folder) for each in asks]
        for each in connections:
            self.addCleanup(each.close)
            each.connect()
            each.auto_open = 0

        def status(number: int) -> int:
            """Return the status of an answer on a connection; 0: it has ended."""
            return self.ours.send(connections[number], asks[number], self.signer).status

        def has_ended(number: int) -> bool:
            """Return whether the user of a connection is rejected."""
            return status(number) in (0, 401)

        self.assertEqual([status(number) for number in range(3)], [201, 201, 201])
        (self.folder / "ca.crt").write_bytes(self.authorities.trusted.partition(b"a comment\n")[0])
        (self.folder / "tokens.csv").write_text("other,joe,1\n")
        other = ec.generate_private_key(ec.SECP256R1()).public_key()
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        self.keys.write_bytes(other.public_bytes(serialization.Encoding.PEM, form))
        for number in range(3):
            wait_for(f"the change {number}", partial(has_ended, number))
        self.assertEqual(self.ask(self.ours, by_ca).status, 0)
        self.assertEqual(self.ask(self.ours, Ask(certificate=Certificate())).status, 201)
