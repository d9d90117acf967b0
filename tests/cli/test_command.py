"""Tests for `tower.cli`: the commands, as a user types them."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path

import yaml

from tests.fakes.api import HOST_KEY
from tests.fakes.certificates import NOW
from tests.fakes.cli import CommandTestCase, FakeConnection, FakeResponse, FakeTerminal
from tests.fakes.tunnels import FakeTunnel
from tower import VERSION, __version__
from tower.clusters.object_meta import DRAIN, MEMBER_TOKENS, ObjectMeta
from tower.controller.objects.host_cluster import FINALIZER
from tower.web.api.issuer import Published

FINGERPRINT = "SHA256:a/b+c"


class ClusterTests(CommandTestCase):
    """`tower cluster …`."""

    def enrol(self) -> None:
        """Enrol an agent."""
        token = self.successResultOf(self.tokens.mint("alpha"))
        self.successResultOf(self.tokens.enrol("alpha", token, FINGERPRINT, b"blob"))

    def test_add(self) -> None:
        """The cluster exists, and the output names the next step."""
        self.assertIn("tower join alpha", self.good("cluster", "add", "alpha"))
        self.assertTrue(self.clusters.require("alpha").enabled)

    def test_add_with_a_port(self) -> None:
        """A cluster gets the requested port, unless another cluster has it."""
        self.good("cluster", "add", "alpha", "--port", "6002")
        self.assertEqual(self.clusters.require("alpha").kubernetes_port, 6002)
        self.assertIn("cluster alpha has it", self.bad("cluster", "add", "beta", "--port", "6002"))
        self.assertIn("1 or more", self.wrong("cluster", "add", "beta", "--port", "none"))

    def test_add_what_exists(self) -> None:
        """The error has the name and the cure."""
        self.add("alpha")
        said = self.bad("cluster", "add", "alpha")
        self.assertIn("alpha", said)
        self.assertIn("tower join alpha", said)

    def test_add_bad_name(self) -> None:
        """The error describes valid names."""
        self.assertIn("lower case", self.wrong("cluster", "add", "Alpha"))

    def test_list(self) -> None:
        """The output is a table, one name per line, or the objects."""
        self.assertIn("tower cluster add", self.good("cluster", "list"))
        self.add("alpha")
        self.add("beta")
        lines = self.good("cluster", "list").splitlines()
        self.assertEqual(lines[0].split()[0], "NAME")
        self.assertTrue(lines[0].endswith("LAST SEEN   AGE"))
        self.assertEqual([line.split()[0] for line in lines[1:]], ["alpha", "beta"])
        self.assertIn("ENDPOINT", self.good("cluster", "list", "-o", "wide"))
        self.assertEqual(self.good("cluster", "list", "-o", "name"), "alpha\nbeta\n")
        self.assertEqual(json.loads(self.good("cluster", "list", "-o", "json"))["kind"], "ClusterList")
        self.assertEqual(yaml.safe_load(self.good("cluster", "list", "-o", "yaml"))["kind"], "ClusterList")

    def test_list_names_of_none(self) -> None:
        """Without clusters, ``-o name`` prints nothing."""
        self.assertEqual(self.good("cluster", "list", "-o", "name"), "")

    def test_show(self) -> None:
        """The output has settings, conditions and agents."""
        self.add("alpha")
        self.successResultOf(
            self.clusters.set_condition("alpha", "AgentAvailable", "True", "Connected", "An agent came.")
        )
        self.enrol()
        said = self.good("cluster", "show", "alpha")
        self.assertRegex(said, r"(?m)^Name: +alpha$")
        self.assertRegex(said, r"(?m)^Port: +6000$")
        self.assertRegex(said, r"(?m)^Last seen: +never$")
        self.assertRegex(said, r"(?m)^AgentAvailable +True .* An agent came\.$")
        self.assertIn(FINGERPRINT, said)
        self.assertEqual(json.loads(self.good("cluster", "show", "alpha", "-o", "json"))["kind"], "Cluster")

    def test_switch(self) -> None:
        """A cluster is disabled and enabled."""
        self.add("alpha")
        self.assertIn("up to 30s", self.good("cluster", "disable", "alpha", "--drain", "30s"))
        self.assertEqual(self.store.snapshot("clusters")["alpha"].value["annotations"], {DRAIN: "30s"})
        self.assertIn("at most 10m", self.wrong("cluster", "disable", "alpha", "--drain", "11m"))
        self.good("cluster", "disable", "alpha")
        self.assertEqual(self.store.snapshot("clusters")["alpha"].value["annotations"], {})
        self.assertFalse(self.clusters.require("alpha").enabled)
        self.good("cluster", "enable", "alpha")
        self.assertTrue(self.clusters.require("alpha").enabled)

    def test_remove(self) -> None:
        """A removed cluster no longer exists."""
        self.add("alpha")
        self.good("cluster", "remove", "alpha")
        self.assertIsNone(self.clusters.get("alpha"))

    def test_remove_with_finalizers(self) -> None:
        """A cluster that a controller has to clean up is removed later."""
        self.successResultOf(self.clusters.add("alpha", meta=ObjectMeta(finalizers=("example.org/a",))))
        self.assertIn("example.org/a", self.good("cluster", "remove", "alpha"))
        self.assertIsNotNone(self.clusters.get("alpha"))

    def test_remove_in_host_cluster(self) -> None:
        """The proxy removes its own finalizer, so the user does not have to do anything."""
        self.successResultOf(self.clusters.add("alpha", meta=ObjectMeta(finalizers=(FINALIZER,))))
        self.assertEqual(
            self.good("cluster", "remove", "alpha"),
            "cluster alpha is being removed: the proxy finishes that within seconds\n",
        )

    def test_remove_on_a_terminal(self) -> None:
        """On a terminal the user is asked, unless there is no such cluster or with --yes."""
        self.add("alpha")
        for answer in ("", "\n", "n\n", "alpha\n"):
            self.stdin = FakeTerminal(answer)
            code, out, err = self.run_tower("cluster", "remove", "alpha")
            self.assertEqual((code, out), (1, ""))
            self.assertIn("removes cluster alpha", err)
            self.assertIn("alpha not removed", err)
        self.assertIn("there is no cluster nope", self.bad("cluster", "remove", "nope"))
        self.stdin = FakeTerminal("y\n")
        self.assertEqual(self.run_tower("cluster", "remove", "alpha")[:2], (0, "cluster alpha removed\n"))
        self.add("beta")
        self.good("cluster", "remove", "beta", "--yes")

    def test_what_is_not_there(self) -> None:
        """Each command names the missing cluster and the cure."""
        for words in (
            ("cluster", "show"),
            ("cluster", "enable"),
            ("cluster", "disable"),
            ("cluster", "remove"),
            ("cluster", "agents"),
            ("join",),
            ("kubeconfig", "--user", "jane"),
        ):
            said = self.bad(*words, "nope")
            self.assertIn("there is no cluster nope", said)
            self.assertIn("tower cluster list", said)
        self.assertIn("nope", self.bad("cluster", "revoke", "nope", FINGERPRINT))

    def test_impossible_names(self) -> None:
        """An invalid name never becomes a path."""
        for name in ("../beta", "a/b", "", "A", "alpha?x=y", "%61"):
            self.assertIn(repr(name), self.wrong("cluster", "remove", name))
        self.assertEqual(self.connection.requests, [])

    def test_agents(self) -> None:
        """The output has the enrolled keys with their live tunnels."""
        self.add("alpha")
        self.assertIn("tower join alpha", self.good("cluster", "agents", "alpha"))
        self.enrol()
        self.tunnels.add(FakeTunnel("alpha", FINGERPRINT))
        said = self.good("cluster", "agents", "alpha").splitlines()
        self.assertEqual(
            [title.replace(" ", "_") for title in re.split(" {3,}", said[0])],
            [
                "NAME",
                "HOST",
                "ENROLLED",
                "ADDRESS",
                "LAST_SEEN",
                "SINCE",
                "VERSION",
                "ROUND_TRIP",
                "PROTOCOL",
            ],
        )
        self.assertEqual(said[1].split()[:2], [FINGERPRINT, "edge-1"])
        self.assertTrue(said[1].endswith("1.2.3     4.2ms        tower-v2"), said[1])
        answer = json.loads(self.good("cluster", "agents", "alpha", "-o", "json"))
        self.assertEqual(answer["items"][0]["status"]["tunnels"][0]["address"], "192.0.2.1:4711")

    def test_revoke(self) -> None:
        """A fingerprint is accepted as shown, including slash and plus."""
        self.add("alpha")
        self.enrol()
        self.good("cluster", "revoke", "alpha", FINGERPRINT)
        self.assertFalse(self.tokens.is_enrolled("alpha", FINGERPRINT))
        self.assertIn("tower cluster agents alpha", self.bad("cluster", "revoke", "alpha", FINGERPRINT))


class JoinTests(CommandTestCase):
    """`tower join`."""

    def test_line(self) -> None:
        """Standard output is exactly the line that scripts rely on."""
        self.add("alpha")
        agent = (
            r"tower-agent --name alpha --proxy-server wss://tower\.example\.org:8443 "
            r"--host-key SHA256:h{43} --ca-hash sha256:[0-9a-f]{64}"
        )
        token = "tower-[A-Za-z0-9_-]{43}"
        for words, pattern in (
            ((), rf"printf %s {token} \| {agent} --token-file -\n"),
            (("--format", "command"), rf"printf %s {token} \| {agent} --token-file -\n"),
            (("--format", "env"), rf"env TOWER_TOKEN={token} {agent}\n"),
        ):
            said = self.good("join", "alpha", *words)
            self.assertIsNotNone(re.fullmatch(pattern, said), said)
            self.assertIn(HOST_KEY, said)

    def test_options(self) -> None:
        """The options set the token's lifetime and uses."""
        self.add("alpha")
        self.good("join", "alpha", "--ttl", "2h", "--uses", "3")
        (record,) = self.store.snapshot("jointokens").values()
        self.assertEqual((record.value["uses"], record.value["expires"]), (3, NOW + 7200))

    def test_disabled(self) -> None:
        """A join line for a disabled cluster comes with the cure, on standard error."""
        self.add("alpha")
        self.good("cluster", "disable", "alpha")
        code, out, err = self.run_tower("join", "alpha")
        self.assertEqual((code, out.count("\n")), (0, 1))
        self.assertIn("cluster alpha is disabled", err)
        self.assertIn("tower cluster enable alpha", err)

    def test_bad_options(self) -> None:
        """An error has the invalid value and the option."""
        self.add("alpha")
        self.assertIn("'soon'", self.wrong("join", "alpha", "--ttl", "soon"))
        for value in ("0", "x", "-1"):
            self.assertIn("--uses", self.wrong("join", "alpha", "--uses", value))


