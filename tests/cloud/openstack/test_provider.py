"""The provider openstack against Keystone and Nova, played by `tests.cloud.standins.openstack`."""

from __future__ import annotations

import json
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from zope.interface.verify import verifyObject

from tests.cloud.asking import finish, logged
from tests.cloud.openstack.kit import BASE, BY_PASSWORD, GLOBAL, OpenStackTestCase
from tests.cloud.standins.openstack import (
    BUSY,
    CREDENTIAL,
    CREDENTIAL_NAME,
    CREDENTIAL_SECRET,
    PASSWORD,
    PROJECT,
    RATE_LIMIT,
    TRUST,
    USER,
    Server,
    fault,
)
from tests.cloud.standins.rest import Fault, Reply
from tower.cloud.config.text import ConfigText
from tower.cloud.errors import CloudAnswerError, CloudError, InstanceNotFound, NotImplementedByCloud
from tower.cloud.interfaces import (
    EXTERNAL_IP,
    INTERNAL_IP,
    ICloudProvider,
    IInstances,
    IZones,
    NodeAddress,
    Zone,
)
from tower.cloud.openstack.provider import make
from tower.cloud.openstack.servers import metadata_item

KEY = b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAzIWC9Y0cTcYkKBOFHUTZFB2rUdKrFg0bZBVEQO0pEl"
RSA_KEY = (
    rsa.generate_private_key(65537, 2048).public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
)
BY_CREDENTIAL = f"""\
application-credential-id = {CREDENTIAL}
application-credential-secret = {CREDENTIAL_SECRET}
"""
BY_NAMED_CREDENTIAL = f"""\
application-credential-name = {CREDENTIAL_NAME}
application-credential-secret = {CREDENTIAL_SECRET}
username = tower
domain-name = Default
tenant-name = not-sent
"""


