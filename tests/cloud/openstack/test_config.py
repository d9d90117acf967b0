"""The configuration of the provider openstack."""

from __future__ import annotations

from pathlib import Path

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
    """What is read."""

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
        """What is said of metadata and networks."""
        config = parse(
            LOGIN + "node-metadata = a=b=c\n[Metadata]\nsearch-order = metadataService, configDrive\n"
            "request-timeout = 1m\n[Networking]\npublic-network-name = x\npublic-network-name = y\n"
        )
        self.assertEqual((("a", "b=c"),), config.node_metadata)
        self.assertEqual(("metadataService", "configDrive"), config.search_order)
        self.assertEqual((60.0, frozenset("xy")), (config.metadata_timeout, config.public_networks))

    def clouds(self, text: str) -> str:
        """Write a file of clouds; return what leads to it."""
        path = Path(self.mktemp())
        path.write_text(text)
        return f"[Global]\nuse-clouds = true\nclouds-file = {path}\n"

    def test_clouds(self) -> None:
        """A login may be in a file of clouds, as OpenStack's own tools have it; ours counts before it."""
        start = self.clouds(
            "clouds:\n  other: {}\n  openstack:\n    auth:\n      auth_url: https://k.example:5000\n"
            "      username: u\n      password: hush\n      project_name: p\n      user_domain_name: U\n"
            "      project_domain_id: 7\n    region_name: R\n    interface: internal\n    cacert: /ca.pem\n"
            "    identity_api_version: 3\n    verify: true\n"
        )
        config = parse(start)
        self.assertEqual("https://k.example:5000/v3", config.auth_url)
        self.assertEqual((Reference("", "u"), Reference("", "U")), (config.user, config.user_domain))
        self.assertEqual((Reference("", "p"), Reference("7")), (config.project, config.project_domain))
        self.assertEqual(
            ("hush", "R", "internal", "/ca.pem"),
            (config.password, config.region, config.interface, config.ca_file),
        )
        self.assertEqual("mine", parse(f"{start}region = mine\n").region)
        credential = self.clouds(
            "clouds:\n  prod:\n    auth_type: v3applicationcredential\n    auth:\n      auth_url: https://k/v3\n"
            "      application_credential_id: c\n      application_credential_secret: hush\n"
        )
        self.assertEqual(Reference("c"), parse(f"{credential}cloud = prod\n").credential)

    def test_secure(self) -> None:
        """What is secret may be in a file beside it, or in another that is named; what that says counts."""
        start = self.clouds(
            "clouds:\n  openstack:\n    auth: {auth_url: 'https://k.example', user_id: u, password: old}\n"
            "    region_name: R\n    interface: internal\n"
        )
        folder = Path(self.mktemp())
        folder.mkdir()
        Path(start.rpartition("= ")[2].strip()).rename(folder / "clouds.yaml")
        start = f"[Global]\nuse-clouds = true\ntenant-id = p\nclouds-file = {folder / 'clouds.yaml'}\n"
        self.assertEqual("old", parse(start).password)
        said = "clouds:\n  openstack:\n    auth:\n      password: hush\n    region_name: S\n  more: {}\n"
        (folder / "secure.yaml").write_text(said)
        config = parse(start)
        self.assertEqual((Reference("u"), "hush", "S"), (config.user, config.password, config.region))
        self.assertEqual("internal", config.interface)
        (folder / "mine.yaml").write_text("clouds:\n  openstack:\n    auth: {password: third}\n")
        self.assertEqual("third", parse(f"{start}secure-file = {folder / 'mine.yaml'}\n").password)
        self.assertNotIn("hush", repr(config))
        (folder / "secure.yaml").write_text("a: b: hush")
        error = str(self.assertRaises(ConfigurationError, parse, start))
        self.assertIn("secure.yaml: this is no YAML", error)
        self.assertNotIn("hush", error)

    def test_secure_forms(self) -> None:
        """A file for secrets that has another form than it should does no harm, or is an error."""
        folder = Path(self.mktemp())
        folder.mkdir()
        (folder / "clouds.yaml").write_text(
            "clouds:\n  openstack:\n    auth: {auth_url: 'https://k', user_id: u, password: p}\n"
        )
        start = f"[Global]\nuse-clouds = true\ntenant-id = p\nclouds-file = {folder / 'clouds.yaml'}\n"
        for said in ("", "[]", "clouds: []", "clouds: {other: 1}", "hush"):
            (folder / "secure.yaml").write_text(said)
            self.assertEqual("p", parse(start).password)
        for said in ("clouds: {openstack: hush}", "clouds: {openstack: {auth: {password: [hush]}}}"):
            (folder / "secure.yaml").write_text(said)
            self.assertNotIn("hush", str(self.assertRaises(ConfigurationError, parse, start)))

    def test_wrong_clouds(self) -> None:
        """A file of clouds that does not help is an error that shows nothing of it."""
        for text, wanted in (
            ("clouds: [hush]", "there is no cloud openstack"),
            ("clouds:\n  other: {}", "there is no cloud openstack"),
            ("a: b: hush", "this is no YAML"),
            ("clouds:\n  openstack:\n    verify: false", "name the authority with cacert"),
            ("clouds:\n  openstack:\n    auth:\n      password: [hush]", "password must be a text"),
            ("clouds:\n  openstack:\n    auth:\n      password: hush", "auth-url is missing"),
        ):
            error = self.assertRaises(ConfigurationError, parse, self.clouds(text))
            self.assertIn(wanted, str(error))
            self.assertNotIn("hush", str(error))
        nowhere = "[Global]\nuse-clouds = true\nclouds-file = /nowhere/at/all\n"
        self.assertIn("No such file", str(self.assertRaises(ConfigurationError, parse, nowhere)))

    def test_wrong(self) -> None:
        """What cannot be is told with file and line."""
        for line, text in (
            ("auth-url = k", "auth-url is no URL"),
            ("auth-url = http://k/v2.0", "version 2.0"),
            ("tls-insecure = true", "name the authority with ca-file"),
            ("os-endpoint-type = x", "none of public, internal, admin"),
            ("node-metadata = x", "needs a name and a value"),
            ("[Metadata]\nsearch-order = dhcp", "others than"),
            ("[Metadata]\nrequest-timeout = soon", "no duration like 5s"),
        ):
            number = 5 + len(line.split("\n"))
            with self.assertRaisesRegex(CloudConfigError, f"^cloud.conf:{number}: .*{text}"):
                parse(LOGIN + line + "\n")

    def test_incomplete_logins(self) -> None:
        """A login that Keystone would refuse for its form is told of before."""
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
        """What upstream knows and we do not need is ignored; what nobody knows is told of."""
        with logged() as lines:
            parse(LOGIN + "shiny = 1\n[LoadBalancer]\nlb-method = x\n[Route]\nrouter-id = y\n[Odd]\n")
        self.assertEqual(2, len(lines))

    def test_repr(self) -> None:
        """Passwords are not shown."""
        secret = "application-credential-id = c\napplication-credential-secret = hush\n"
        self.assertNotIn("hush", repr(parse(LOGIN)) + repr(parse(LOGIN + secret)))
