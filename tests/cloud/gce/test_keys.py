"""SSH keys in the metadata of Compute Engine."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from tests.cloud.asking import finish, logged
from tests.cloud.gce.kit import KEY, GCETestCase
from tests.cloud.standins.gce import BUSY, PROJECT, RATE_LIMIT, Machine, error
from tests.cloud.standins.rest import Fault
from tower.cloud.errors import CloudError
from tower.cloud.gce.key_installer import SEARCH_LIMIT, SEARCH_PAUSE
from tower.cloud.gce.keys import (
    VALUE_LIMIT,
    has_line,
    ignores_project_keys,
    items_to_change,
    key_line,
    with_line,
)

LINE = f"alice:{KEY.decode()} alice@alice"
EXPIRED = 'carol:ssh-rsa AAAAB3 google-ssh {"userName":"carol@x.org","expireOn":"2018-12-04T20:12:00+0000"}'
OTHERS = f"dave:ssh-rsa AAAAB3NzaC1yc2E dave@desk\n{EXPIRED}"


class LineTests(SynchronousTestCase):
    """The rules, without I/O."""

    def test_line(self) -> None:
        """A line has Compute Engine's form, also with blanks around the key."""
        self.assertEqual(LINE, key_line("alice", KEY))
        self.assertEqual(LINE, key_line("alice", b"\n " + KEY + b" \n"))

    def test_bad_line(self) -> None:
        """A user or a key with forbidden characters is an error."""
        for user, key in (("a:b", KEY), ("a b", KEY), ("", KEY), ("alice", KEY + b"\nroot:" + KEY)):
            self.assertRaises(CloudError, key_line, user, key)

    def test_has_line(self) -> None:
        """A line counts as a whole, with any end."""
        self.assertTrue(has_line(f"x\r\n{LINE}\r\ny", LINE))
        self.assertFalse(has_line(f"x{LINE}", LINE))
        self.assertFalse(has_line(f"{LINE}x", LINE))

    def test_which_items(self) -> None:
        """New keys go to the new item, and to the older one where it exists."""
        both = ("ssh-keys", "sshKeys")
        old = {"items": [{"key": "sshKeys", "value": "x"}]}
        self.assertEqual(["ssh-keys"], items_to_change({}, LINE, both, own=False))
        self.assertEqual(["ssh-keys", "sshKeys"], items_to_change(old, LINE, both, own=False))
        self.assertEqual(["sshKeys"], items_to_change({}, LINE, ("sshKeys",), own=False))
        self.assertEqual(["ssh-keys"], items_to_change(old, LINE, ("ssh-keys",), own=False))
        self.assertEqual(["ssh-keys"], items_to_change({}, LINE, ("sshKeys",), own=True))
        self.assertEqual(["sshKeys"], items_to_change(old, LINE, ("sshKeys",), own=True))
        there = {"items": [{"key": "ssh-keys", "value": LINE}]}
        self.assertEqual([], items_to_change(there, LINE, both, own=False))

    def test_full(self) -> None:
        """A full item is an error with the cure."""
        metadata = {"items": [{"key": "ssh-keys", "value": "x" * (VALUE_LIMIT - 10)}]}
        with self.assertRaisesRegex(CloudError, "ssh-keys is full: remove"):
            with_line(metadata, LINE, ["ssh-keys"])

    def test_the_given_stays(self) -> None:
        """The metadata that are given are not changed."""
        metadata = {"fingerprint": "f", "items": [{"key": "ssh-keys", "value": "x"}]}
        changed = with_line(metadata, LINE, ["ssh-keys", "sshKeys"])
        self.assertEqual({"fingerprint": "f", "items": [{"key": "ssh-keys", "value": "x"}]}, metadata)
        self.assertEqual([f"x\n{LINE}", LINE], [each["value"] for each in changed["items"]])

    def test_ignores_project_keys(self) -> None:
        """An instance may be set up not to take its project's keys."""

        def metadata(key: str, value: str) -> dict[str, object]:
            return {"items": [{"key": key, "value": value}]}

        self.assertEqual(
            "block-project-ssh-keys", ignores_project_keys(metadata("block-project-ssh-keys", "TRUE"), {})
        )
        self.assertEqual("its own sshKeys", ignores_project_keys(metadata("sshKeys", "x"), {}))
        self.assertEqual("enable-oslogin", ignores_project_keys({}, metadata("enable-oslogin", "TRUE")))
        self.assertEqual(
            "", ignores_project_keys(metadata("enable-oslogin", "FALSE"), metadata("enable-oslogin", "TRUE"))
        )
        self.assertEqual(
            "", ignores_project_keys(metadata("block-project-ssh-keys", "FALSE"), metadata("sshKeys", "x"))
        )