class ProviderTests(OpenStackTestCase):
    """Calls of every provider."""

    def test_interfaces(self) -> None:
        """Provider, instances and zones implement their interfaces; the rest is not supported."""
        verifyObject(ICloudProvider, self.cloud)
        verifyObject(IInstances, self.cloud.instances())
        verifyObject(IZones, self.cloud.zones())
        rest = (self.cloud.clusters(), self.cloud.routes(), self.cloud.load_balancer())  # type: ignore[func-returns-value]
        self.assertEqual((None, None, None), rest)

    def test_uninitialized(self) -> None:
        """Calls before initialization are errors."""
        cloud = make(ConfigText("cloud.conf", GLOBAL + BY_PASSWORD))
        self.assertRaises(CloudError, cloud.instances)
        self.assertRaises(CloudError, cloud.zones)
        cloud.stop()

    def test_list(self) -> None:
        """A listed server has provider ID, addresses, type, zone and state."""
        first, second, third = finish(self.clock, self.cloud.instances().list_instances())
        self.assertEqual(self.number("node-a"), first.provider_id)
        self.assertEqual(
            (NodeAddress(INTERNAL_IP, "10.0.0.11"), NodeAddress(EXTERNAL_IP, "203.0.113.11")), first.addresses
        )
        wanted = (
            NodeAddress(INTERNAL_IP, "10.0.0.12"),
            NodeAddress(INTERNAL_IP, "fd00::12"),
            NodeAddress(EXTERNAL_IP, "2001:db8::12"),
        )
        self.assertEqual(wanted, second.addresses)
        self.assertEqual((NodeAddress(EXTERNAL_IP, "198.51.100.1"),), third.addresses)
        self.assertEqual(["m1.small", "m1.small", "m1.big"], [each.type for each in (first, second, third)])
        self.assertEqual((Zone("nova", "RegionOne"), Zone("az2", "RegionOne")), (first.zone, second.zone))
        self.assertEqual([True, True, False], [each.running for each in (first, second, third)])

    def test_pages(self) -> None:
        """A list of many pages is listed whole."""
        self.openstack.servers = [Server(f"node-{number}") for number in range(7)]
        for size in (1, 2, 3, 7, 1000):
            self.openstack.page_size = size
            self.assertEqual([f"node-{number}" for number in range(7)], self.names(self.cloud))
        self.assertEqual([], self.openstack.resource.refused)

    def test_which(self) -> None:
        """Only servers with the prefix and the metadata are listed."""
        self.assertEqual(["node-a", "node-b"], self.names(self.provider("node-prefix = node-\n")))
        self.assertEqual([], self.names(self.provider("node-prefix = n.de-\n")))
        self.assertEqual(["node-a", "node-b"], self.names(self.provider("node-metadata = cluster=beta\n")))

    def test_networks(self) -> None:
        """The configuration selects external networks and IPv6."""
        cloud = self.provider("[Networking]\npublic-network-name = private\nipv6-support-disabled\n")
        _, second, third = finish(self.clock, cloud.instances().list_instances())
        self.assertEqual((NodeAddress(EXTERNAL_IP, "10.0.0.12"),), second.addresses)
        self.assertEqual((NodeAddress(INTERNAL_IP, "198.51.100.1"),), third.addresses)

    def test_internal_networks(self) -> None:
        """If internal networks are configured, addresses in others are ignored."""
        self.openstack.servers[0].addresses += [("a-storage", "10.99.0.1", "fixed")]
        cloud = self.provider("[Networking]\ninternal-network-name = private\n")
        first, _, third = finish(self.clock, cloud.instances().list_instances())
        wanted = (NodeAddress(INTERNAL_IP, "10.0.0.11"), NodeAddress(EXTERNAL_IP, "203.0.113.11"))
        self.assertEqual(wanted, first.addresses)
        self.assertEqual((NodeAddress(EXTERNAL_IP, "198.51.100.1"),), third.addresses)

    def test_by_name(self) -> None:
        """A node is found by its whole name, in which all characters are literal."""
        instances = self.cloud.instances()
        number = self.number("node-a").removeprefix("openstack://")
        self.assertEqual(number, finish(self.clock, instances.instance_id("node-a")))
        self.assertEqual("m1.big", finish(self.clock, instances.instance_type("other")))
        self.openstack.servers.append(Server("a.b(c)[d]"))
        self.assertTrue(finish(self.clock, instances.instance_id("a.b(c)[d]")))
        for name in ("node", "node-.", ".*", "not-ours", "", "x" * 300):
            with self.assertRaises(InstanceNotFound):
                finish(self.clock, instances.node_addresses(name))

    def test_two_of_a_name(self) -> None:
        """Two servers of one name are an error; deleted ones are ignored."""
        twin = Server("node-a")
        self.patch(Server, "id", property(lambda server: f"{hash(id(server)):x}"))
        self.openstack.servers.append(twin)
        with self.assertRaisesRegex(CloudError, "multiple results where only one expected"):
            finish(self.clock, self.cloud.instances().node_addresses("node-a"))
        twin.status = "SOFT_DELETED"
        self.assertEqual(2, len(finish(self.clock, self.cloud.instances().node_addresses("node-a"))))

    def test_by_provider_id(self) -> None:
        """A server is found by provider ID, with addresses, type and state."""
        instances = self.cloud.instances()
        number = self.number("other")
        self.assertEqual("m1.big", finish(self.clock, instances.instance_type_by_provider_id(number)))
        self.assertIs(True, finish(self.clock, instances.instance_shutdown_by_provider_id(number)))
        self.assertIs(True, finish(self.clock, instances.instance_exists_by_provider_id(number)))
        with_region = number.replace(":///", "://RegionOne/")
        self.assertIs(True, finish(self.clock, instances.instance_exists_by_provider_id(with_region)))
        self.assertEqual(1, len(finish(self.clock, instances.node_addresses_by_provider_id(number))))

    def test_existence(self) -> None:
        """Only a missing server, or one of another project, does not exist; no response is an error."""
        instances = self.cloud.instances()
        for number in ("openstack:///gone", self.number("not-ours")):
            self.assertIs(False, finish(self.clock, instances.instance_exists_by_provider_id(number)))
        for number in ("gce://a/b/c", "openstack://RegionTwo/gone"):
            with self.assertRaises(CloudError):
                finish(self.clock, instances.instance_exists_by_provider_id(number))
        self.openstack.resource.faults.append(Fault(BUSY, 99))
        with self.assertRaises(CloudAnswerError):
            finish(self.clock, instances.instance_exists_by_provider_id("openstack:///gone"))

    def test_zones(self) -> None:
        """The zones of this server, of nodes and of provider IDs."""
        place = f"{BASE}/as/{self.openstack.servers[1].id}"
        zones = self.provider(f"[Metadata]\nsearch-order = metadataService\nmetadata-url = {place}\n").zones()
        wanted = Zone("az2", "RegionOne")
        self.assertEqual(wanted, finish(self.clock, zones.get_zone()))
        self.assertEqual(wanted, finish(self.clock, zones.get_zone_by_node_name("node-b")))
        self.assertEqual(wanted, finish(self.clock, zones.get_zone_by_provider_id(self.number("node-b"))))

    def test_current_node(self) -> None:
        """The metadata service or the configuration drive has the name of this server."""
        place = f"{BASE}/as/{self.openstack.servers[0].id}"
        drive = Path(self.mktemp())
        text = f"[Metadata]\nmetadata-url = {place}\nrequest-timeout = 2s\nconfig-drive = {drive}\n"
        instances = self.provider(text).instances()
        self.assertEqual("node-a", finish(self.clock, instances.current_node_name("host")))
        (drive / "openstack/latest").mkdir(parents=True)
        (drive / "openstack/latest/meta_data.json").write_text(json.dumps({"name": "from-the-drive"}))
        self.assertEqual("from-the-drive", finish(self.clock, instances.current_node_name("host")))

    def test_current_node_unknown(self) -> None:
        """If the server is unknown, the error has each source with its reason, within a limited time."""
        self.openstack.resource.faults.append(Fault(None, 99, "meta_data"))
        cloud = self.provider(f"[Metadata]\nmetadata-url = {BASE}\nrequest-timeout = 2s\n")
        before = self.clock.seconds()
        with self.assertRaisesRegex(CloudError, "configDrive: .*; metadataService: .*no answer within 2 s"):
            finish(self.clock, cloud.instances().current_node_name("host"))
        self.assertLess(self.clock.seconds() - before, 10)


