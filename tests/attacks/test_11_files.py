"""Item 11: an administrator with the API alone cannot read or make any file of the proxy's machine."""

from __future__ import annotations

import base64
import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import yaml

from tests.integration.harness import TowerTestCase
from tests.integration.node_fleet_kit import look_now, ssh_status
from tests.integration.person import Answer
from tests.integration.programs import run, script, wait_for

CLUSTER = "beta"
CLUSTERS = "/apis/cluster.kubesphere.io/v1alpha1/clusters"
MERGE = {"Content-Type": "application/merge-patch+json"}

#: The fields that name files, and the fields that they need.
FIELDS: dict[str, dict[str, Any]] = {
    "nodesFile": {},
    "keyFile": {"nodes": ["127.0.0.1:1"]},
    "knownHosts": {"nodes": ["127.0.0.1:1"]},
    "cloudConfig": {"cloudProvider": "fake"},
    "kubeletCertificateAuthority": {"nodes": ["127.0.0.1:1"]},
}

JWT = "eyJhbGciOiJSUzI1NiIsImtpZCI6InNlY3JldCJ9.eyJzdWIiOiJzeXN0ZW06c2VydmljZSJ9.c2VjcmV0-c2lnbmF0dXJl-"

#: Files that are on such machines: their content, and the words that must not be shown.
SECRETS = {
    "shadow": (
        "root:$6$rounds$SaltSaltSalt/HashHashHash:19000:0:99999:7:::\n",
        ("SaltSaltSalt", "HashHashHash"),
    ),
    "token": (f"{JWT}\n", tuple(JWT.split("."))),
    "env": (
        "[global]\nDB_PASSWORD=correct-horse-battery\nhunter2hunter2\n",
        ("correct-horse", "hunter2hunter2"),
    ),
    "hosts": ("node1 node2\nnode3 s3cr3t~passphrase\n", ("s3cr3t",)),
    "known": ("@hush-marker a ssh-ed25519 AAAA\na hush-type AAAAhushhushhush\n", ("hush",)),
}