class InstallTestCase(GCETestCase):
    """Installs keys over the API."""

    scope = "project"

    def install(self, text: str = "", user: str = "alice") -> float:
        """Install `KEY` with *text* in the configuration; return how long it took, s."""
        cloud = self.provider(f"key-scope = {self.scope}\n{text}")
        before = self.clock.seconds()
        finish(self.clock, cloud.instances().add_ssh_key_to_all_instances(user, KEY))
        return self.clock.seconds() - before

    def writes(self) -> int:
        """Return how often metadata was written."""
        return self.gce.resource.count("POST", "etadata")


class ProjectTests(InstallTestCase):
    """By the project's metadata."""

    def test_7_3_12_line_present(self) -> None:
        """An existing line is not written again, after the first two seconds."""
        self.gce.project.replace({"sshKeys": f"{OTHERS}\n{LINE}"})
        with logged() as lines:
            self.assertEqual(2.0, self.install("metadata-key = sshKeys\n"))
        self.assertEqual(0, self.writes())
        self.assertIn("SSHKey already in project metadata", lines)

    def test_7_3_12_other_items(self) -> None:
        """Other items are preserved."""
        others = {"startup-script": LINE, "ssh-keys": LINE, "sshkeys": LINE}
        self.gce.project.replace(dict(others))
        self.install("metadata-key = sshKeys\n")
        self.assertEqual(others | {"sshKeys": LINE}, self.gce.project.items)

    def test_7_3_12_missing_item(self) -> None:
        """A missing item is created with only the line, with upstream's log lines."""
        with logged() as lines:
            self.install("metadata-key = sshKeys\n")
        self.assertEqual({"sshKeys": LINE}, self.gce.project.items)
        self.assertIn("Failed to find sshKeys metadata, creating a new item", lines)
        self.assertIn("Successfully added sshKey to project metadata", lines)

    def test_7_3_12_three_failures(self) -> None:
        """After three GETs that fail it works at 8 s, and the operation is waited for."""
        self.gce.resource.faults.append(Fault(BUSY, 3, PROJECT))
        with logged() as lines:
            self.assertEqual(8.0 + self.gce.operation_time, self.install())
        self.assertEqual(3, sum(each.startswith("Could not get project: ") for each in lines))
        self.assertEqual({"ssh-keys": LINE}, self.gce.project.items)

    def test_7_3_12_permanent_failure(self) -> None:
        """A failure that stays ends within 30 s, with the text that is known and the reason."""
        self.gce.resource.faults.append(Fault(BUSY, 99, "setCommonInstanceMetadata"))
        before = self.clock.seconds()
        with (
            logged() as lines,
            self.assertRaisesRegex(
                CloudError, r"^timed out waiting for the condition: POST .* answered 503: Backend Error$"
            ),
        ):
            self.install()
        self.assertTrue(26.0 <= self.clock.seconds() - before <= 30.0)
        self.assertEqual(14, sum(each.startswith("Could not Set Metadata: ") for each in lines))

    def test_appended(self) -> None:
        """Lines of others, temporary keys that have expired, and older keys of ours stay untouched."""
        old = "alice:ssh-ed25519 AAAAold alice@alice"
        self.gce.project.replace({"ssh-keys": f"{OTHERS}\n{old}", "other": "value"})
        self.install()
        wanted = {"ssh-keys": f"{OTHERS}\n{old}\n{LINE}", "other": "value"}
        self.assertEqual(wanted, self.gce.project.items)

    def test_old_item(self) -> None:
        """If the older item exists, the key is added there too."""
        self.gce.project.replace({"sshKeys": OTHERS})
        self.install()
        self.assertEqual({"sshKeys": f"{OTHERS}\n{LINE}", "ssh-keys": LINE}, self.gce.project.items)
        self.assertEqual(1, self.writes())
        self.install()
        self.assertEqual(1, self.writes())

    def test_conflict(self) -> None:
        """A concurrent change by another client is preserved: the write is repeated."""
        render = self.gce.project.render

        def changed_behind_us() -> dict[str, object]:
            shown = render()
            if "theirs" not in self.gce.project.items:
                self.gce.project.replace({"ssh-keys": OTHERS, "theirs": "kept"})
            return shown

        self.patch(type(self.gce.project), "render", lambda metadata: changed_behind_us())
        with logged() as lines:
            self.install()
        self.assertEqual({"ssh-keys": f"{OTHERS}\n{LINE}", "theirs": "kept"}, self.gce.project.items)
        self.assertEqual([412], [reply.code for ask, reply in self.gce.resource.refused])
        self.assertEqual(1, sum(each.startswith("Could not Set Metadata: ") for each in lines))

    def test_conflict_in_operation(self) -> None:
        """A write whose operation fails because of a concurrent change is repeated."""
        self.gce.operation_time = 1.5
        self.clock.callLater(3.0, lambda: self.gce.project.replace({"theirs": "kept"}))
        self.install()
        self.assertEqual({"ssh-keys": LINE, "theirs": "kept"}, self.gce.project.items)
        self.assertEqual(2, self.writes())
        self.assertEqual([], self.gce.resource.refused)

    def test_two_at_once(self) -> None:
        """Two concurrent installations of keys both succeed."""
        second = self.cloud.instances().add_ssh_key_to_all_instances("bob", KEY)
        done: list[object] = []
        Deferred.fromCoroutine(second).addBoth(done.append)
        self.install()
        while not done:
            self.clock.advance(0.25)
        self.assertEqual([None], done)
        users = {each.partition(":")[0] for each in self.gce.project.items["ssh-keys"].split("\n")}
        self.assertEqual({"alice", "bob"}, users)

    def test_rate_limit(self) -> None:
        """After a rate limit, it waits for the requested time."""
        self.gce.resource.faults.append(Fault(RATE_LIMIT, 2, PROJECT))
        self.assertEqual(2.0 + 3.0 + 3.0 + self.gce.operation_time, self.install())

    def test_long_rate_limit(self) -> None:
        """A rate limit that is longer than we have ends it at once."""
        limit = error(429, "rateLimitExceeded", "Too Many Requests", Retry_After="3600")
        self.gce.resource.faults.append(Fault(limit, 1, PROJECT))
        with self.assertRaisesRegex(CloudError, "timed out waiting for the condition"):
            self.install()

    def test_silence(self) -> None:
        """A service that does not answer costs 30 s."""
        self.gce.resource.faults.append(Fault(None, 99, PROJECT))
        before = self.clock.seconds()
        with self.assertRaisesRegex(CloudError, "timed out waiting for the condition"):
            self.install()
        self.assertEqual(30.0, self.clock.seconds() - before)

    def test_endless_operation(self) -> None:
        """An operation that does not end costs 30 s."""
        self.gce.operation_time = 1e6
        before = self.clock.seconds()
        with self.assertRaisesRegex(CloudError, "timed out waiting for the condition"):
            self.install()
        self.assertEqual(30.0, self.clock.seconds() - before)

    def test_ignoring_instances(self) -> None:
        """Instances that do not take the project's keys are named in the log, once."""
        self.gce.machines[0].metadata.replace({"block-project-ssh-keys": "TRUE"})
        self.gce.machines[1].metadata.replace({"sshKeys": OTHERS})
        adding = self.cloud.instances().add_ssh_key_to_all_instances
        with logged() as lines:
            finish(self.clock, adding("alice", KEY))
            finish(self.clock, adding("alice", KEY))
        told = [each for each in lines if "ignore the key" in each]
        self.assertEqual(1, len(told))
        self.assertIn("node-a (block-project-ssh-keys), node-b (its own sshKeys);", told[0])
        self.assertIn("key-scope = instance", told[0])

    def test_ignoring_takes_long(self) -> None:
        """A look that takes too long is given up, does no harm, and is not made again soon."""
        cloud = self.provider("key-scope = project\n")
        self.gce.resource.faults.append(Fault(None, 99, "aggregated/instances"))

        def install() -> None:
            finish(self.clock, cloud.instances().add_ssh_key_to_all_instances("alice", KEY))

        with logged() as lines:
            install()
        self.assertIn(f"instances that ignore the key: unknown after {SEARCH_LIMIT:g} s", lines)
        self.assertIn("ssh-keys", self.gce.project.items)
        self.gce.resource.faults.clear()
        asked = self.gce.resource.count("GET", "aggregated/instances")
        self.clock.advance(300)
        install()
        self.assertEqual(asked, self.gce.resource.count("GET", "aggregated/instances"))
        self.clock.advance(SEARCH_LIMIT * SEARCH_PAUSE)
        install()
        self.assertEqual(asked + 1, self.gce.resource.count("GET", "aggregated/instances"))

    def test_ignoring_unknown(self) -> None:
        """A list of instances that fails does not make the key's installation fail."""
        self.gce.resource.faults.append(Fault(BUSY, 99, "aggregated"))
        with logged() as lines:
            self.install()
        self.assertTrue(any("instances that ignore the key: unknown" in each for each in lines))


