"""`tower join`: lines for KubeSphere Tower agents, manifests, imported tokens."""

from __future__ import annotations

import hashlib
import io
import shlex
from pathlib import Path
from typing import Any

import yaml
from twisted.internet.defer import Deferred

from tests.fakes.cli import CommandTestCase
from tests.fakes.tunnels import FakeTunnel

#: As upstream makes them: 64 hex digits.
OLD = "0123456789abcdef" * 4

V1 = ("join", "alpha", "--protocol", "v1")
V2_MANIFEST = ("join", "alpha", "--format", "manifest")


class V1Case(CommandTestCase):
    """Test case with the cluster alpha."""

    def setUp(self) -> None:
        """Add the cluster."""
        super().setUp()
        self.add("alpha")

    def said(self, *words: str) -> tuple[str, str]:
        """Return standard output and standard error of a command that must succeed."""
        code, out, err = self.run_tower(*words)
        self.assertEqual(code, 0, err)
        return out, err

    def nothing_made(self, *words: str) -> str:
        """Return the error of a command that must fail without making a token."""
        said = self.failing(*words)
        self.assertEqual(dict(self.store.snapshot("v1tokens")), {})
        self.assertEqual(dict(self.store.snapshot("jointokens")), {})
        return said


class LineTests(V1Case):
    """`--format command`, the default."""

    def test_line(self) -> None:
        """Standard output is one line, with only options of KubeSphere Tower's agent."""
        out, err = self.said(*V1)
        self.assertEqual(out.count("\n"), 1)
        match shlex.split(out):
            case ["agent", "--name", "alpha", "--token", token, "--proxy-server", server]:
                found = self.v1_tokens.check("alpha", token)
                self.assertEqual(server, "http://tower.example.org:8080")
            case words:
                self.fail(f"{words}")
        self.assertIn(f"tower cluster revoke alpha {found}", err)
        self.assertIn("--ca-file", err)
        self.assertIn("--kubeconfig", err)
        self.assertNotIn(token, err)

    def test_with_ca(self) -> None:
        """With a CA file, the agent uses the TLS port and trusts the CA."""
        path = self.mktemp()
        out, err = self.said(*V1, "--ca-file", path)
        self.assertEqual(Path(path).read_bytes(), self.serving.pem)
        words = shlex.split(out)
        self.assertEqual(words[:3], ["env", f"SSL_CERT_FILE={path}", "agent"])
        self.assertEqual(words[-2:], ["--proxy-server", "https://tower.example.org:8443"])
        self.assertNotIn("http:", err)
        self.said(*V1, "--ca-file", path)

    def test_ca_file_of_another(self) -> None:
        """A file with other contents is not overwritten, and a missing directory is named."""
        path = Path(self.mktemp())
        path.write_text("precious")
        self.assertIn(str(path), self.bad(*V1, "--ca-file", str(path)))
        self.assertEqual(path.read_text(), "precious")
        self.assertIn("no such file", self.bad(*V1, "--ca-file", "/nowhere/ca.crt"))

    def test_new_each_time(self) -> None:
        """Each line has a new token."""
        self.assertNotEqual(self.said(*V1)[0], self.said(*V1)[0])
        self.assertEqual(len(self.v1_tokens.tokens("alpha")), 2)


class ImportTests(V1Case):
    """`--token-file`."""

    def written(self, text: str | bytes) -> str:
        """Return the path of a file with *text*."""
        path = Path(self.mktemp())
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    def test_file(self) -> None:
        """A token in a file is imported, without the newline at its end (hole 31)."""
        out, _ = self.said(*V1, "--token-file", self.written(f"{OLD}\n"))
        self.assertIn(f"--token {OLD} ", out)
        self.v1_tokens.check("alpha", OLD)

    def test_standard_input(self) -> None:
        """A token on standard input is imported."""
        self.stdin = io.StringIO(f"{OLD}\n")
        self.said(*V1, "--token-file", "-")
        self.v1_tokens.check("alpha", OLD)

    def test_refused(self) -> None:
        """A file without a valid token is named; its contents are not shown."""
        for text, words in (
            ("", "16 to 1024"),
            ("s3cr3t", "16 to 1024"),
            ("s3cr3t s3cr3t s3cr3t s3cr3t", "one word"),
            ("s3cr3t" * 1000, "16 to 1024"),
            (b"s3cr3t\xff\xfe\xff\xff\xff\xff\xff\xff\xff\xff", "not text"),
        ):
            said = self.nothing_made(*V1, "--token-file", self.written(text))
            self.assertIn(words, said)
            self.assertNotIn("s3cr3t", said)
        self.assertIn("/nowhere/token", self.nothing_made(*V1, "--token-file", "/nowhere/token"))


