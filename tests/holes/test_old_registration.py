"""Holes 10, 19 and 31, with our agent at a proxy of kubesphere-v1: its config for that proxy."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.fakes.chains import family, issue, pem
from tests.holes.oldproxykit import (
    SERVER,
    OldProxyTestCase,
    kubeconfig_with,
)
from tower.kube.kubeconfig import KubeAccess, load_kubeconfig
from tower.v1.config import AgentConfig

KUBERNETES = "10.0.0.1:6443"


class ConfigTests(OldProxyTestCase):
    """Holes 10, 19 and 31: the config that the old proxy gets."""

    def config(self, **options: Any) -> AgentConfig:
        """Return the config of an agent with these options."""
        agent = self.agent(**options)
        (config,) = self.proxy.configs
        agent.service.stopService()
        self.proxy.pump()
        return config

    def test_hole_10_a_rotated_token_is_sent(self) -> None:
        """Hole 10: when the token changes, the agent registers again, between two streams."""
        path = Path(self.mktemp())
        path.write_text("one\n")
        agent = self.agent(access=lambda: KubeAccess(server=SERVER, token_file=path, insecure=True))
        self.assertEqual([config.bearer for config in self.proxy.configs], [b"one"])
        opening = self.proxy.open(KUBERNETES)
        path.write_text("two\n")
        os.utime(path, (1, 1))
        self.assertTrue(agent.member.refresh())
        self.assertIsNotNone(agent.old.change)
        agent.service.renew()
        self.proxy.wait(2)
        self.assertEqual(agent.tries, 1)
        self.successResultOf(opening).abort()
        self.proxy.wait(2)
        self.assertEqual([config.bearer for config in self.proxy.configs], [b"two"])
        self.assertEqual((agent.tries, agent.service.state), (2, "connected"))
        self.assertIsNone(agent.old.change)

    def test_hole_19_kubernetes_service(self) -> None:
        """Hole 19: `--kubernetes-service` is the address in the config, and the one to dial."""
        agent = self.agent(service="api.example:7443")
        self.assertEqual(self.proxy.configs[0].kubernetes, "api.example:7443")
        self.successResultOf(self.proxy.open("api.example:7443"))
        self.assertEqual(agent.dialed, [("api.example", 7443)])

    def test_hole_19_ipv6(self) -> None:
        """Hole 19: an IPv6 address has its brackets there."""
        access = KubeAccess(server="https://[fd00::1]:6443", token="t", insecure=True)
        self.assertEqual(self.config(access=lambda: access).kubernetes, "[fd00::1]:6443")

    def test_hole_19_credentials_in_files(self) -> None:
        """Hole 19: certificate, key, CA and token that a kubeconfig names as files are what is sent."""
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        certificate, key = issue("agent")
        files = {
            "ca.crt": pem(family()[0][0]),
            "client.crt": pem(certificate),
            "client.key": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
            "token": b"word\n",
        }
        for name, content in files.items():
            (folder / name).write_bytes(content)
        path = folder / "kubeconfig"
        for user, expected in (
            (
                {"client-certificate": "client.crt", "client-key": "client.key"},
                (files["client.crt"], files["client.key"], b""),
            ),
            ({"tokenFile": "token"}, (b"", b"", b"word")),
            ({"token": "word"}, (b"", b"", b"word")),
        ):
            path.write_text(json.dumps(kubeconfig_with(user, **{"certificate-authority": "ca.crt"})))
            config = self.config(access=lambda: load_kubeconfig(path))
            self.assertEqual((config.certificate, config.key, config.bearer), expected)
            self.assertEqual(config.authority, files["ca.crt"])

    def test_hole_19_kubesphere_has_a_port(self) -> None:
        """Hole 19: the address of KubeSphere is sent with its port."""
        self.assertEqual(self.config().kubesphere, "ks-apiserver:80")

    def test_hole_31_line_ends_around_tokens(self) -> None:
        """Hole 31: blanks and line ends around the token in a file are not sent."""
        path = Path(self.mktemp())
        for content in ("word\n", "\n word\r\n"):
            path.write_text(content)
            access = KubeAccess(server=SERVER, token_file=path, insecure=True)
            self.assertEqual(self.config(access=lambda access=access: access).bearer, b"word")