class PerInstanceTests(InstallTestCase):
    """By each instance's metadata; the project's are left alone."""

    scope = "instance"

    def setUp(self) -> None:
        """Look at the project's metadata in the end."""
        super().setUp()
        self.all = self.gce.machines
        self.addCleanup(lambda: self.assertEqual({}, self.gce.project.items))

    def test_appended(self) -> None:
        """Other lines are preserved, and an existing line is not written again."""
        self.gce.machines = self.all[:1]
        self.all[0].metadata.replace({"ssh-keys": OTHERS, "startup-script": "true"})
        self.install()
        self.install()
        wanted = {"ssh-keys": f"{OTHERS}\n{LINE}", "startup-script": "true"}
        self.assertEqual(wanted, self.all[0].metadata.items)
        self.assertEqual(1, self.writes())

    def test_conflict(self) -> None:
        """A concurrent change by another client is preserved: the write is repeated."""
        self.gce.machines = self.all[:1]
        self.gce.operation_time = 1.5
        self.clock.callLater(3.0, lambda: self.all[0].metadata.replace({"theirs": "kept"}))
        self.install()
        self.assertEqual({"ssh-keys": LINE, "theirs": "kept"}, self.all[0].metadata.items)

    def test_blocked(self) -> None:
        """Instances that block the project's keys get it as all others do, in the items that they read."""
        self.all[0].metadata.replace({"block-project-ssh-keys": "TRUE"})
        self.all[1].metadata.replace({"sshKeys": OTHERS})
        told: list[tuple[str, str]] = []
        self.gce._on_key = lambda user, key: told.append((user, key))
        self.install()
        self.assertEqual(LINE, self.all[0].metadata.items["ssh-keys"])
        self.assertEqual(f"{OTHERS}\n{LINE}", self.all[1].metadata.items["sshKeys"])
        self.assertEqual({"ssh-keys": LINE}, self.all[2].metadata.items)
        for machine in self.all[:2]:
            self.assertIn(("alice", LINE.partition(":")[2]), list(self.gce.keys(machine)))
        self.assertIn(("alice", LINE.partition(":")[2]), told)

    def test_some_fail(self) -> None:
        """One that fails does not keep the others from it, and is named."""
        self.gce.resource.faults.append(Fault(BUSY, 999, "instances/node-b"))
        with self.assertRaisesRegex(CloudError, r"^1 of 3 instances did not get the key: node-b \(timed out"):
            self.install()
        self.assertEqual(LINE, self.all[0].metadata.items["ssh-keys"])
        self.assertEqual(LINE, self.all[2].metadata.items["ssh-keys"])

    def test_os_login(self) -> None:
        """Instances with OS Login read no metadata: they are left alone and named."""
        self.all[0].metadata.replace({"enable-oslogin": "TRUE"})
        with logged() as lines:
            self.install()
        self.assertTrue(any("node-a (enable-oslogin)" in each for each in lines))
        self.assertEqual({"enable-oslogin": "TRUE"}, self.all[0].metadata.items)

    def test_many(self) -> None:
        """Hundreds of instances get it, some at a time."""
        self.gce.machines = [Machine(f"node-{number}") for number in range(100)]
        self.install()
        self.assertTrue(all(each.metadata.items == {"ssh-keys": LINE} for each in self.gce.machines))
