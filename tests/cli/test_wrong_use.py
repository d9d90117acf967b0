"""Wrong uses of the ``tower`` command: one line with the cure; exit code 2 for a wrong line, else 1."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from pathlib import Path

from tests.fakes.cli import CommandTestCase, FakeConnection, FakeResponse
from tower.cli.arguments import parser
from tower.cli.client import GROUP_PATH
from tower.control.admin_kubeconfig import FILE as ADMIN_KUBECONFIG
from tower.control.state_files import HOSTED
from tower.errors import ConfigurationError
from tower.kube.kubeconfig import kubeconfig
from tower.kube.rest.well_known import OWN_RESOURCE
from tower.store.archive import DATABASE, HOST_OBJECTS, Backup, SavedFile
from tower.store.backup import write
from tower.store.sqlite_file import SQLiteFile

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
    ("cluster list -l a=(", 2, ("label selector", "'a=('")),
    ("cluster add", 2, ("NAME", "tower cluster add --help")),
    ("cluster add Alpha", 2, ("'Alpha'", "lower case")),
    ("cluster add alpha", 1, ("cluster alpha already exists", "tower join alpha")),
    ("cluster add beta --port many", 2, ("--port", "'many'", "1 or more")),
    ("cluster add beta --tpye ssh", 2, ("unknown option --tpye", "did you mean --type?")),
    ("cluster add beta --type ssh", 2, ("--ssh-user", "--ssh-keyfile", "--member-kubeconfig")),
    ("cluster add beta --ssh-user u", 2, ("--ssh-user is for clusters of type ssh", "--type ssh")),
    ("cluster set alpha", 2, ("no settings to change", "tower cluster set --help")),
    ("cluster show omega", 1, ("there is no cluster omega", "tower cluster list")),
    ("cluster show alhpa", 1, ("there is no cluster alhpa: did you mean alpha?",)),
    ("cluster remove omega", 1, ("there is no cluster omega", "tower cluster list")),
    ("cluster revoke alpha SHA256:x", 1, ("has no agent SHA256:x", "tower cluster agents alpha")),
    ("join", 2, ("NAME", "tower join --help")),
    ("join omega", 1, ("there is no cluster omega", "tower cluster list")),
    ("join alph", 1, ("there is no cluster alph: did you mean alpha?",)),
    ("join alpha --ttl soon", 2, ("'soon'", "1h")),
    ("join alpha --uses 0", 2, ("--uses", "'0'", "1 or more")),
    ("join alpha --ca-file f", 2, ("--ca-file requires --protocol v1",)),
    ("join alpha --image tower", 2, ("--image requires --format manifest",)),
    ("kubeconfig alpha", 2, ("--user", "tower kubeconfig --help")),
    ("kubeconfig alpha --user jane --ttl 25h", 2, ("--max-credential-ttl",)),
    ("kubeconfig alpha --user system:admin", 2, ("system:",)),
    ("kubeconfig alpha --user jane --auth crt", 2, ("'crt'", "did you mean cert?")),
    ("admin-kubeconfig --user tower:x", 2, ("tower:",)),
    ("admin-kubeconf --user ops", 2, ("did you mean admin-kubeconfig?",)),
    ("credential revoke nope", 1, ("there is no credential nope", "tower credential list")),
    ("login https://t --ca-hash x --certificate-authority f", 2, ("--ca-hash", "not allowed with argument")),
    ("forward alpha pg", 2, ("--listen", "tower forward --help")),
    ("forward alpha pg --listen pg:1", 2, ("'pg' is not an IP address", "127.0.0.1:5432")),
    ("--state-dr x cluster list", 2, ("unknown option --state-dr", "did you mean --state-dir?")),
    ("--state-dir=x --contxt=y cluster list", 2, ("unknown option --contxt", "did you mean --context?")),
    ("rbac agnet", 2, ("PROGRAM 'agnet'", "did you mean agent?")),
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


#: Valid words of each command, without options that it does not require.
VALID = {
    "cluster add": "beta",
    "cluster set": "alpha --ssh-user u",
    "cluster show": "alpha",
    "cluster enable": "alpha",
    "cluster disable": "alpha",
    "cluster remove": "alpha",
    "cluster agents": "alpha",
    "cluster revoke": "alpha SHA256:x",
    "cluster forget-host-key": "alpha n1",
    "cluster list": "",
    "join": "alpha",
    "join-token list": "",
    "join-token revoke": "x",
    "store copy": "--from sqlite --to kubernetes",
    "kubeconfig": "alpha --user jane",
    "trusted-caller": "alpha --user kubesphere",
    "admin-kubeconfig": "--user ops",
    "access list": "",
    "access explain": "jane alpha",
    "credential list": "",
    "credential revoke": "x",
    "credential get": "--server https://t",
    "login": "https://t",
    "logout": "https://t",
    "session list": "",
    "session end": "x",
    "forward": "alpha pg --listen 5432",
    "doctor": "",
    "rotate host-key": "",
    "rotate serving-ca": "",
    "rotate tls-cert-file": "",
    "rotate users-ca": "",
    "rotate secrets-key": "",
    "rotate status": "",
    "backup": "file",
    "restore": "file",
    "install-systemd": "proxy",
    "rbac": "agent",
    "crds": "",
    "completion": "bash",
    "version": "",
}

#: Commands that work without the API; forward opens sockets, see `tests.cli.test_forward`.
LOCAL = (
    "credential get",
    "login",
    "logout",
    "forward",
    "doctor",
    "backup",
    "restore",
    "store copy",
    "install-systemd",
    "rbac",
    "crds",
    "completion",
)


def commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield the parsers of all commands without further commands."""
    inner = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not inner:
        yield parser
    for action in inner:
        for each in action.choices.values():
            yield from commands(each)