class UnpublishedTests(CommandTestCase):
    """A proxy on all addresses, without a published one."""

    published = Published("0.0.0.0", None, 8443, 8080)

    def test_names_the_flag(self) -> None:
        """Neither join nor kubeconfig print 0.0.0.0 as an address; they name the flag."""
        self.add("alpha")
        for words in (("join", "alpha"), ("kubeconfig", "alpha", "--user", "jane")):
            said = self.bad(*words)
            self.assertIn("--publish-service-address", said)
            self.assertNotIn("://0.0.0.0", said)


class MemberTokensTests(CommandTestCase):
    """`tower cluster set --member-tokens`."""

    def test_setting(self) -> None:
        """It is allowed, shown and taken back; other annotations stay."""
        self.add("alpha")
        self.assertNotIn("Member tokens", self.good("cluster", "show", "alpha"))
        self.good("cluster", "set", "alpha", "--member-tokens", "allow")
        self.assertEqual(
            self.store.snapshot("clusters")["alpha"].value["annotations"], {MEMBER_TOKENS: "true"}
        )
        self.assertIn("Member tokens", self.good("cluster", "show", "alpha"))
        self.assertIn("allowed with old agents", self.good("cluster", "show", "alpha"))
        self.good("cluster", "set", "alpha", "--member-tokens", "allow-alone")
        self.assertIn("allowed without another credential", self.good("cluster", "show", "alpha"))
        self.good("cluster", "set", "alpha", "--member-tokens", "reject")
        self.assertEqual(self.store.snapshot("clusters")["alpha"].value["annotations"], {})
        self.assertIn("--member-tokens", self.wrong("cluster", "set", "alpha", "--member-tokens", "maybe"))


