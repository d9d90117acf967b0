"""Tests of `tower.kube.kubeconfig`."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tower.errors import ConfigurationError
from tower.kube.kubeconfig import KubeAccess, kubeconfig, load_kubeconfig


def encoded(data: bytes) -> str:
    """Return the value of a ``…-data`` field."""
    return base64.b64encode(data).decode("ascii")


class LoadTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Begin with the least that a kubeconfig holds."""
        self.folder = Path(self.mktemp())
        self.folder.mkdir()
        self.path = self.folder / "config"
        self.cluster: dict[str, Any] = {"server": "https://10.0.0.1:6443"}
        self.user: dict[str, Any] = {"token": "t0ken"}
        self.context: dict[str, Any] = {"cluster": "c", "user": "u"}
        self.content: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": self.cluster}],
            "users": [{"name": "u", "user": self.user}],
            "contexts": [{"name": "x", "context": self.context}],
            "current-context": "x",
        }

    def load(self, context: str | None = None) -> KubeAccess:
        """Write the file and read it."""
        self.path.write_text(yaml.safe_dump(self.content))
        return load_kubeconfig(self.path, context)

    def test_plugin(self) -> None:
        """A credential plugin is read only for callers that run it."""
        self.user["exec"] = {"command": "aws"}
        self.assertIn("credential plugin", self.refusal())
        access = load_kubeconfig(self.path, allow_plugin=True)
        self.assertEqual((access.plugin, access.plugin_config), ({"command": "aws"}, None))
        self.user["exec"] = ["aws"]
        self.path.write_text(yaml.safe_dump(self.content))
        error = self.assertRaises(ConfigurationError, load_kubeconfig, self.path, allow_plugin=True)
        self.assertIn("exec of user 'u' is not a mapping", str(error))

    def refusal(self, context: str | None = None) -> str:
        """Return the error: one line with the path and no secret."""
        error = str(self.assertRaises(ConfigurationError, self.load, context))
        self.assertIn(str(self.path), error)
        self.assertNotIn("\n", error)
        self.assertNotIn("t0ken", error)
        return error

    def test_token(self) -> None:
        """The least there can be: a server and a token."""
        access = self.load()
        self.assertEqual(
            access, KubeAccess("https://10.0.0.1:6443", token="t0ken", user="u", files=(self.path,))
        )
        self.assertNotIn("t0ken", repr(access))

    def test_inline(self) -> None:
        """Everything inline."""
        self.cluster |= {
            "certificate-authority-data": encoded(b"CA"),
            "tls-server-name": "kubernetes",
            "proxy-url": "http://proxy:3128",
        }
        self.user |= {"client-certificate-data": encoded(b"CERT"), "client-key-data": encoded(b"KEY")}
        self.context["namespace"] = "web"
        access = self.load()
        self.assertEqual(
            (access.ca_data, access.client_certificate, access.client_key), (b"CA", b"CERT", b"KEY")
        )
        self.assertEqual(
            (access.tls_server_name, access.proxy_url, access.namespace, access.insecure),
            ("kubernetes", "http://proxy:3128", "web", False),
        )
        self.assertNotIn("KEY", repr(access))

    def test_files(self) -> None:
        """Hole 19: files are read relative to the kubeconfig's directory, and listed for change detection."""
        for name, data in (("ca.crt", b"CA"), ("u.crt", b"CERT")):
            (self.folder / name).write_bytes(data)
        key = self.folder / "u.key"
        key.write_bytes(b"KEY")
        self.cluster["certificate-authority"] = "ca.crt"
        self.user |= {"client-certificate": "./u.crt", "client-key": str(key.absolute()), "tokenFile": "tok"}
        access = self.load()
        self.assertEqual(
            (access.ca_data, access.client_certificate, access.client_key), (b"CA", b"CERT", b"KEY")
        )
        self.assertEqual(access.token_file, self.folder / "tok")
        self.assertEqual(
            set(access.files), {self.path, self.folder / "ca.crt", self.folder / "u.crt", key.absolute()}
        )

    def test_inline_goes_first(self) -> None:
        """Inline data takes precedence over a file, as in kubectl; the file is not opened."""
        self.cluster |= {"certificate-authority-data": encoded(b"CA"), "certificate-authority": "absent"}
        self.assertEqual(self.load().ca_data, b"CA")

    def test_chosen_context(self) -> None:
        """A context can be selected; the error for an unknown one lists all."""
        self.content["clusters"].append({"name": "d", "cluster": {"server": "http://localhost:8080/"}})
        self.content["contexts"].append({"name": "y", "context": {"cluster": "d"}})
        self.assertEqual(self.load("y"), KubeAccess("http://localhost:8080", files=(self.path,)))
        self.assertIn("has no context 'z'; it has: x, y", self.refusal("z"))

    def test_insecure(self) -> None:
        """A server is insecure only if the field is true."""
        self.cluster["insecure-skip-tls-verify"] = True
        self.assertTrue(self.load().insecure)
        self.cluster["insecure-skip-tls-verify"] = "yes please"
        self.assertIn("insecure-skip-tls-verify", self.refusal())

    def test_unsupported(self) -> None:
        """Unsupported entries are named in the error, never ignored."""
        for key, value in (
            ("exec", {"command": "aws"}),
            ("auth-provider", {"name": "gcp"}),
            ("username", "admin"),
            ("as", "root"),
            ("as-groups", ["system:masters"]),
        ):
            with self.subTest(key=key):
                self.user.clear()
                self.user[key] = value
                error = self.refusal()
                self.assertIn("user 'u'", error)
                self.assertIn(f"({key})", error)

    def test_incomplete(self) -> None:
        """Each thing that is missing is named."""
        self.user["client-certificate-data"] = encoded(b"CERT")
        self.assertIn("only one of client-certificate and client-key", self.refusal())
        del self.content["users"]
        self.assertIn("has no user 'u'; it has: none", self.refusal())
        self.content["clusters"] = [{"name": "other"}, "junk"]
        self.assertIn("has no cluster 'c'; it has: other", self.refusal())
        self.context.clear()
        self.assertIn("names no cluster", self.refusal())
        del self.content["current-context"]
        self.assertIn("kubectl config use-context", self.refusal())

    def test_server(self) -> None:
        """A malformed server URL is named in the error."""
        odd = ("http\t://a", "https://a\n", "https://a b", "https://a/\x7f")
        for server in (
            "",
            "10.0.0.1:6443",
            "ftp://x",
            "https://",
            "https://x:99999",
            "https://u:p@x",
            7,
            *odd,
        ):
            with self.subTest(server=server):
                self.cluster["server"] = server
                error = self.refusal()
                self.assertIn("cluster 'c'", error)
                self.assertNotIn("u:p", error)

    def test_ipv6_and_path(self) -> None:
        """IPv6 addresses and path prefixes are kept."""
        self.cluster["server"] = "https://[::1]:6443/k8s/clusters/c-1/"
        self.assertEqual(self.load().server, "https://[::1]:6443/k8s/clusters/c-1")

    def test_not_base64(self) -> None:
        """Broken base64 is named, not shown."""
        self.user |= {"client-certificate-data": "t0ken!", "client-key-data": encoded(b"KEY")}
        self.assertIn("client-certificate-data of user 'u' is not base64", self.refusal())

    def test_not_text(self) -> None:
        """A number where a text belongs is refused."""
        self.user["token"] = 123456
        error = self.refusal()
        self.assertIn("token of user 'u'", error)
        self.assertNotIn("123456", error)

    def test_missing_file(self) -> None:
        """A file that is not there is named with the entry that wants it."""
        self.cluster["certificate-authority"] = "ca.crt"
        self.assertIn("ca.crt of cluster 'c': No such file or directory", self.refusal())

    def test_no_kubeconfig(self) -> None:
        """No file, a directory, no YAML, YAML of another kind, a huge file: one line each."""
        refused = self.assertRaises(ConfigurationError, load_kubeconfig, self.path)
        self.assertIn("No such file", str(refused))
        refused = self.assertRaises(ConfigurationError, load_kubeconfig, self.folder)
        self.assertIn("Is a directory", str(refused))
        contents = (
            b"",
            b"a: [",
            b"- a",
            b"\xff\xfe\0",
            b"[" * 5000,
            b"x" * (5 << 20),
            b"a: !!python/name:os",
        )
        for content in contents:
            self.path.write_bytes(content)
            error = str(self.assertRaises(ConfigurationError, load_kubeconfig, self.path))
            self.assertNotIn("\n", error)
            self.assertIn(str(self.path), error)

    def test_odd_shapes(self) -> None:
        """Lists and strings at wrong positions are configuration errors, not crashes."""
        good = dict(self.content)
        for section in ("clusters", "users", "contexts", "current-context"):
            for odd in ("text", 1, {"a": 1}, [1], [{"name": "c"}], [{"name": "x", "context": [1]}], []):
                with self.subTest(section=section, odd=odd):
                    self.content = {**good, section: odd}
                    self.refusal()


