"""Tests of `tower.kube.flatten`, and of reading what it writes."""

from __future__ import annotations

from pathlib import Path

import yaml
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tower.errors import ConfigurationError
from tower.kube.flatten import self_contained, warnings_of
from tower.kube.kubeconfig import YAML_LIMIT, KubeAccess, load_kubeconfig, read_kubeconfig

TOKEN = KubeAccess("https://10.0.0.1:6443", token="t0ken")

_WORD = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1)


class SelfContainedTests(SynchronousTestCase):
    """There and back."""

    @given(
        st.binary(min_size=1) | st.none(),
        st.tuples(st.binary(min_size=1), st.binary(min_size=1)) | st.none(),
        _WORD | st.none(),
        st.text(min_size=1) | st.none(),
        st.booleans(),
    )
    @settings(deadline=None)
    def test_whole(
        self,
        ca_data: bytes | None,
        pair: tuple[bytes, bytes] | None,
        token: str | None,
        name: str | None,
        insecure: bool,
    ) -> None:
        """A self-contained kubeconfig is read back unchanged."""
        certificate, key = pair or (None, None)
        access = KubeAccess(
            "https://10.0.0.1:6443/prefix",
            ca_data=ca_data,
            client_certificate=certificate,
            client_key=key,
            token=token,
            tls_server_name=name,
            insecure=insecure,
            proxy_url=name,
            user="member",
        )
        self.assertEqual(read_kubeconfig(self_contained(access)), access)

    def test_token_file(self) -> None:
        """The token in a file comes into it; a file that is empty or not there is named."""
        path = Path(self.mktemp())
        access = evolve(TOKEN, token_file=path)
        self.assertIn(str(path), str(self.assertRaises(ConfigurationError, self_contained, access)))
        path.write_text("\n")
        self.assertIn(str(path), str(self.assertRaises(ConfigurationError, self_contained, access)))
        path.write_text("fresh\n")
        self.assertEqual(read_kubeconfig(self_contained(access)).token, "fresh")

    def test_files(self) -> None:
        """A reference to a file is rejected, and the error names the field for its content."""
        folder = Path(self.mktemp())
        folder.mkdir()
        (folder / "ca").write_bytes(b"CA")
        for section, key, cure in (
            ("cluster", "certificate-authority", "certificate-authority-data"),
            ("user", "client-key", "client-key-data"),
            ("user", "tokenFile", "token"),
        ):
            content = yaml.safe_load(self_contained(TOKEN))
            content[f"{section}s"][0][section][key] = "ca"
            if key == "client-key":
                content["users"][0]["user"]["client-certificate-data"] = "QQ=="
            text = yaml.safe_dump(content).encode()
            error = str(self.assertRaises(ConfigurationError, read_kubeconfig, text))
            self.assertIn(f"{key} refers to the file 'ca'", error)
            self.assertTrue(error.endswith(f"into {cure}"), error)
            path = folder / "config"
            path.write_bytes(text)
            load_kubeconfig(path)

    def test_bad(self) -> None:
        """Content that is not a kubeconfig is rejected, with the name of its source."""
        for data in (b"{", b"[]", b"\xff", b"", b"a: b", b"[" * 9999, b"a: " + b"b" * YAML_LIMIT):
            error = str(self.assertRaises(ConfigurationError, read_kubeconfig, data, "the request"))
            self.assertTrue(error.startswith("the request: "), error)

    def test_warnings(self) -> None:
        """Warnings name insecure TLS and a missing credential."""
        self.assertEqual(warnings_of(TOKEN), [])
        self.assertIn("insecure-skip-tls-verify", warnings_of(evolve(TOKEN, insecure=True))[0])
        self.assertIn("no credential", warnings_of(KubeAccess("https://h"))[0])