class ManifestTests(V1Case):
    """`--format manifest`."""

    def objects(self, *words: str) -> dict[str, dict[str, Any]]:
        """Return the objects in the manifest, by kind."""
        out, err = self.said(*V1, "--format", "manifest", *words)
        self.assertEqual(err, "")
        return {item["kind"]: item for item in yaml.safe_load_all(out)}

    def test_objects(self) -> None:
        """The manifest has all objects that the agent needs, in KubeSphere's namespace."""
        objects = self.objects()
        self.assertEqual(
            list(objects), ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Secret", "Deployment"]
        )
        for kind in ("ServiceAccount", "Secret", "Deployment"):
            self.assertEqual(objects[kind]["metadata"]["namespace"], "kubesphere-system")
        binding = objects["ClusterRoleBinding"]
        self.assertEqual(binding["roleRef"]["name"], objects["ClusterRole"]["metadata"]["name"])
        account = {key: objects["ServiceAccount"]["metadata"][key] for key in ("name", "namespace")}
        self.assertEqual(binding["subjects"], [{"kind": "ServiceAccount", **account}])
        (rule,) = objects["ClusterRole"]["rules"]
        self.assertEqual((rule["resources"], rule["verbs"]), (["users", "groups"], ["impersonate"]))

    def test_deployment(self) -> None:
        """The agent gets its flags, and verifies the proxy with the CA in the manifest."""
        objects = self.objects()
        spec = objects["Deployment"]["spec"]
        self.assertEqual(spec["selector"]["matchLabels"], spec["template"]["metadata"]["labels"])
        pod = spec["template"]["spec"]
        self.assertEqual(pod["serviceAccountName"], objects["ServiceAccount"]["metadata"]["name"])
        (container,) = pod["containers"]
        self.assertEqual(container["image"], "kubesphere/tower:v0.2.1")
        self.assertEqual(container["command"], ["/agent"])
        self.assertIn("--name=alpha", container["args"])
        self.assertIn("--proxy-server=https://tower.example.org:8443", container["args"])
        environment = {variable["name"]: variable for variable in container["env"]}
        (mount,), (volume,) = container["volumeMounts"], pod["volumes"]
        (item,) = volume["secret"]["items"]
        self.assertEqual(volume["secret"]["secretName"], objects["Secret"]["metadata"]["name"])
        self.assertEqual(environment["SSL_CERT_FILE"]["value"], f"{mount['mountPath']}/{item['path']}")
        self.assertEqual(objects["Secret"]["stringData"][item["key"]].encode(), self.serving.pem)

    def test_token(self) -> None:
        """Only the Secret contains the token, and the agent reads it from there."""
        objects = self.objects()
        token = objects["Secret"]["stringData"]["token"]
        self.v1_tokens.check("alpha", token)
        self.assertNotIn(token, str(objects["Deployment"]))
        (container,) = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
        self.assertIn("--token=$(TOWER_TOKEN)", container["args"])
        reference = container["env"][0]["valueFrom"]["secretKeyRef"]
        self.assertEqual(
            (container["env"][0]["name"], reference["name"], reference["key"]),
            ("TOWER_TOKEN", objects["Secret"]["metadata"]["name"], "token"),
        )

    def test_readable(self) -> None:
        """The manifest is readable: the CA is a block of lines, and there are no YAML references."""
        out, _ = self.said(*V1, "--format", "manifest")
        self.assertIn("\n  ca.crt: |\n    -----BEGIN CERTIFICATE-----\n", out)
        self.assertNotRegex(out, r"[&*]id0")
        self.assertTrue(out.startswith("# KubeSphere Tower agent"), out[:80])

    def test_image_and_token(self) -> None:
        """The image can be set; an imported token is in the Secret."""
        path = Path(self.mktemp())
        path.write_text(OLD)
        objects = self.objects("--image", "registry.example/tower:v0.2.0", "--token-file", str(path))
        (container,) = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
        self.assertEqual(container["image"], "registry.example/tower:v0.2.0")
        self.assertEqual(objects["Secret"]["stringData"]["token"], OLD)


