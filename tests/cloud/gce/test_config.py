"""The configuration of the provider gce."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.cloud.asking import logged
from tower.cloud.config.text import ConfigText
from tower.cloud.errors import CloudConfigError
from tower.cloud.gce.config import API_ENDPOINT, GCEConfig, parse_gce_config


def parse(text: str) -> GCEConfig:
    """Read a configuration."""
    return parse_gce_config(ConfigText("gce.conf", text), {})


class ConfigTests(SynchronousTestCase):
    """Reading of values."""

    def test_none(self) -> None:
        """Without a configuration all is found out."""
        config = parse_gce_config(None, {})
        self.assertEqual(
            ("", API_ENDPOINT, "", "metadata.google.internal"),
            (
                config.project,
                config.api,
                config.zone,
                config.metadata_host,
            ),
        )

    def test_all(self) -> None:
        """The names that upstream has mean what they mean there."""
        config = parse(
            "[Global]\ntoken-url = https://t.example/x\ntoken-body = b\nproject-id = example.com:p\n"
            "network-name = projects/p/global/networks/net\nnode-tags = a\nnode-tags = b\n"
            "node-instance-prefix = n-\nmultizone = true\nlocal-zone = us-east1-b\n"
            "api-endpoint = https://c.example/compute/v1\nkey-scope = instance\nmetadata-key = sshKeys\n"
        )
        wanted = GCEConfig(
            project="example.com:p",
            api="https://c.example/compute/v1/",
            zone="us-east1-b",
            many_zones=True,
            prefix="n-",
            tags=frozenset("ab"),
            network="net",
            token_url="https://t.example/x",
            token_body="b",
            key_items=("sshKeys",),
            key_scope="instance",
        )
        self.assertEqual(wanted, config)
        self.assertEqual("us-east1", config.region)

    def test_wrong(self) -> None:
        """Errors have file and line."""
        for line in (
            "api-endpoint = ftp://x",
            "token-url = x",
            "project-id = a/b",
            "local-zone = a b",
            'node-instance-prefix = "a\\""',
            "key-scope = all",
            "metadata-key = sshkeys",
            "multizone = maybe",
        ):
            with self.assertRaisesRegex(CloudConfigError, f"^gce.conf:2: {line.partition(' ')[0]} "):
                parse(f"[global]\n{line}\n")

    def test_unknown(self) -> None:
        """Keys of a later day are ignored, not without a word; those that upstream knows without one."""
        with logged() as lines:
            parse("[global]\nregional = true\nalpha-features = x\nsecondary-range-name = y\nshiny = 1\n")
        self.assertEqual(1, len(lines))
        self.assertIn("gce.conf:5: unknown key in [global]", lines[0])

    def test_repr(self) -> None:
        """The request body of the token service and its URL are not in the repr."""
        text = repr(parse("[global]\ntoken-url = https://t.example/?k=hush\ntoken-body = hush\n"))
        self.assertNotIn("hush", text)