class WriteTests(SynchronousTestCase):
    def test_round_trip(self) -> None:
        """A written kubeconfig is read back unchanged."""
        written = kubeconfig(
            server="https://tower.example.com:8443/clusters/alpha",
            ca_pem=b"CA",
            cluster="alpha",
            user="jane",
            certificate=(b"CERT", b"KEY"),
        )
        path = Path(self.mktemp())
        path.write_text(written)
        access = load_kubeconfig(path)
        self.assertEqual(
            access,
            KubeAccess(
                "https://tower.example.com:8443/clusters/alpha",
                ca_data=b"CA",
                client_certificate=b"CERT",
                client_key=b"KEY",
                user="jane@tower-alpha",
                files=(path,),
            ),
        )

    def test_unique_names(self) -> None:
        """Names of different clusters, users and endpoints never clash."""
        seen: set[tuple[str, str]] = set()
        for cluster in ("alpha", "alpha-port", "tower", "tower-alpha", ""):
            for by_port in (False, True):
                content = yaml.safe_load(
                    kubeconfig(
                        server="https://x",
                        ca_pem=b"",
                        cluster=cluster,
                        user="jane",
                        token="t",
                        by_port=by_port,
                    )
                )
                names = content["clusters"][0]["name"], content["current-context"]
                self.assertEqual(content["contexts"][0]["name"], content["current-context"])
                self.assertEqual(content["contexts"][0]["context"], {"cluster": names[0], "user": names[1]})
                self.assertFalse({names} & seen)
                seen.add(names)

    @settings(max_examples=50, deadline=None)
    def test_public_authority(self) -> None:
        """Without a CA, clients verify the server by those of their systems."""
        path = Path(self.mktemp())
        path.write_text(kubeconfig(server="https://t.example", ca_pem=b"", cluster="a", user="b", token="c"))
        self.assertNotIn("certificate-authority", path.read_text())
        self.assertIsNone(load_kubeconfig(path).ca_data)

    @given(
        user=st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1), token=st.text("abc=-_.:#")
    )
    def test_any_user(self, user: str, token: str) -> None:
        """No user's name breaks the file."""
        content = yaml.safe_load(kubeconfig(server="s", ca_pem=b"", cluster="c", user=user, token=token))
        self.assertEqual(content["users"], [{"name": f"{user}@tower-c", "user": {"token": token}}])