class AgentManifestTests(V1Case):
    """`--format manifest` for Tower's agent; its objects: `tests.member.manifest`."""

    def test_manifest(self) -> None:
        """The manifest has the parameters of the join line, and a valid token in a Secret only."""
        out = self.good(*V2_MANIFEST)
        objects = [item for item in yaml.safe_load_all(out) if item is not None]
        (container,) = objects[-1]["spec"]["template"]["spec"]["containers"]
        options = {each["name"]: each.get("value", "") for each in container["env"]}
        self.assertEqual(options["TOWER_NAME"], "alpha")
        self.assertEqual(options["TOWER_PROXY_SERVER"], "wss://tower.example.org:8443")
        self.assertTrue(options["TOWER_HOST_KEY"].startswith("SHA256:"))
        self.assertTrue(options["TOWER_CA_HASH"].startswith("sha256:"))
        (secret,) = (item for item in objects if "stringData" in item)
        token = secret["stringData"]["token"]
        self.assertEqual(out.count(token), 1)
        (record,) = self.store.snapshot("jointokens").values()
        self.assertEqual(record.value["uses"], 1)
        self.assertEqual(record.name, hashlib.sha256(token.encode()).hexdigest())

    def test_choices(self) -> None:
        """Image, users and groups are those that were given; lists are repeatable."""
        words = ("--image", "registry.example/tower:1", "--impersonate-users=jane,joe", "--ttl=2h")
        out = self.good(*V2_MANIFEST, *words, "--impersonate-groups=dev", "--impersonate-groups", "ops")
        objects = {item["kind"]: item for item in yaml.safe_load_all(out) if item is not None}
        (container,) = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
        self.assertEqual(container["image"], "registry.example/tower:1")
        names = [rule["resourceNames"] for rule in objects["ClusterRole"]["rules"]]
        self.assertEqual(names, [["jane", "joe"], ["dev", "ops"]])

    def test_uid_and_extra(self) -> None:
        """The agent may pass on users' UIDs and extra fields if that was chosen."""
        extra = ("--impersonate-extra=example.org/team,unit", "--impersonate-extra", "x")
        keys = ["userextras/example.org/team", "userextras/unit", "userextras/x"]
        for words, resources in (
            (("--impersonate-uid",), ["uids"]),
            (extra, keys),
            (("--impersonate-uid", *extra), ["uids", *keys]),
            (("--impersonate-extra", "*"), ["*"]),
        ):
            for text in (self.good(*V2_MANIFEST, *words), self.import_manifest(*words)):
                objects = {item["kind"]: item for item in yaml.safe_load_all(text) if item is not None}
                names, more = objects["ClusterRole"]["rules"]
                self.assertEqual(names["resources"], ["users", "groups"])
                rule = {"apiGroups": ["authentication.k8s.io"], "verbs": ["impersonate"]}
                self.assertEqual(more, {**rule, "resources": resources})

    def test_place(self) -> None:
        """Namespace, replicas and the registry's credentials are those that were given."""
        words = ("--namespace=platform", "--replicas=3", "--image-pull-secret=a", "--image-pull-secret=b")
        for text in (self.good(*V2_MANIFEST, *words), self.import_manifest(*words)):
            objects = {item["kind"]: item for item in yaml.safe_load_all(text) if item is not None}
            deployment = objects["Deployment"]
            self.assertNotIn("Namespace", objects)
            self.assertEqual(deployment["metadata"]["namespace"], "platform")
            self.assertEqual(deployment["spec"]["replicas"], 3)
            secrets = deployment["spec"]["template"]["spec"]["imagePullSecrets"]
            self.assertEqual([each["name"] for each in secrets], ["a", "b"])

    def import_manifest(self, *words: str) -> str:
        """Return the manifest at an import URL."""
        url, _ = self.said("join", "alpha", "--output-url", *words)
        fetching = Deferred.fromCoroutine(self.issuer.import_manifest(url.strip().rsplit("/", 1)[1]))
        _, text = self.successResultOf(fetching)
        return str(text)


