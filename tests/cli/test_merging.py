"""Tests for `tower.cli.merging`: `tower kubeconfig --merge`."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import yaml

from tests.fakes.cli import CommandTestCase, FakeConnection
from tower.cli.merging import default_file
from tower.kube.kubeconfig import load_kubeconfig

OTHER: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "kind", "cluster": {"server": "https://192.0.2.1:6443"}}],
    "users": [{"name": "kind", "user": {"exec": {"command": "aws"}}}],
    "contexts": [{"name": "kind", "context": {"cluster": "kind", "user": "kind"}}],
    "current-context": "kind",
    "preferences": {"colors": True},
}


class MergeTests(CommandTestCase):
    """`tower kubeconfig --merge`."""

    def setUp(self) -> None:
        """Add a cluster and write a kubeconfig."""
        super().setUp()
        self.add("alpha")
        self.folder = Path(self.mktemp())
        self.folder.mkdir()
        self.file = self.folder / "config"
        self.write(OTHER)
        self.words = ("kubeconfig", "alpha", "--user", "jane", "--merge", str(self.file))

    def write(self, content: object) -> None:
        """Write the kubeconfig."""
        self.file.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
        self.file.chmod(0o600)

    def merged(self) -> dict[str, Any]:
        """Return the kubeconfig, which is private and the only file of its folder."""
        self.assertEqual([path.name for path in self.folder.iterdir()], ["config"])
        self.assertEqual(stat.S_IMODE(self.file.stat().st_mode), 0o600)
        content: dict[str, Any] = yaml.safe_load(self.file.read_text())
        return content

    def test_added(self) -> None:
        """The context is added; all other entries and the current context stay."""
        self.assertIn("kubectl --context tower/alpha", self.good(*self.words))
        content = self.merged()
        for section in ("clusters", "users", "contexts"):
            self.assertEqual(content[section][0], OTHER[section][0])
            self.assertEqual([entry["name"] for entry in content[section]], ["kind", "tower/alpha"])
        self.assertEqual(content["current-context"], "kind")
        self.assertEqual(content["preferences"], OTHER["preferences"])
        access = load_kubeconfig(self.file, "tower/alpha")
        self.assertEqual(access.server, "https://tower.example.org:8443/clusters/alpha")
        self.assertIsNotNone(access.client_certificate)

    def test_again(self) -> None:
        """A second merge replaces the credential and the address, and keeps the namespace of the user."""
        self.good(*self.words)
        content = self.merged()
        content["contexts"][1]["context"]["namespace"] = "dev"
        self.write(content)
        self.good(*self.words, "--via", "port", "--auth", "token")
        access = load_kubeconfig(self.file, "tower/alpha")
        self.assertEqual((access.server, access.namespace), ("https://tower.example.org:6000", "dev"))
        self.assertIsNotNone(access.token)
        self.assertEqual(len(self.merged()["users"]), 2)

    def test_replaced_user(self) -> None:
        """The confirmation names the user whose context is replaced, or reports the update."""
        self.assertIn("context tower/alpha written to", self.good(*self.words))
        self.assertIn("updated context tower/alpha of user jane in", self.good(*self.words))
        words = ["joe" if word == "jane" else word for word in self.words]
        code, text, note = self.run_tower(*words)
        self.assertEqual(code, 0)
        self.assertIn("replaced context tower/alpha of user jane by that of joe in", text)
        self.assertIn("jane's credential remains valid; to revoke it: tower credential list", note)
        self.assertIn("updated context tower/alpha of user joe in", self.good(*words))
        content = self.merged()
        content["contexts"][1]["context"]["extensions"] = [{"name": "other", "extension": 1}]
        self.write(content)
        self.assertIn("updated context", self.good(*words))
        extensions = self.merged()["contexts"][1]["context"]["extensions"]
        self.assertEqual([each["name"] for each in extensions], ["other", "tower.kubesphere.io"])

    def test_new_file(self) -> None:
        """A missing or empty file is created, with its folder, and the context is the current one."""
        self.file.unlink()
        self.folder.rmdir()
        self.good(*self.words)
        self.assertEqual(self.merged()["current-context"], "tower/alpha")
        self.write("")
        self.good(*self.words)
        self.assertEqual(self.merged()["current-context"], "tower/alpha")

    def test_mode(self) -> None:
        """The file's mode stays; a note names the cure if other users can read it."""
        self.file.chmod(0o640)
        code, _, err = self.run_tower(*self.words)
        self.assertEqual(code, 0)
        self.assertEqual(
            err,
            f"tower: note: {self.file} is accessible to other users (mode 640): chmod 600 {self.file}\n",
        )
        self.assertEqual(stat.S_IMODE(self.file.stat().st_mode), 0o640)

    def test_unknown_fields(self) -> None:
        """Fields that Tower does not know stay, with their values: times, numbers, texts, and line breaks."""
        text = (
            "apiVersion: v1\nkind: Config\nfuture: {list: [1, 2.5, yes, null], octal: 0o17}\n"
            "users:\n- name: gcp\n  user:\n    auth-provider:\n      config:\n"
            "        expiry: 2026-01-01T00:00:00Z\n        text: |\n          two\n          lines: 1\n"
            "        sum: '0123'\n        sign: \"\u00fc\\x07\"\n"
        )
        self.write(text)
        before = yaml.load(text, yaml.BaseLoader)
        self.good(*self.words)
        merged = self.merged()
        after = yaml.load(self.file.read_text(), yaml.BaseLoader)
        self.assertEqual(after["users"][0], before["users"][0])
        self.assertEqual(merged["future"], yaml.safe_load(text)["future"])
        self.assertEqual(
            merged["users"][0]["user"]["auth-provider"]["config"]["expiry"], "2026-01-01T00:00:00Z"
        )

    def test_changed_meanwhile(self) -> None:
        """A change that another program makes while the proxy issues the credential stays."""
        answer = self.connection

        def change(method: str, target: str, body: bytes, headers: dict[str, str]) -> Any:
            self.write({**OTHER, "current-context": "changed"})
            return self.answer(method, target, body, headers)

        self.connection = FakeConnection(change)
        self.good(*self.words)
        self.assertIsNot(answer, self.connection)
        self.assertEqual(self.merged()["current-context"], "changed")
        self.assertEqual(len(self.merged()["contexts"]), 2)

    def test_read_only(self) -> None:
        """A read-only file stays, and nothing is issued."""
        self.patch(os, "access", lambda path, mode: False)
        self.assertIn(f"is read-only: chmod u+w {self.file.resolve()}", self.bad(*self.words))
        self.assertEqual(dict(self.store.snapshot("credentials")), {})

    def test_administrator(self) -> None:
        """An administrator's context is named tower."""
        self.good("admin-kubeconfig", "--user", "ops", "--merge", str(self.file))
        self.assertEqual(load_kubeconfig(self.file, "tower").server, "https://tower.example.org:8443")

    def test_default(self) -> None:
        """Without a value, the file is that of kubectl."""
        self.assertEqual(default_file({"KUBECONFIG": ":/a:/b"}), "/a")
        self.assertTrue(default_file({}).endswith("/.kube/config"))
        self.environ["KUBECONFIG"] = str(self.file)
        self.good(*self.words[:-1])
        self.assertEqual(len(self.merged()["contexts"]), 2)

    def test_link(self) -> None:
        """A link to the file stays, and the file that it names is changed."""
        link = Path(self.mktemp())
        link.symlink_to(self.file.absolute())
        self.good(*self.words[:-1], str(link))
        self.assertTrue(link.is_symlink())
        self.assertEqual(len(self.merged()["contexts"]), 2)

    def test_refused_first(self) -> None:
        """If the file cannot be changed, nothing is issued and the file stays."""
        for content, text in (
            ("{", "config is not YAML (line 1): repair it"),
            ("[]", "config is not a kubeconfig, it has no clusters and contexts: choose another file"),
            ("users: {}\nclusters: 5", "clusters is not a list"),
        ):
            self.write(content)
            self.assertIn(text, self.bad(*self.words))
            self.assertEqual(self.file.read_text(), content)
        (self.folder / "config.lock").touch()
        self.assertIn("another program is changing the file", self.bad(*self.words))
        self.assertIn("not a directory", self.bad(*self.words[:-1], str(self.file / "x" / "y")))
        self.assertIn("not a regular file", self.bad(*self.words[:-1], str(self.folder)))
        self.assertIn("the value is empty", self.wrong(*self.words[:-1], ""))
        self.assertIn("not allowed with", self.wrong(*self.words, "--output", "f"))
        self.assertEqual(dict(self.store.snapshot("credentials")), {})

    def test_foreign_names(self) -> None:
        """A context or cluster of that name that is for another server is kept; the line has two cures."""
        foreign = {
            **OTHER,
            "clusters": [{"name": "tower/alpha", "cluster": {"server": "https://192.0.2.9"}}],
        }
        user = {**OTHER, "users": [{"name": "tower/alpha", "user": {"token": "mine"}}]}
        for content, text in (
            (foreign, "https://192.0.2.9"),
            (user, f"kubectl config --kubeconfig {self.file.resolve()} delete-user tower/alpha"),
            (
                {
                    **OTHER,
                    "contexts": [{"name": "tower/alpha", "context": {"cluster": "kind", "user": "kind"}}],
                },
                f"kubectl config --kubeconfig {self.file.resolve()} rename-context tower/alpha",
            ),
        ):
            self.write(content)
            before = self.file.read_text()
            said = self.bad(*self.words)
            self.assertIn(text, said)
            self.assertIn("--output", said)
            self.assertIn("tower credential revoke", said)
            self.assertEqual(self.file.read_text(), before)

    def test_other_server_without_authority(self) -> None:
        """Two servers with public CAs are two clusters."""
        self.issuer._kubeconfig_authority = lambda _: b""
        content = {**OTHER, "clusters": [{"name": "tower/alpha", "cluster": {"server": "https://192.0.2.9"}}]}
        self.write(content)
        self.assertIn("for another server, https://192.0.2.9", self.bad(*self.words))

    def test_full_disk(self) -> None:
        """If writing fails late, the old file stays, and the error has the command that revokes."""

        def replace(*_: object) -> None:
            raise OSError(28, "No space left on device")

        self.patch(os, "replace", replace)
        said = self.bad(*self.words)
        (name,) = self.store.snapshot("credentials")
        self.assertIn(
            f"no space left on device; revoke the issued credential: tower credential revoke {name}", said
        )
        self.assertEqual(yaml.safe_load(self.file.read_text()), OTHER)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["config"])