class AllCommandsTests(CommandTestCase):
    """The same mistakes with every command."""

    def setUp(self) -> None:
        """Find all commands."""
        super().setUp()
        self.parsers = {each.prog.removeprefix("tower "): each for each in commands(parser({}))}

    def test_are_listed(self) -> None:
        """The table has all commands, and their words are valid."""
        self.assertEqual(set(self.parsers), set(VALID))
        for name, words in VALID.items():
            self.parsers[name].parse_args(words.split())

    def test_missing_arguments(self) -> None:
        """A missing argument or required option is named."""
        for name, command in self.parsers.items():
            required = [each for each in command._actions if each.required]
            if required:
                said = self.wrong(*name.split())
                for each in required:
                    self.assertIn(each.option_strings[0] if each.option_strings else str(each.metavar), said)
                self.assertIn(f"tower {name} --help", said)

    def test_too_many_arguments(self) -> None:
        """One argument too many is quoted."""
        for name, words in VALID.items():
            extra = ("surplus", "more") if name in ("cluster list", "doctor") else ("surplus",)
            said = self.wrong(*name.split(), *words.split(), *extra)
            self.assertIn(f"unexpected argument {extra[-1]!r}" if name == "doctor" else "'surplus'", said)

    def test_unknown_options(self) -> None:
        """An unknown option is named, with the nearest one."""
        for name, words in VALID.items():
            said = self.wrong(*name.split(), *words.split(), "--hepl")
            self.assertIn("unknown option --hepl: did you mean --help?", said)
            self.assertIn("unknown option --qqqqqq;", self.wrong(*name.split(), *words.split(), "--qqqqqq"))

    def test_misspelt_commands(self) -> None:
        """A misspelt command is quoted, with the nearest one."""
        for name in VALID:
            *before, last = name.split()
            said = self.wrong(*before, last + last[-1])
            self.assertIn(f"did you mean {last}?", said)

    def test_bad_values(self) -> None:
        """A value that an option cannot have is quoted, with valid ones."""
        count = 0
        for name, command in self.parsers.items():
            for action in command._actions:
                if not action.option_strings or not (action.choices or action.type):
                    continue
                count += 1
                option = action.option_strings[-1]
                said = self.wrong(*name.split(), *VALID[name].split(), option, "@@")
                self.assertIn(option, said)
                self.assertIn("'@@'", said)
        self.assertGreater(count, 20)

    def test_unreachable_proxy(self) -> None:
        """Without a proxy, each command names its address and the cure; nothing is written."""

        def refuse(*_: object) -> FakeResponse:
            raise ConnectionRefusedError(111, "Connection refused")

        self.connection = FakeConnection(refuse)
        for name, words in VALID.items():
            if name not in LOCAL:
                said = self.bad(*name.split(), *words.split())
                self.assertIn("cannot reach https://127.0.0.1:8443: Connection refused", said)
                self.assertIn("check that tower-proxy runs there", said)

    def test_no_proxy(self) -> None:
        """Without --state-dir and --kubeconfig, each command that needs a proxy names both."""
        for name, words in VALID.items():
            if name not in (*LOCAL, "version"):
                said = self.wrong(*name.split(), *words.split(), state=False)
                self.assertIn("give --state-dir DIR on the proxy's machine, or --kubeconfig FILE", said)

    def test_missing_rights(self) -> None:
        """A denial of the proxy is printed without change, without the answer's JSON."""
        body = {
            "kind": "Status",
            "reason": "Forbidden",
            "message": "user jane cannot do this: ask an administrator",
        }
        self.connection = FakeConnection(lambda *_: FakeResponse(403, json.dumps(body).encode()))
        for name, words in VALID.items():
            if name not in LOCAL:
                said = self.bad(*name.split(), *words.split())
                self.assertEqual(said, "tower: user jane cannot do this: ask an administrator\n")

    def test_expired(self) -> None:
        """A rejected credential is reported with the cure."""
        body = {"kind": "Status", "reason": "Unauthorized", "message": "the credential has expired"}
        self.connection = FakeConnection(lambda *_: FakeResponse(401, json.dumps(body).encode()))
        for name, words in VALID.items():
            if name not in LOCAL:
                said = self.bad(*name.split(), *words.split())
                self.assertIn("the credential has expired (the proxy renews the file", said)


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

    def test_host_cluster(self) -> None:
        """The API server of a cluster with Tower's CRDs is recognized, and nothing is written."""
        path = self.user_file("https://127.0.0.1:6443")
        served = {"kind": "APIResourceList", "resources": [{"name": "clusters"}, {"name": "clusters/status"}]}
        self.connection = FakeConnection(lambda *_: FakeResponse(200, json.dumps(served).encode()))
        for words in (("cluster", "add", "alpha"), ("join", "alpha"), ("cluster", "list"), ("version",)):
            said = self.wrong("--kubeconfig", path, *words, state=False)
            self.assertIn("https://127.0.0.1:6443 is a cluster's API server, not a Tower proxy", said)
            self.assertIn("tower admin-kubeconfig", said)
        self.assertEqual({method for method, *_ in self.connection.requests}, {"GET"})

    def test_standby(self) -> None:
        """The state directory of a standby is recognized; the line has the leader."""
        os.remove(f"{self.state}/{ADMIN_KUBECONFIG}")
        self.assertIn("start tower-proxy", self.bad("cluster", "list"))
        role = Path(self.state, HOSTED)
        role.write_text("standby: tower-1 holds the Lease kubesphere-system/tower\n")
        said = self.bad("cluster", "list")
        self.assertIn("is a standby: tower-1 holds the Lease kubesphere-system/tower: run the command", said)
        role.write_text("leader: this proxy holds the Lease kubesphere-system/tower\n")
        said = self.bad("cluster", "list")
        self.assertIn("does not serve: start tower-proxy; if it runs, 'tower --state-dir", said)

    def test_backup_of_a_cache(self) -> None:
        """The backup of a proxy with a host cluster needs access to it, outside of its pod."""
        Path(self.state, HOSTED).write_text("leader: this proxy holds the Lease kubesphere-system/tower\n")
        self.assertIn("--host-kubeconfig is missing", self.wrong("backup", self.mktemp()))

    def test_restore_into_a_host_cluster(self) -> None:
        """A backup is restored into the kind of store that it is from."""
        file = Path(self.mktemp()).absolute()
        objects = {HOST_OBJECTS: SavedFile(b"[{}]", 0o600)}
        write(Backup("1.0", 0.0, has_secrets=True, files=objects), file)
        self.assertIn("--host-kubeconfig is missing", self.wrong("restore", str(file)))
        database = Path(self.mktemp())
        SQLiteFile(str(database), 2**20).load()
        files = {DATABASE: SavedFile(database.read_bytes(), 0o600)}
        write(Backup("1.0", 0.0, has_secrets=True, files=files), file, replace=True)
        text = self.bad("restore", str(file), "--host-kubeconfig", "host.kubeconfig")
        self.assertIn("is the backup of a state directory: restore it with --state-dir", text)
        for data in (b"{}", b"["):
            files = {HOST_OBJECTS: SavedFile(data, 0o600)}
            with self.assertRaises(ConfigurationError):
                write(Backup("1.0", 0.0, has_secrets=True, files=files), file, replace=True)

    def test_own_server(self) -> None:
        """A proxy is recognized, with an administrator's kubeconfig of any name."""
        path = self.user_file("https://127.0.0.1:8443")
        code, out, err = self.run_tower("--kubeconfig", path, "cluster", "add", "alpha", state=False)
        self.assertEqual((code, err), (0, ""))
        self.assertIn("cluster alpha added", out)
        self.assertTrue(self.clusters.require("alpha").enabled)

    def test_missing_role(self) -> None:
        """At Tower's own API, a user without the role gets the proxy's message, also with --state-dir."""
        path = self.user_file("https://127.0.0.1:8443")
        text = (
            'loginsessions.cluster.kubesphere.io is forbidden: User "jane" cannot list resource '
            '"loginsessions" in API group "cluster.kubesphere.io" at the cluster scope: this is Tower\'s own '
            "API: ask an administrator of Tower for a role"
        )
        served = {"kind": "APIResourceList", "resources": [{"name": OWN_RESOURCE}]}
        denied = {"kind": "Status", "reason": "Forbidden", "message": text}

        def answer(_method: str, target: str, *_: object) -> FakeResponse:
            code, body = (200, served) if target == GROUP_PATH else (403, denied)
            return FakeResponse(code, json.dumps(body).encode())

        for words in (("--kubeconfig", path), ("--state-dir", self.state)):
            self.connection = FakeConnection(answer)
            self.assertEqual(self.bad(*words, "session", "list", state=False), f"tower: {text}\n")

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

        def without_group(_method: str, target: str, *_: object) -> FakeResponse:
            missing = target == GROUP_PATH
            return FakeResponse(404, b"404 page not found") if missing else FakeResponse(403, body)

        self.connection = FakeConnection(without_group)
        said = self.bad("--kubeconfig", path, "cluster", "list", state=False)
        self.assertIn("this kubeconfig is for one cluster only", said)
        self.connection = FakeConnection(lambda *_: FakeResponse(404, b"404 page not found"))
        said = self.bad("--kubeconfig", path, "cluster", "list", state=False)
        self.assertIn("check that it is a Tower proxy, and that the kubeconfig is an administrator's", said)