class ImportURLTests(V1Case):
    """`--output-url`."""

    URL = ("join", "alpha", "--output-url")

    def fetched(self, url: str) -> dict[str, dict[str, Any]]:
        """Return the objects of the manifest at an import URL, by kind."""
        base, secret = url.strip().rsplit("/", 1)
        self.assertEqual(base, "https://tower.example.org:8443/import")
        fetching = Deferred.fromCoroutine(self.issuer.import_manifest(secret))
        cluster, text = self.successResultOf(fetching)
        self.assertEqual(cluster, "alpha")
        return {item["kind"]: item for item in yaml.safe_load_all(text)}

    def test_url(self) -> None:
        """Standard output is the URL alone; the notes have neither it nor its secret."""
        out, err = self.said(*self.URL)
        self.assertEqual(out.count("\n"), 1)
        self.assertNotIn(out.strip().rsplit("/", 1)[1], err)
        self.assertIn("kubectl apply -f URL", err)
        self.assertIn("--ca-file FILE", err)
        (container,) = self.fetched(out)["Deployment"]["spec"]["template"]["spec"]["containers"]
        self.assertIn({"name": "TOWER_NAME", "value": "alpha"}, container["env"])

    def test_choices(self) -> None:
        """Image, users, groups and the token's uses are those that were given."""
        words = ("--image=registry.example/tower:1", "--impersonate-groups=dev", "--uses=3", "--ttl=2h")
        objects = self.fetched(self.said(*self.URL, *words)[0])
        (container,) = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
        self.assertEqual(container["image"], "registry.example/tower:1")
        self.assertEqual(objects["ClusterRole"]["rules"][1]["resourceNames"], ["dev"])
        values = [record.value for record in self.store.snapshot("jointokens").values()]
        self.assertEqual(sorted(value["uses"] for value in values), [0, 3])
        self.assertEqual({value["expires"] for value in values}, {self.clock.seconds() + 7200})

    def test_ca(self) -> None:
        """With a file for the CA, the note has a complete command."""
        path = self.mktemp()
        _, err = self.said(*self.URL, "--ca-file", path)
        self.assertEqual(Path(path).read_bytes(), self.serving.pem)
        self.assertIn(f"curl -fsS --cacert {path} URL | kubectl apply -f -", err)


