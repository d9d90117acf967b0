"""A hostile proxy that asks in the name of the cluster's own users and groups."""

from __future__ import annotations

import json

from twisted.trial.unittest import SynchronousTestCase

from tests.attacks.agentbench import AgentBench

LINE = b"POST /apis/certificates.k8s.io/v1/certificatesigningrequests HTTP/1.1\r\nContent-Length: 0\r\n"
HOST = b"Host: x\r\n\r\n"

#: Who may sign, approve, read or do everything somewhere.
SYSTEM = (
    *("system:masters", "system:admin", "system:cluster-admins", "system:nodes", "system:node:evil"),
    *("system:bootstrappers", "system:bootstrappers:kubeadm:default-node-token", "system:anonymous"),
    *(
        "system:kube-controller-manager",
        "system:serviceaccount:kube-system:default",
        "system:serviceaccounts",
    ),
    *(
        "system:unauthenticated",
        "system:monitoring",
        "system:openshift-master",
        "system:",
        "kubeadm:cluster-admins",
    ),
)


class SystemIdentityTests(SynchronousTestCase):
    def test_refused(self) -> None:
        """Nobody acts as one of them, as user or as group, and the answer says so."""
        bench = AgentBench()
        self.addCleanup(bench.stop)
        for name in (*SYSTEM, "system:authenticated"):
            fields = [f"Impersonate-User: {name}\r\n", f"Impersonate-User:  {name}\t\r\n"]
            if name != "system:authenticated":
                fields += [
                    f"Impersonate-User: jane\r\nImpersonate-Group: {name}\r\n",
                    f"Impersonate-User: jane\r\nImpersonate-Group: dev\r\nImpersonate-Group: \t{name}\r\n",
                ]
            for field in fields:
                code, body = bench.ask(LINE + field.encode() + HOST)
                self.assertEqual(code, 403, field)
                self.assertIn(
                    f'lets nobody act as "{name}"; the agent\'s flag --allow', json.loads(body)["message"]
                )
        self.assertEqual(bench.server.heads, [])

    def test_authenticated(self) -> None:
        """The group of all who proved themselves is left to the API server, which adds it."""
        bench = AgentBench()
        self.addCleanup(bench.stop)
        jane = (
            b"Impersonate-User: jane\r\nImpersonate-Group: system:authenticated\r\nImpersonate-Group: dev\r\n"
        )
        self.assertEqual(bench.ask(LINE + jane + HOST), (200, b"ok"))
        sent = bench.server.heads[0]
        self.assertIn(b"\r\nImpersonate-User: jane\r\nImpersonate-Group: dev\r\nHost: ", sent)
        self.assertNotIn(b"system:authenticated", sent)

    def test_allowed(self) -> None:
        """With all allowed by the owner, they pass as they came."""
        bench = AgentBench("--allow-system-identities")
        self.addCleanup(bench.stop)
        for name in (*SYSTEM, "system:authenticated"):
            group = f"Impersonate-User: jane\r\nImpersonate-Group: {name}\r\n".encode()
            self.assertEqual(bench.ask(LINE + group + HOST), (200, b"ok"), name)
            self.assertIn(group, bench.server.heads.pop())