class KubeconfigTests(CommandTestCase):
    """`tower kubeconfig`."""

    def test_defaults(self) -> None:
        """Standard output is the file; its names are unique per cluster."""
        self.add("alpha")
        config = yaml.safe_load(self.good("kubeconfig", "alpha", "--user", "jane", "--group", "dev"))
        self.assertEqual(config["current-context"], "jane@tower-alpha")
        self.assertIn("client-key-data", config["users"][0]["user"])
        (record,) = self.store.snapshot("credentials").values()
        self.assertEqual((record.value["user"], record.value["groups"]), ("jane", ["dev"]))
        self.assertEqual(record.value["expires"], NOW + 8 * 3600)

    def test_options(self) -> None:
        """The options set groups, lifetime, server and credential type."""
        self.add("alpha")
        words = ("--user", "jane", "--group", "dev", "--group", "qa", "--ttl", "1h", "--via", "port")
        config = yaml.safe_load(self.good("kubeconfig", "alpha", *words, "--auth", "token"))
        self.assertEqual(config["clusters"][0]["cluster"]["server"], "https://tower.example.org:6000")
        self.assertIn("token", config["users"][0]["user"])
        (record,) = self.store.snapshot("credentials").values()
        self.assertEqual((record.value["groups"], record.value["expires"]), (["dev", "qa"], NOW + 3600))

    def test_trusted_caller(self) -> None:
        """A trusted caller's credential has its role, and the list shows it."""
        self.add("alpha")
        config = yaml.safe_load(self.good("trusted-caller", "alpha", "--user", "kubesphere"))
        self.assertIn("client-key-data", config["users"][0]["user"])
        (record,) = self.store.snapshot("credentials").values()
        self.assertEqual((record.value["user"], record.value["role"]), ("kubesphere", "trusted-caller"))
        self.good("kubeconfig", "alpha", "--user", "jane")
        listed = self.good("credential", "list")
        self.assertEqual((listed.count("trusted-caller"), listed.count("kubesphere")), (1, 1))
        self.assertIn("system:", self.wrong("trusted-caller", "alpha", "--user", "system:admin"))

    def test_bad_options(self) -> None:
        """Errors have the option and the cure."""
        self.add("alpha")
        for words, text in (
            (("--user", "system:admin"), "system:"),
            (("--user", "jane", "--ttl", "25h"), "--max-credential-ttl"),
        ):
            self.assertIn(text, self.wrong("kubeconfig", "alpha", *words))
        for options, text in (
            ((), "--user"),
            (("--user", "jane", "--via", "air"), "--via"),
            (("--user", "jane", "--auth", "x"), "--auth"),
        ):
            self.assertIn(text, self.wrong("kubeconfig", "alpha", *options))


