"""The configuration of the provider openstack."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.cloud.asking import logged
from tower.cloud.config.text import ConfigText
from tower.cloud.errors import CloudConfigError
from tower.cloud.openstack.config import OpenStackConfig, Reference, parse_openstack_config
from tower.errors import ConfigurationError

LOGIN = "[Global]\nauth-url = https://k.example:5000/\nuser-id = u\npassword = hush\ntenant-id = p\n"


def parse(text: str) -> OpenStackConfig:
    """Read a configuration."""
    return parse_openstack_config(ConfigText("cloud.conf", text))


class ConfigTests(SynchronousTestCase):
    """Reading of values."""

    def test_none(self) -> None:
        """A configuration is needed."""
        with self.assertRaisesRegex(ConfigurationError, "--cloud-config with .Global. auth-url"):
            parse_openstack_config(None)

    def test_least(self) -> None:
        """The least that works, and what else is so then."""
        config = parse(LOGIN)
        self.assertEqual("https://k.example:5000/v3", config.auth_url)
        self.assertEqual((Reference("u"), Reference("p")), (config.user, config.project))
        self.assertEqual(
            ("public", ("configDrive", "metadataService")), (config.interface, config.search_order)
        )

    def test_domains(self) -> None:
        """One domain serves for both, or each has its own."""
        start = "[Global]\nauth-url = https://k\nusername = u\npassword = x\ntenant-name = p\n"
        config = parse(start + "domain-name = D\n")
        self.assertEqual(
            (Reference("", "D"), Reference("", "D")), (config.user_domain, config.project_domain)
        )
        config = parse(start + "domain-id = d\ntenant-domain-name = T\n")
        self.assertEqual((Reference("d"), Reference("", "T")), (config.user_domain, config.project_domain))

    def test_places(self) -> None:
        """Settings of metadata and networks."""
        config = parse(
            LOGIN + "node-metadata = a=b=c\n[Metadata]\nsearch-order = metadataService, configDrive\n"
            "request-timeout = 1m\n[Networking]\npublic-network-name = x\npublic-network-name = y\n"
        )
        self.assertEqual((("a", "b=c"),), config.node_metadata)
        self.assertEqual(("metadataService", "configDrive"), config.search_order)
        self.assertEqual((60.0, frozenset("xy")), (config.metadata_timeout, config.public_networks))

    def test_clouds_yaml(self) -> None:
        """Settings of OpenStack's own tools are errors with the command that shows them."""
        cure = (
            "put the values that 'openstack --os-cloud NAME configuration show --unmask' prints into [Global]"
        )
        with self.assertRaises(ConfigurationError) as caught:
            parse(f"{LOGIN}use-clouds = true\n")
        self.assertIn(f"use-clouds (clouds.yaml) is not supported: {cure}", str(caught.exception))
        self.assertRegex(str(caught.exception), "^cloud.conf:6: ")
        for text in ("clouds:\n  openstack:\n    auth: {password: hush}\n", "# mine\nclouds: {}"):
            with self.assertRaises(ConfigurationError) as caught:
                parse(text)
            self.assertIn(f"cloud.conf: clouds.yaml is not supported: {cure}", str(caught.exception))
            self.assertNotIn("hush", str(caught.exception))
        with self.assertRaises(ConfigurationError) as caught:
            parse_openstack_config(None)
        self.assertIn(f"OS_CLOUD and clouds.yaml are not read: {cure}", str(caught.exception))

    def test_wrong(self) -> None:
        """Errors have file and line."""
        for line, text in (
            ("auth-url = k", "auth-url must be a URL"),
            ("auth-url = http://k/v2.0", "remove /v2.0"),
            ("tls-insecure = true", "set ca-file"),
            ("os-endpoint-type = x", "one of public, internal, admin"),
            ("node-metadata = x", "needs a name and a value"),
            ("[Metadata]\nsearch-order = dhcp", "must have only"),
            ("[Metadata]\nrequest-timeout = soon", "must be a duration like 5s"),
        ):
            number = 5 + len(line.split("\n"))
            with self.assertRaisesRegex(CloudConfigError, f"^cloud.conf:{number}: .*{text}"):
                parse(LOGIN + line + "\n")

    def test_incomplete_logins(self) -> None:
        """An incomplete login is an error before a request."""
        start = "[Global]\nauth-url = https://k\n"
        for login, text in (
            ("", "a login is missing"),
            ("username = u\n", "a login is missing"),
            ("username = u\npassword = x\ntenant-id = p\n", "username needs domain-name"),
            ("user-id = u\npassword = x\n", "tenant-id or tenant-name is missing"),
            ("user-id = u\npassword = x\ntenant-name = p\n", "tenant-name needs domain-name"),
            ("application-credential-id = c\n", "application-credential-secret is missing"),
            (
                "application-credential-name = c\napplication-credential-secret = s\n",
                "needs username or user-id",
            ),
        ):
            with self.assertRaisesRegex(CloudConfigError, f"^cloud.conf.*{text}"):
                parse(start + login)
        with self.assertRaisesRegex(CloudConfigError, "auth-url is missing"):
            parse("[Global]\n")

    def test_unknown(self) -> None:
        """Upstream's unused keys are ignored; unknown keys are logged."""
        with logged() as lines:
            parse(LOGIN + "shiny = 1\n[LoadBalancer]\nlb-method = x\n[Route]\nrouter-id = y\n[Odd]\n")
        self.assertEqual(2, len(lines))

    def test_repr(self) -> None:
        """Passwords are not shown."""
        secret = "application-credential-id = c\napplication-credential-secret = hush\n"
        self.assertNotIn("hush", repr(parse(LOGIN)) + repr(parse(LOGIN + secret)))