class LoginTests(OpenStackTestCase):
    """Logins and tokens."""

    def test_forms(self) -> None:
        """All forms of users, projects, trusts and application credentials work."""
        logins = (
            f"user-id = {USER}\npassword = {PASSWORD}\ntenant-id = {PROJECT}\n",
            f"username = tower\npassword = {PASSWORD}\ndomain-id = default\ntenant-name = demo\n",
            f"username = tower\npassword = {PASSWORD}\nuser-domain-name = Default\ntenant-id = {PROJECT}\n",
            f"user-id = {USER}\npassword = {PASSWORD}\ntenant-name = demo\ntenant-domain-id = default\n",
            f"user-id = {USER}\npassword = {PASSWORD}\ntrust-id = {TRUST}\n",
            BY_CREDENTIAL,
            BY_NAMED_CREDENTIAL,
        )
        for login in logins:
            self.assertEqual(3, len(self.names(self.provider(login=login))), login)
        self.assertEqual([], self.openstack.resource.refused)

    def test_auth_url(self) -> None:
        """Keystone's address is fine with and without the version."""
        for end in ("", "/", "/v3", "/v3/"):
            start = GLOBAL.replace("/identity", f"/identity{end}")
            self.assertEqual(3, len(self.names(self.provider(start=start))))

    def test_one_for_many(self) -> None:
        """A login serves until shortly before its end, by Keystone's own times."""
        for _ in range(3):
            self.names(self.cloud)
        self.assertEqual(1, self.logins())
        self.clock.advance(3400)
        self.names(self.cloud)
        self.assertEqual(2, self.logins())
        self.assertEqual([], self.openstack.resource.refused)

    def test_wrong_clock(self) -> None:
        """A clock of ours that is wrong does not matter."""
        self.openstack._seconds = lambda: self.clock.seconds() - 90_000
        self.names(self.cloud)
        self.clock.advance(1000)
        self.names(self.cloud)
        self.assertEqual(1, self.logins())

    def test_revoked(self) -> None:
        """A token that is refused is replaced once, and the request made again."""
        self.names(self.cloud)
        self.openstack.revoke()
        self.assertEqual(3, len(self.names(self.cloud)))
        self.assertEqual([401], [reply.code for _, reply in self.openstack.resource.refused])

    def test_wrong_password(self) -> None:
        """A wrong password is an error at once, without the password, and is not retried."""
        cloud = self.provider(login=BY_PASSWORD.replace(PASSWORD, "hush-hush"))
        with (
            logged() as lines,
            self.assertRaisesRegex(CloudAnswerError, "/v3/auth/tokens answered 401") as caught,
        ):
            self.names(cloud)
        self.assertEqual(1, self.logins())
        self.assertNotIn("hush-hush", f"{caught.exception} {lines}")

    def test_repeated_password(self) -> None:
        """A service that repeats what it was sent does not bring a password into an error."""
        for login, secret in ((BY_PASSWORD, PASSWORD), (BY_CREDENTIAL, CREDENTIAL_SECRET)):
            reply = Reply(400, {"error": {"message": f"what is {secret}?", "code": 400}})
            self.openstack.resource.faults.append(Fault(reply, 1, "/auth/"))
            with logged() as lines, self.assertRaisesRegex(CloudAnswerError, "what is …?") as caught:
                self.names(self.provider(login=login))
            self.assertNotIn(secret, f"{caught.exception!r} {lines}")

    def test_regions(self) -> None:
        """Which region is asked must be clear; an error names those that there are."""
        several = self.provider(start=GLOBAL.replace("region = RegionOne\n", ""))
        with self.assertRaisesRegex(CloudError, "region = RegionOne or RegionTwo"):
            self.names(several)
        wrong = self.provider(start=GLOBAL.replace("RegionOne", "RegionZero"))
        with self.assertRaisesRegex(
            CloudError, "in region RegionZero; regions with one: RegionOne, RegionTwo"
        ):
            self.names(wrong)
        only = self.provider(
            "os-endpoint-type = internalURL\n", start=GLOBAL.replace("region = RegionOne\n", "")
        )
        self.assertEqual(3, len(self.names(only)))

    def test_garbage(self) -> None:
        """A login that cannot be read is a clear error."""
        token = {"token": {"expires_at": "soon", "catalog": []}}
        bodies: list[object] = [b"<html>", [], {}, {"token": {}}, token, {"token": {"expires_at": 5}}]
        for body in bodies:
            self.openstack.resource.faults.append(Fault(Reply(201, body), 1, "/auth/"))
            with self.assertRaisesRegex(CloudError, "not JSON|no valid login"):
                self.names(self.cloud)