class FilesCase(TowerTestCase):
    """A proxy, an administrator with its API, and files that the administrator must not access."""

    def setUp(self) -> None:
        """Write the files, outside of the directory for files and in it."""
        super().setUp()
        self.inside = self.tower.node_files
        self.outside = self.folder / "outside"
        self.outside.mkdir()
        for folder in (self.inside, self.outside):
            for name, (text, _) in SECRETS.items():
                (folder / name).touch(0o600)
                (folder / name).write_text(text)
        config = {
            "clusters": [{"name": "it", "cluster": {"server": "https://127.0.0.1:1"}}],
            "users": [{"name": "it", "user": {"token": "member-token"}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "current-context": "it",
        }
        self.member = self.folder / "member.kubeconfig"
        self.member.write_text(yaml.safe_dump(config))
        self.words = [word for _, words in SECRETS.values() for word in words]
        self.admin = self.tower.admin()

    def ask(self, method: str, path: str, body: object, **headers: str) -> Answer:
        """Ask the API; nothing of the files is in the answer."""
        answer = self.admin.request(method, path, body=json.dumps(body).encode(), headers=headers)
        self.nothing_in(answer.body)
        return answer

    def nothing_in(self, error: bytes) -> None:
        """Check that none of the files' contents is there."""
        for word in self.words:
            self.assertNotIn(word.encode(), error)

    def create(self, **ssh: Any) -> Answer:
        """Add the cluster with these fields."""
        access = base64.b64encode(self.member.read_bytes()).decode()
        spec = {"user": "core", "keyFile": "id", **ssh}
        headers = {"Content-Type": "application/json"}
        return self.ask(
            "POST",
            CLUSTERS,
            {
                "metadata": {"name": CLUSTER},
                "spec": {"connection": {"type": "ssh", "ssh": spec, "kubeconfig": access}},
            },
            **headers,
        )

    def change(self, **ssh: Any) -> Answer:
        """Change these fields, and the former source of nodes."""
        fields = {**dict.fromkeys(("nodes", "nodesFile", "cloudProvider", "cloudConfig")), **ssh}
        return self.ask("PATCH", f"{CLUSTERS}/{CLUSTER}", {"spec": {"connection": {"ssh": fields}}}, **MERGE)

    def everywhere(self) -> bytes:
        """Return the cluster's object with its conditions, and what the proxy has logged."""
        return json.dumps(self.tower.status(CLUSTER)).encode() + self.tower.proxy.log.read_bytes()

    def look(self, name: str) -> str:
        """Use the cluster's files now; return the resulting message about one of them."""
        look_now(self.tower)
        place = f"{self.inside}/{name}"
        try:
            wait_for(f"a word of {name}", lambda: place in self.problem(), every=0.1)
        finally:
            self.nothing_in(self.everywhere())
        return self.problem()

    def problem(self) -> str:
        """Return the problem with the cluster's nodes."""
        status = ssh_status(self.tower)
        errors = [status.get("lastError", ""), *(node.get("error", "") for node in status.get("nodes", ()))]
        return " ".join(filter(None, errors))


class ReadingTests(FilesCase):
    """File names in errors."""

    def test_elsewhere(self) -> None:
        """A file elsewhere is refused by field and value, for any spelling, and never looked at."""
        self.assertEqual(self.create(nodes=["127.0.0.1:1"]).status, 201)
        (self.inside / "deep").mkdir()
        paths = [
            f"{self.tower.state}/secrets.key",
            f"{self.outside}/shadow",
            "/etc/shadow",
            "../outside/token",
            "deep/../../outside/env",
            f"{self.inside}/../outside/env",
            f"{self.outside}/nothing-there",
            "/proc/self/environ",
            "/dev/stdin",
            ".",
        ]
        self.words.append((self.tower.state / "secrets.key").read_text().strip())
        for field, others in FIELDS.items():
            for path in paths:
                answer = self.change(**others, **{field: path})
                self.assertEqual(answer.status, 422, (field, path))
                error = json.loads(answer.body)["message"]
                self.assertIn(f"spec.connection.ssh.{field}: {path!r}: must be below {self.inside}", error)
                self.assertIn("--node-files", error)
        self.nothing_in(self.everywhere())

    def test_odd_names(self) -> None:
        """Invalid names are refused, and shown, but cut."""
        self.create(nodes=["127.0.0.1:1"])
        for path, words in (
            ("a\0b", "without control characters"),
            ("a\nb", "without control characters"),
            ("a" * 300, "is too long"),
            ("a/" * 3000, "is too long"),
            ("~/id", "without ~"),
            ("a/", "must be a file"),
        ):
            answer = self.change(nodesFile=path)
            self.assertEqual(answer.status, 422)
            error = json.loads(answer.body)["message"]
            self.assertIn(words, error)
            self.assertIn(repr(path[:60]).strip("'"), error)
            self.assertLess(len(error), 300)

    def test_content(self) -> None:
        """If a file may be named, but has other content than it should, the error does not quote it."""
        self.create(nodes=["127.0.0.1:1"])
        for name in SECRETS:
            self.assertEqual(self.change(nodesFile=name).status, 200)
            self.assertRegex(self.look(name), rf"{name}:\d+: word \d+ is neither a name nor an address")
            self.assertEqual(self.change(nodes=["127.0.0.1:1"], keyFile=name).status, 200)
            self.assertIn("it is not a private key", self.look(name))
            self.assertEqual(self.change(cloudProvider="fake", cloudConfig=name).status, 200)
            if name != "env":
                self.assertRegex(self.look(name), rf"{name}:\d+: ")

    def test_escapes(self) -> None:
        """Links outside, pipes and devices are refused at once, and none is replaced by a key."""
        self.create(nodes=["127.0.0.1:1"])
        (self.inside / "link").symlink_to(self.outside / "token")
        (self.inside / "folder").symlink_to("../outside")
        os.mkfifo(self.inside / "pipe")
        (self.inside / "endless").symlink_to("/dev/zero")
        for name, words in (
            ("link", "points outside"),
            ("folder/env", "points outside"),
            ("endless", "points outside"),
            ("pipe", "ot a regular file"),
        ):
            for fields in (
                {"nodesFile": name},
                {"nodes": ["127.0.0.1:1"], "keyFile": name},
                {"cloudProvider": "fake", "cloudConfig": name},
            ):
                self.assertEqual(self.change(**{"keyFile": "id", **fields}).status, 200)
                self.assertIn(words, self.look(name))
        self.assertTrue((self.inside / "pipe").is_fifo())
        self.assertTrue(self.tower.healthy())

    def test_a_mounted_secret(self) -> None:
        """Links that stay inside are followed, as those of a Secret that Kubernetes mounts."""
        (self.inside / "..2026").mkdir()
        (self.inside / "..2026" / "nodes").write_text("127.0.0.1:1\n")
        (self.inside / "..data").symlink_to("..2026")
        (self.inside / "nodes").symlink_to("..data/nodes")
        self.create(nodesFile="nodes")
        wait_for("the node", lambda: [node["address"] for node in ssh_status(self.tower).get("nodes", ())])


class MakingTests(FilesCase):
    """Files that the proxy makes."""

    def test_key(self) -> None:
        """A key pair is made below the directory only."""
        for path in (f"{self.outside}/id", "../outside/id", f"{self.tower.state}/id"):
            self.assertEqual(self.create(nodes=["127.0.0.1:1"], keyFile=path).status, 422)
        (self.inside / "out").symlink_to(self.outside)
        self.assertEqual(self.create(nodes=["127.0.0.1:1"], keyFile="out/id").status, 201)
        wait_for("the complaint", lambda: "points outside" in self.problem())
        self.assertEqual(self.change(nodes=["127.0.0.1:1"], keyFile="id").status, 200)
        wait_for("the key", (self.inside / "id.pub").exists)
        self.assertEqual(stat.S_IMODE((self.inside / "id").stat().st_mode), 0o600)
        self.assertEqual(list(self.outside.glob("id*")), [])
        self.assertEqual(list(self.tower.state.glob("id*")), [])

    def test_key_for_others(self) -> None:
        """A private key that others may read is not used; the error has the command for it."""
        self.create(nodes=["127.0.0.1:1"])
        key = self.inside / "id"
        wait_for("the key", (self.inside / "id.pub").exists)
        self.words += key.read_text().splitlines()[1:-1]
        key.chmod(0o640)
        look_now(self.tower)
        wait_for("the complaint", lambda: f"chmod 600 {key}" in self.problem())
        self.nothing_in(self.everywhere())
        key.chmod(0o600)
        look_now(self.tower)
        wait_for("the key to be used", lambda: "chmod" not in self.problem())


class OperatorTests(FilesCase):
    """The operator's options, and records from before."""

    def start_with(self, *options: str) -> None:
        """Restart the proxy with other options."""
        self.tower.proxy.stop()
        self.tower.proxy = self.tower.proxy_program(*options)
        self.tower.start()

    def test_upgrade(self) -> None:
        """An old record's error names the commands that move its files, which work; and nothing is lost."""
        self.start_with(f"--node-files={self.outside}")
        (self.outside / "nodes list").write_text("127.0.0.1:1\n")
        key, nodes = f"{self.outside}/id", f"{self.outside}/nodes list"
        self.assertEqual(self.create(keyFile=key, nodesFile=nodes).status, 201)
        wait_for("the key", (self.outside / "id.pub").exists)
        before = self.tower.status(CLUSTER)["spec"]
        seen = len(self.tower.proxy.output())
        self.start_with()
        orders = []
        lines = self.tower.proxy.output()[seen:].splitlines()
        for field, path in (("keyFile", key), ("nodesFile", nodes)):
            (line,) = (line for line in lines if f"{CLUSTER}: spec.connection.ssh.{field}: {path!r} " in line)
            self.assertIn(f"is outside {self.inside} (--node-files) and is no longer read", line)
            orders.append(line.partition("to copy it there: ")[2])
        self.assertEqual(self.tower.status(CLUSTER)["spec"], before)
        self.assertIn(f"{path!r} is outside", self.problem())

        def condition() -> bool:
            found = self.tower.status(CLUSTER)["status"]["conditions"]
            return any(
                each["type"] == "NodesAvailable" and f"{key!r} is outside" in each["message"]
                for each in found
            )

        wait_for("the condition", condition)
        for order in orders:
            copy, _, command = order.partition(" && ")
            self.shell(copy)
            self.shell(command.replace("tower ", f"tower --state-dir {self.tower.state} ", 1))
        wait_for("the node", lambda: [node["address"] for node in ssh_status(self.tower).get("nodes", ())])
        self.assertNotIn("outside", self.problem())
        self.assertEqual((self.inside / f"{CLUSTER}-id").read_bytes(), Path(key).read_bytes())

    def shell(self, order: str) -> None:
        """Run a command from the proxy's error."""
        path = f"{Path(script('tower')).parent}:{os.environ['PATH']}"
        done = run(["sh", "-c", order], environment={"PATH": path}, folder=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_other_fields(self) -> None:
        """Until then everything else of the record can be changed, but no new file outside be named."""
        self.start_with(f"--node-files={self.outside}")
        self.create(nodes=["127.0.0.1:1"], keyFile=f"{self.outside}/id")
        self.start_with()
        self.tower.tower("cluster", "set", CLUSTER, "--ssh-user", "admin")
        self.tower.tower("cluster", "disable", CLUSTER)
        self.tower.tower("cluster", "enable", CLUSTER)
        self.assertEqual(self.change(nodesFile=f"{self.outside}/hosts").status, 422)

    def test_command_line(self) -> None:
        """Files on the operator's command line may be anywhere, for that one cluster, and stay valid."""
        key = self.outside / "given"
        options = ("--ssh-user=core", f"--ssh-keyfile={key}", "--nodes=127.0.0.1:1")
        self.start_with(*options, f"--member-kubeconfig={self.member}", f"--ssh-cluster={CLUSTER}")
        wait_for("the key", key.exists)
        self.tower.tower("cluster", "set", CLUSTER, "--node-address-types", "InternalIP")
        self.assertEqual(self.change(nodes=["127.0.0.1:1"], keyFile=f"{self.outside}/other").status, 422)
        self.assertEqual(self.change(nodesFile=str(key)).status, 422)
        self.assertEqual(self.change(nodes=["127.0.0.1:1"], keyFile=str(key)).status, 200)
        self.assertNotIn("outside", self.problem())

    def test_directory(self) -> None:
        """The directory is separate from the proxy's state, and private if the proxy makes it."""
        self.tower.proxy.stop()
        for path in (self.tower.state, self.folder):
            program = self.tower.proxy_program(f"--node-files={path}", name=f"refused-{path.name}")
            program.start()
            self.assertEqual(program.wait(), 1)
            self.assertIn(f"--node-files {path}: contains {self.tower.state}", program.output())
        shutil.rmtree(self.inside)
        program = self.tower.proxy_program()
        program.argv.remove(f"--node-files={self.inside}")
        self.tower.proxy = program
        self.tower.start()
        self.assertEqual(stat.S_IMODE((self.tower.state / "node-files").stat().st_mode), 0o700)
        self.assertFalse(self.inside.exists())