class OutputFileTests(CommandTestCase):
    """`--output FILE` of `tower kubeconfig` and `tower admin-kubeconfig`."""

    def setUp(self) -> None:
        """Add a cluster and make a folder."""
        super().setUp()
        self.add("alpha")
        self.folder = Path(self.mktemp())
        self.folder.mkdir()
        self.file = self.folder / "jane.kubeconfig"
        self.words = ("kubeconfig", "alpha", "--user", "jane", "--output", str(self.file))

    def mode(self) -> int:
        """Return the permissions of the file, the only one in its folder."""
        self.assertEqual(list(self.folder.iterdir()), [self.file])
        return stat.S_IMODE(self.file.stat().st_mode)

    def test_standard_output(self) -> None:
        """A dash is standard output, not a file of that name."""
        text = self.good("kubeconfig", "alpha", "--user", "jane", "--output", "-")
        self.assertEqual(yaml.safe_load(text)["kind"], "Config")
        self.assertFalse(Path("-").exists())

    def test_written(self) -> None:
        """The file is accessible to its owner only, regardless of the umask, and is not printed."""
        self.addCleanup(os.umask, os.umask(0))
        for words in (self.words, ("admin-kubeconfig", "--user", "ops", "-o", str(self.file))):
            for _ in range(2):
                self.assertEqual(self.good(*words), f"kubeconfig written to {self.file}\n")
            self.assertEqual(self.mode(), 0o600)
            config = yaml.safe_load(self.file.read_text())
            self.assertIn(config["users"][0]["name"].partition("@")[0], ("jane", "ops"))
            self.file.unlink()

    def test_other_user(self) -> None:
        """If the kubeconfig of another user, or for another cluster, is replaced, a note names it."""
        self.add("beta")
        self.good(*self.words)
        for words, replaced in (
            (("kubeconfig", "alpha", "--user", "joe"), "jane@tower-alpha"),
            (("kubeconfig", "beta", "--user", "joe"), "joe@tower-alpha"),
            (("kubeconfig", "beta", "--user", "joe", "--via", "port"), "joe@tower-beta"),
            (("admin-kubeconfig", "--user", "joe"), "joe@tower-beta:port"),
            (("kubeconfig", "alpha", "--user", "joe"), "joe@tower"),
        ):
            code, out, err = self.run_tower(*words, "--output", str(self.file))
            self.assertEqual((code, out), (0, f"kubeconfig written to {self.file}\n"))
            self.assertIn(
                f"replaced the kubeconfig of {replaced} in {self.file}; its credential remains", err
            )

    def test_other_contexts(self) -> None:
        """A kubeconfig with other contexts stays, and nothing is issued; the cure is --merge."""
        for names in (["mine"], ["jane@tower-alpha", "tower/beta"], ["jane@tower-alpha", "joe@tower-alpha"]):
            contexts = [{"name": name, "context": {"cluster": "a", "user": "b"}} for name in names]
            self.file.write_text(yaml.safe_dump({"kind": "Config", "contexts": contexts}))
            before = self.file.read_bytes()
            said = self.bad(*self.words)
            self.assertIn(f"the file already has other contexts, such as {names[-1]}: use", said)
            self.assertIn(f"--merge {self.file} to add this context", said)
            self.assertEqual(self.file.read_bytes(), before)
        self.assertEqual(dict(self.store.snapshot("credentials")), {})

    def test_replaced(self) -> None:
        """A file that others can read is replaced by a private one, even if they have it open."""
        self.file.write_text("old")
        self.file.chmod(0o644)
        with self.file.open() as held:
            self.good(*self.words)
            self.assertEqual(held.read(), "old")
        self.assertEqual(self.mode(), 0o600)
        self.assertIn("jane", self.file.read_text())

    def test_refused_first(self) -> None:
        """If the file cannot be written, nothing is issued and existing files stay."""
        other = self.folder / "other"
        other.write_text("dear")
        link, missing = self.folder / "link", self.folder / "none" / "file"
        link.symlink_to(other)
        os.mkfifo(self.folder / "pipe")
        for path, text in (
            (str(self.folder), "not a regular file"),
            (str(link), "not a regular file"),
            (str(self.folder / "pipe"), "not a regular file"),
            (str(missing), "no such file or directory"),
            (str(other / "file"), "not a directory"),
        ):
            self.assertIn(text, self.bad(*self.words[:-1], path))
            self.assertIn(f"--output {path}: ", self.bad(*self.words[:-1], path))
        self.assertIn("--output: the value is empty", self.wrong(*self.words[:-1], ""))
        self.assertEqual(dict(self.store.snapshot("credentials")), {})
        self.assertEqual(other.read_text(), "dear")
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["link", "other", "pipe"])

    def test_refused_by_the_proxy(self) -> None:
        """If nothing is issued, an existing file stays."""
        self.file.write_text("old")
        self.assertIn("--max-credential-ttl", self.wrong(*self.words, "--ttl", "9999h"))
        self.assertEqual((list(self.folder.iterdir()), self.file.read_text()), ([self.file], "old"))

    def test_not_written(self) -> None:
        """If writing fails late, the error has the command that revokes the credential."""

        def replace(*_: object) -> None:
            raise OSError(28, "No space left on device")

        self.patch(os, "replace", replace)
        said = self.bad(*self.words)
        (name,) = self.store.snapshot("credentials")
        self.assertIn(f"no space left on device; revoke it: tower credential revoke {name}", said)
        self.assertEqual(list(self.folder.iterdir()), [])


