"""Wrong uses of the ``tower`` command: one line with the cure, and exit code 2, or 1 from the proxy."""

from __future__ import annotations

import json
from pathlib import Path

from tests.fakes.cli import CommandTestCase, FakeConnection, FakeResponse
from tower.kube.kubeconfig import kubeconfig

#: Wrong words, exit code, and parts of the line.
TABLE: tuple[tuple[str, int, tuple[str, ...]], ...] = (
    ("", 2, ("COMMAND", "tower --help")),
    ("clustr list", 2, ("unknown command 'clustr'", "did you mean cluster?")),
    ("xyzzy", 2, ("unknown command 'xyzzy'", "cluster", "join", "tower --help")),
    ("cluster", 2, ("COMMAND", "tower cluster --help")),
    ("cluster lst", 2, ("unknown command 'lst'", "did you mean list?")),
    ("cluster delete alpha", 2, ("unknown command 'delete'", "remove")),
    ("cluster list --outptu json", 2, ("unknown option --outptu", "did you mean --output?")),
    ("cluster list --frobnicate=1", 2, ("unknown option --frobnicate", "tower cluster list --help")),
    ("cluster list alpha", 2, ("unexpected argument 'alpha'", "tower cluster list --help")),
    ("cluster list --state-dir /s", 2, ("--state-dir must precede the command",)),
    ("cluster list -o ymal", 2, ("'ymal'", "did you mean yaml?")),
    ("cluster list -o 5", 2, ("'5'", "table, wide, json, yaml or name")),
    ("cluster list -l a=(", 1, ("label selector", "'a=('")),
    ("cluster add", 2, ("NAME", "tower cluster add --help")),
    ("cluster add Alpha", 1, ("'Alpha'", "lower case")),
    ("cluster add alpha", 1, ("cluster alpha already exists", "tower cluster remove alpha")),
    ("cluster add beta --port many", 2, ("--port", "'many'", "1 or more")),
    ("cluster add beta --tpye ssh", 2, ("unknown option --tpye", "did you mean --type?")),
    ("cluster add beta --type ssh", 2, ("--ssh-user", "--ssh-keyfile", "--member-kubeconfig")),
    ("cluster add beta --ssh-user u", 2, ("--ssh-user is for clusters of type ssh", "--type ssh")),
    ("cluster set alpha", 2, ("no settings to change", "tower cluster set --help")),
    ("cluster show omega", 1, ("there is no cluster omega", "tower cluster list")),
    ("cluster remove omega", 1, ("there is no cluster omega", "tower cluster list")),
    ("cluster revoke alpha SHA256:x", 1, ("has no agent SHA256:x", "tower cluster agents alpha")),
    ("join", 2, ("NAME", "tower join --help")),
    ("join omega", 1, ("there is no cluster omega", "tower cluster add omega")),
    ("join alpha --ttl soon", 1, ("'soon'", "1h")),
    ("join alpha --uses 0", 2, ("--uses", "'0'", "1 or more")),
    ("join alpha --ca-file f", 2, ("--ca-file requires --protocol v1",)),
    ("join alpha --format manifest", 2, ("--format manifest requires --protocol v1",)),
    ("kubeconfig alpha", 2, ("--user", "tower kubeconfig --help")),
    ("kubeconfig alpha --user jane --ttl 25h", 1, ("--max-credential-ttl",)),
    ("kubeconfig alpha --user system:admin", 1, ("system:",)),
    ("kubeconfig alpha --user jane --auth crt", 2, ("'crt'", "did you mean cert?")),
    ("admin-kubeconfig --user tower:x", 1, ("tower:",)),
    ("admin-kubeconf --user ops", 2, ("did you mean admin-kubeconfig?",)),
    ("credential revoke nope", 1, ("there is no credential nope", "tower credential list")),
    ("forward alpha pg", 2, ("--listen", "tower forward --help")),
    ("forward alpha pg --listen pg:1", 2, ("'pg' is not an IP address", "127.0.0.1:5432")),
    ("version --clinet", 2, ("unknown option --clinet", "did you mean --client?")),
)


class TableTests(CommandTestCase):
    """Each wrong use with a working proxy."""

    def test_each(self) -> None:
        """The error is one line with the cure; standard output stays empty."""
        self.add("alpha")
        for line, code, texts in TABLE:
            said = self.failing(*line.split(), codes=(code,))
            self.assertTrue(said.startswith("tower"), said)
            for text in texts:
                self.assertIn(text, said, line)


class UserFileTests(CommandTestCase):
    """A user's kubeconfig in place of an administrator's."""

    def user_file(self, server: str) -> str:
        """Return the path of a user's kubeconfig."""
        path = Path(self.mktemp())
        path.write_text(
            kubeconfig(server=server, ca_pem=self.serving.pem, cluster="alpha", user="jane", token="t")
        )
        return str(path)

    def test_front_door(self) -> None:
        """A file for one cluster is recognized by its URL, without a request."""
        path = self.user_file("https://127.0.0.1:8443/clusters/alpha")
        for words in (("cluster", "list"), ("forward", "beta", "pg", "--listen", "0")):
            said = self.wrong("--kubeconfig", path, *words, state=False)
            self.assertIn("this kubeconfig is for cluster alpha only", said)
            self.assertIn("use --state-dir or an administrator's kubeconfig", said)
        self.assertEqual(self.connection.requests, [])

    def test_port(self) -> None:
        """At the cluster's own port, its API server denies the request, and the line has the cure."""
        path = self.user_file("https://127.0.0.1:6000")
        text = (
            'clusters.cluster.kubesphere.io is forbidden: User "jane" cannot list resource "clusters" in API '
            'group "cluster.kubesphere.io" at the cluster scope'
        )
        body = json.dumps({"kind": "Status", "reason": "Forbidden", "message": text}).encode()
        self.connection = FakeConnection(lambda *_: FakeResponse(403, body))
        said = self.bad("--kubeconfig", path, "cluster", "list", state=False)
        self.assertIn("this kubeconfig is for one cluster only", said)
        self.connection = FakeConnection(lambda *_: FakeResponse(404, b"404 page not found"))
        said = self.bad("--kubeconfig", path, "cluster", "list", state=False)
        self.assertIn("check that it is a Tower proxy, and that the kubeconfig is an administrator's", said)