class NovaTests(OpenStackTestCase):
    """How Nova is asked."""

    def test_old_nova(self) -> None:
        """A Nova that is too old for our microversion is asked by the oldest, each flavour once."""
        self.openstack.newest = (2, 38)
        for _ in range(2):
            listed = finish(self.clock, self.cloud.instances().list_instances())
            self.assertEqual(["m1.small", "m1.small", "m1.big"], [each.type for each in listed])
        self.assertEqual([406], [reply.code for _, reply in self.openstack.resource.refused])
        flavors = [ask for ask in self.openstack.resource.asks if "/flavors/" in ask.path]
        self.assertEqual(2, len(flavors))

    def test_deleted_flavor(self) -> None:
        """A flavour that is no more goes by its id."""
        self.openstack.newest = (2, 38)
        self.openstack.resource.faults.append(Fault(fault(404, "itemNotFound", "gone"), 99, "/flavors/"))
        first = finish(self.clock, self.cloud.instances().list_instances())[0]
        self.assertRegex(first.type, "^[0-9a-f]{8}$")

    def test_project_in_url(self) -> None:
        """The older URLs with the project's id work."""
        self.openstack.project_in_url = True
        self.assertEqual(3, len(self.names(self.cloud)))

    def test_rate_limit(self) -> None:
        """After a rate limit, it waits for the requested time; an old Nova uses another status."""
        old = fault(413, "overLimit", "This request was rate-limited.", Retry_After="4")
        for limit in (RATE_LIMIT, old):
            self.openstack.resource.faults.append(Fault(limit, 2, "/servers"))
            before = self.clock.seconds()
            self.assertEqual(3, len(self.names(self.cloud)))
            self.assertGreaterEqual(self.clock.seconds() - before, 8)

    def test_silence(self) -> None:
        """A service that does not answer is given up."""
        self.openstack.resource.faults.append(Fault(None, 99, "/servers"))
        with self.assertRaisesRegex(CloudError, "no answer within"):
            finish(self.clock, self.cloud.instances().list_instances(), 200)

    def test_unreadable(self) -> None:
        """A response without a list of servers is an error."""
        bodies: list[object] = [b"<html>", [], {}, {"servers": [{"id": "1"}]}, {"servers": {"a": 1}}]
        for body in bodies:
            self.openstack.resource.faults.append(Fault(Reply(200, body), 1, "/servers"))
            with self.assertRaisesRegex(CloudError, "not JSON|unexpected form|no list of servers|without id"):
                self.names(self.cloud)

    def test_links_are_not_followed(self) -> None:
        """A link to a page on another host does not get the token."""
        elsewhere = "http://elsewhere.test/servers/detail?marker=x"
        first = self.openstack.servers[0].render((2, 47))
        body = {"servers": [first], "servers_links": [{"rel": "next", "href": elsewhere}]}
        self.openstack.resource.faults.append(Fault(Reply(200, body), 1, "/servers"))
        self.names(self.cloud)
        hosts = {ask.headers["host"] for ask in self.openstack.resource.asks}
        self.assertEqual({"cloud.test"}, hosts)

    def test_endless_list(self) -> None:
        """A list whose next page is always the same one is an error."""
        link = {"rel": "next", "href": ""}
        body = {"servers": [self.openstack.servers[0].render((2, 47))], "servers_links": [link]}
        self.openstack.resource.faults.append(Fault(Reply(200, body), 99, "/servers"))
        with self.assertRaisesRegex(CloudError, "does not end"):
            self.names(self.cloud)