class AdminKubeconfigTests(CommandTestCase):
    """`tower admin-kubeconfig`."""

    def test_issued(self) -> None:
        """Standard output is the file, with an administrator's credential."""
        config = yaml.safe_load(self.good("admin-kubeconfig", "--user", "ops", "--ttl", "1h"))
        self.assertEqual(config["clusters"][0]["cluster"]["server"], "https://tower.example.org:8443")
        (record,) = self.store.snapshot("credentials").values()
        self.assertEqual((record.value["groups"], record.value["expires"]), (["tower:admins"], NOW + 3600))

    def test_refused(self) -> None:
        """A reserved name is rejected."""
        self.assertIn("tower:", self.wrong("admin-kubeconfig", "--user", "tower:ops"))


class CredentialTests(CommandTestCase):
    """`tower credential …`."""

    def test_list_and_revoke(self) -> None:
        """Issued credentials are listed until they are revoked."""
        self.add("alpha")
        self.assertEqual(self.good("credential", "list"), "no credentials\n")
        self.good("kubeconfig", "alpha", "--user", "jane")
        self.successResultOf(self.credentials.issue_token("", "root", ["tower:admins"], 60))
        self.assertEqual(len(self.good("credential", "list").splitlines()), 3)
        line = self.good("credential", "list", "--cluster", "alpha").splitlines()[1]
        self.assertEqual(line.split()[1:3], ["alpha", "jane"])
        answer = json.loads(self.good("credential", "list", "--cluster", "alpha", "-o", "json"))
        self.assertEqual(answer["items"][0]["spec"]["user"], "jane")
        name = line.split()[0]
        self.good("credential", "revoke", name)
        self.assertEqual(self.good("credential", "list", "--cluster", "alpha"), "no credentials\n")
        self.assertIn("tower credential list", self.bad("credential", "revoke", name))