class OptionTests(V1Case):
    """Options that do not work together."""

    def test_named(self) -> None:
        """An option for another protocol or format is named, and no token is made."""
        for words, text in (
            ((*V1, "--ttl", "2h"), "--ttl"),
            ((*V1, "--uses", "2"), "--uses"),
            ((*V1, "--image", "x"), "--image"),
            ((*V1, "--format", "manifest", "--ca-file", "x"), "--ca-file"),
            (("join", "alpha", "--token-file", "x"), "--token-file"),
            (("join", "alpha", "--ca-file", "x"), "--ca-file"),
            (("join", "alpha", "--image", "x"), "--image"),
            (("join", "alpha", "--impersonate-groups", "dev"), "--format manifest"),
            ((*V1, "--format", "manifest", "--impersonate-users", "jane"), "--impersonate-users"),
            (
                (*V2_MANIFEST, "--impersonate-users", "jane"),
                "--impersonate-users: requires --impersonate-groups",
            ),
            (
                (*V2_MANIFEST, "--impersonate-groups", "system:masters"),
                "--impersonate-groups: 'system:masters'",
            ),
            (("join", "alpha", "--impersonate-uid"), "--format manifest"),
            (
                (*V2_MANIFEST, "--impersonate-extra", "Team"),
                "--impersonate-extra: 'Team': must be lower case: the API server",
            ),
            ((*V2_MANIFEST, "--target", "db"), "--target: 'db'"),
            ((*V2_MANIFEST, "--kubesphere-service", "a b"), "--kubesphere-service: 'a b'"),
            (("join", "alpha", "--target", "db=h:1"), "--format manifest"),
            ((*V1, "--format", "manifest", "--kubesphere-service", "h"), "--protocol v2"),
            (("join", "alpha", "--output-url", "--format", "env"), "mutually exclusive"),
            ((*V1, "--output-url"), "--protocol v2"),
            ((*V2_MANIFEST, "--impersonate-groups", " , "), "--impersonate-groups: ''"),
            ((*V2_MANIFEST, "--image", "x y"), "--image: 'x y'"),
            ((*V2_MANIFEST, "--namespace", "A"), "--namespace: 'A': must be"),
            ((*V2_MANIFEST, "--replicas", "9"), "--replicas: 9: must be"),
            ((*V2_MANIFEST, "--image-pull-secret", "A"), "--image-pull-secret: 'A' is not"),
            (("join", "alpha", "--replicas", "2"), "--format manifest"),
            ((*V1, "--format", "manifest", "--namespace", "x"), "--namespace requires --protocol v2"),
            ((*V1, "--format", "env"), "--protocol v2"),
            (("join", "alpha", "--protocol", "v3"), "--protocol"),
            (("join", "alpha", "--token", OLD), "--token"),
        ):
            self.assertIn(text, self.nothing_made(*words))

    def test_missing_cluster(self) -> None:
        """A missing cluster is named."""
        self.assertIn("there is no cluster beta", self.nothing_made("join", "beta", "--protocol", "v1"))


class AgentTests(V1Case):
    """Tokens in the list of agents."""

    def test_shown_and_revoked(self) -> None:
        """A token is listed with its live tunnels, also by `show`, and is revoked by its id."""
        self.said(*V1)
        (token,) = self.v1_tokens.tokens("alpha")
        self.tunnels.add(FakeTunnel("alpha", token.id, version="v0.2.1", protocol="kubesphere-v1"))
        for words in (("cluster", "agents", "alpha"), ("cluster", "show", "alpha")):
            line = self.good(*words).splitlines()[-1]
            self.assertEqual((line.split()[0], line.split()[-1]), (token.id, "kubesphere-v1"))
            self.assertIn("v0.2.1", line)
        self.assertIn(token.id, self.good("cluster", "revoke", "alpha", token.id))
        self.assertEqual(self.v1_tokens.tokens("alpha"), [])
        self.assertIn("tower cluster agents alpha", self.bad("cluster", "revoke", "alpha", token.id))


class PendingTests(V1Case):
    """`tower join-token`."""

    def test_list_and_revoke(self) -> None:
        """A line and a URL are listed without their secrets, and revoked."""
        self.assertEqual(self.said("join-token", "list"), ("no join tokens\n", ""))
        line, _ = self.said("join", "alpha", "--uses", "3")
        url, _ = self.said("join", "alpha", "--output-url")
        out, _ = self.said("join-token", "list", "--cluster", "alpha")
        head, *rows = out.splitlines()
        self.assertEqual(head.split()[:5], ["NAME", "CLUSTER", "TYPE", "USES", "EXPIRES"])
        self.assertEqual(
            sorted(row.split()[1:4] for row in rows), [["alpha", "token", "3"], ["alpha", "url", "1"]]
        )
        self.assertNotIn(line.split()[2], out)
        self.assertNotIn(url.strip().rpartition("/")[2], out)
        for row in rows:
            name = row.split()[0]
            self.assertEqual(self.said("join-token", "revoke", name)[0], f"join token {name} revoked\n")
        self.assertEqual(dict(self.store.snapshot("jointokens")), {})
        said = self.failing("join-token", "revoke", name)
        self.assertIn(f"there is no join token {name} that can still be used", said)