class KeyTests(OpenStackTestCase):
    """Installing keys."""

    def install(self, user: str = "alice", key: bytes = KEY) -> None:
        """Install *key*."""
        finish(self.clock, self.cloud.instances().add_ssh_key_to_all_instances(user, key))

    def writes(self) -> int:
        """Return how often metadata was written."""
        return self.openstack.resource.count("POST", "/metadata")

    def test_installed(self) -> None:
        """Every server of the cluster gets the key in its metadata, and existing items stay."""
        self.install()
        name, value = metadata_item("alice", KEY)
        self.assertEqual(KEY.decode(), value)
        self.assertTrue(name.startswith("tower-ssh-key:alice:"))
        ours = self.openstack.servers[:3]
        self.assertEqual([value] * 3, [each.metadata[name] for each in ours])
        self.assertEqual("beta", ours[0].metadata["cluster"])
        self.assertEqual({}, self.openstack.servers[3].metadata)
        self.assertIn(("alice", value), self.told)

    def test_once(self) -> None:
        """An existing item is not written again; other keys and users are preserved."""
        self.install()
        self.install()
        self.assertEqual(3, self.writes())
        self.install("bob")
        other = b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB comment"
        self.install("alice", other)
        self.assertEqual(
            3, sum(name.startswith("tower-ssh-key:") for name in self.openstack.servers[0].metadata)
        )

    def test_rsa(self) -> None:
        """A key that is too long for metadata is refused, with what to do; nothing is sent."""
        with self.assertRaisesRegex(
            NotImplementedByCloud, r"^unimplemented: this ssh-rsa key has 380 .*user data.*ed25519"
        ):
            self.install(key=RSA_KEY)
        self.assertEqual([], self.openstack.resource.asks)

    def test_bad(self) -> None:
        """Invalid keys and users are rejected."""
        for user, key in (("alice", b"ssh-ed25519"), ("alice", b"ssh-ed25519 AAAA"), ("a:b", KEY), ("", KEY)):
            with self.assertRaises(CloudError):
                self.install(user, key)

    def test_being_built(self) -> None:
        """A server that is being built gets it the next time."""
        self.openstack.servers[1].status = "BUILD"
        with logged() as lines:
            self.install()
        self.assertTrue(any("2 of 3 servers, 1 are not ready" in each for each in lines))
        self.openstack.servers[1].status = "ACTIVE"
        self.install()
        self.assertIn(metadata_item("alice", KEY)[0], self.openstack.servers[1].metadata)

    def test_full(self) -> None:
        """A server whose metadata are full is named, with what to do; the others get it."""
        self.openstack.servers[0].metadata = {f"item-{number}": "x" for number in range(128)}
        pattern = r"^1 of 3 servers did not get the key: node-a \(its metadata is full: remove tower-ssh-key"
        with self.assertRaisesRegex(CloudError, pattern):
            self.install()
        self.assertIn(metadata_item("alice", KEY)[0], self.openstack.servers[1].metadata)

    def test_forbidden(self) -> None:
        """A rejected write is reported with name and reason."""
        refusal = fault(403, "forbidden", "Policy doesn't allow os_compute_api:server-metadata:create")
        self.openstack.resource.faults.append(Fault(refusal, 99, "/metadata"))
        with self.assertRaisesRegex(CloudError, r"^3 of 3 servers .*node-a \(.*Policy doesn't allow"):
            self.install()

    def test_gone_meanwhile(self) -> None:
        """A server that was deleted since the listing is ignored."""
        self.openstack.resource.faults.append(Fault(fault(404, "itemNotFound", "gone"), 1, "/metadata"))
        self.install()


class SecretTests(OpenStackTestCase):
    """Secrets."""

    def test_nothing_secret(self) -> None:
        """Logs, errors and reprs never have a token or a password."""
        said = []
        with logged() as lines:
            for reply in (BUSY, RATE_LIMIT, None, Reply(401, b"?"), Reply(406, b"?")):
                self.names(self.cloud)
                for place in ("/servers", "/auth/"):
                    self.openstack.revoke()
                    self.openstack.resource.faults = [Fault(reply, 99, place)]
                    try:
                        self.names(self.cloud)
                    except CloudError as e:
                        said.append(f"{e} {e!r} {e.__cause__!r} {e.__context__!r}")
                self.openstack.resource.faults = []
        text = "\n".join([*lines, *said, repr(vars(self.cloud))])
        self.assertGreater(len(said), 6)
        self.assertNotIn("gAAAA", text)
        self.assertNotIn(PASSWORD, text)