class RightsTests(CommandTestCase):
    """`tower rbac`."""

    def test_host(self) -> None:
        """All roles of a proxy in a host cluster are bound to one account, and include Tower's objects."""
        objects = list(yaml.safe_load_all(self.good("rbac", "host")))
        (account,) = [each["metadata"] for each in objects if each["kind"] == "ServiceAccount"]
        roles, bound = set(), set()
        groups: set[str] = set()
        for each in objects:
            if each["kind"].endswith("Role"):
                roles.add((each["kind"], each["metadata"]["name"], each["metadata"].get("namespace")))
                groups.update(group for rule in each["rules"] for group in rule["apiGroups"])
            elif each["kind"].endswith("Binding"):
                self.assertEqual(each["subjects"], [{"kind": "ServiceAccount", **account}])
                name, kind = each["roleRef"]["name"], each["roleRef"]["kind"]
                bound.add((kind, name, each["metadata"].get("namespace")))
        self.assertEqual(roles, bound)
        own = {"cluster.kubesphere.io", "tower.kubesphere.io"}
        self.assertEqual(groups, {"", "coordination.k8s.io", "discovery.k8s.io", *own})


class WayInTests(CommandTestCase):
    """Selection of the proxy, and errors if it is missing."""

    def test_which_proxy(self) -> None:
        """Without a state directory or kubeconfig, the error names both options."""
        said = self.wrong("cluster", "list", state=False)
        self.assertIn("--state-dir", said)
        self.assertIn("--kubeconfig", said)

    def test_no_file(self) -> None:
        """Without a running proxy's file, the error names the file."""
        os.remove(f"{self.state}/admin.kubeconfig")
        said = self.bad("cluster", "list")
        self.assertIn("admin.kubeconfig", said)
        self.assertIn("tower-proxy", said)

    def test_broken_file(self) -> None:
        """A damaged kubeconfig is named."""
        with open(f"{self.state}/admin.kubeconfig", "w", encoding="utf-8") as file:
            file.write("{")
        self.assertIn("admin.kubeconfig", self.bad("cluster", "list"))

    def test_environment(self) -> None:
        """Environment variables replace the flags."""
        self.environ["TOWER_STATE_DIR"] = self.state
        self.assertEqual(self.run_tower("cluster", "list", state=False)[0], 0)
        self.environ["TOWER_KUBECONFIG"] = "/nowhere/admin.kubeconfig"
        self.assertIn("/nowhere", self.bad("cluster", "list", state=False))

    def test_kubeconfig_goes_first(self) -> None:
        """A kubeconfig takes precedence over the state directory."""
        path = f"{self.state}/admin.kubeconfig"
        code, _, _ = self.run_tower(
            "--kubeconfig", path, "--state-dir", "/nowhere", "cluster", "list", state=False
        )
        self.assertEqual(code, 0)

    def test_token_is_sent(self) -> None:
        """Requests have the credential and a user agent."""
        self.good("cluster", "list")
        ((method, target, headers),) = self.connection.requests
        self.assertEqual((method, target), ("GET", "/apis/cluster.kubesphere.io/v1alpha1/clusters"))
        self.assertEqual(headers["Authorization"], "Bearer t0ken")
        self.assertEqual(headers["User-Agent"], f"tower/{__version__}")

    def test_expired(self) -> None:
        """If the proxy rejects the credential, the error names its replacement."""
        body = json.dumps({"kind": "Status", "reason": "Unauthorized", "message": "it expired"}).encode()
        self.connection = _always(401, body)
        said = self.bad("cluster", "list")
        self.assertIn("it expired", said)
        self.assertIn("renews", said)

    def test_no_proxy_of_tower(self) -> None:
        """A server that is not a Tower proxy is named."""
        for code, body in ((200, b"<html>"), (502, b""), (200, b"[]")):
            self.connection = _always(code, body)
            self.assertIn("127.0.0.1:8443", self.bad("cluster", "list"))

    def test_version(self) -> None:
        """The output has the versions of the command and of a known proxy, and the builds."""
        self.connection = _always(200, b'{"gitVersion":"v9.9.9"}')
        self.assertEqual(self.good("version"), f"tower {VERSION}\nproxy v9.9.9\n")
        for build in ("native", "pure"):
            answer = {"gitVersion": "v9.9.9", "compiler": f"CPython ({build})"}
            self.connection = _always(200, json.dumps(answer).encode())
            self.assertEqual(self.good("version"), f"tower {VERSION}\nproxy v9.9.9 ({build})\n")
        self.assertEqual(self.good("version", "--client"), f"tower {VERSION}\n")
        code, text, note = self.run_tower("version", state=False)
        self.assertEqual((code, text), (0, f"tower {VERSION}\n"))
        self.assertIn("add --state-dir, --kubeconfig or --context", note)

    def test_help(self) -> None:
        """Every command has a help text."""
        for words in (
            (),
            ("cluster",),
            *(("cluster", name) for name in ("add", "list", "show", "enable", "disable")),
            *(("cluster", name) for name in ("remove", "agents", "revoke")),
            ("join",),
            ("kubeconfig",),
            ("admin-kubeconfig",),
            ("credential",),
            ("credential", "list"),
            ("credential", "revoke"),
            ("forward",),
            ("version",),
        ):
            code, out, _ = self.run_tower(*words, "--help")
            self.assertEqual(code, 0)
            self.assertIn("usage: tower", out)
            self.assertGreater(len(out.splitlines()), 4, words)

    def test_wrong_words(self) -> None:
        """An unknown command or option is named in one line."""
        for words, text in (
            ((), "COMMAND"),
            (("frob",), "frob"),
            (("cluster", "frob"), "frob"),
            (("cluster", "list", "--frob"), "--frob"),
            (("cluster", "list", "-o", "xml"), "xml"),
            (("cluster", "add"), "NAME"),
            (("clus", "list"), "clus"),
            (("forward", "alpha", "pg"), "--listen"),
        ):
            self.assertIn(text, self.wrong(*words))


def _always(code: int, body: bytes) -> FakeConnection:
    return FakeConnection(lambda *_: FakeResponse(code, body))
