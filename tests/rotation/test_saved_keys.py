"""Rotations with a state directory that is not durable: keys are saved elsewhere before they count."""

from __future__ import annotations

from collections.abc import Mapping

from tests.fakes.members import SPEC, by_token
from tests.fakes.rotations import RotationTestCase
from tower.errors import TowerError
from tower.rotation.rotation import TARGETS
from tower.store.records import StoreFailed

#: Files that a successor needs to continue.
KEYS = ("ssh_host_ed25519_key", "serving-ca", "users-ca", "secrets.key")


class SavedKeysTests(RotationTestCase):
    """Each target has something that depends on its old key."""

    def setUp(self) -> None:
        """Save the first keys."""
        super().setUp()
        self.enrol("alpha", "SHA256:a")
        self.successResultOf(self.clusters.add("gamma", ssh=SPEC, access=by_token()))
        jane = self.keys.users.client_certificate("jane", (), "alpha", "uid", 600.0, self.clock.seconds())
        registering = self.credentials.register_certificate("alpha", "jane", (), 600.0, jane.digest)
        self.successResultOf(registering)
        self.clock.advance(1.0)
        self.saved: dict[str, bytes] = self.local()
        self.problem = ""
        self.saves = 0
        self.state.save = self.save

    def local(self) -> dict[str, bytes]:
        """Return the keys in the directory."""
        files = [path for path in self.state.path.iterdir() if path.name.startswith(KEYS)]
        return {path.name: path.read_bytes() for path in files}

    async def save(self, changes: Mapping[str, bytes | None]) -> None:
        """Save files, which must not have changed in the directory yet."""
        if self.problem:
            raise StoreFailed(self.problem)
        self.saves += 1
        for name, data in changes.items():
            self.assertNotEqual(self.local().get(name), data, name)
            if data is None:
                del self.saved[name]
            else:
                self.saved[name] = data

    def check_saved(self, target: str) -> None:
        """Check that the saved files are those of the directory."""
        saved, local = ({**files} for files in (self.saved, self.local()))
        if target == "secrets-key":  # an old key may stay saved a little longer
            self.assertTrue(saved.pop("secrets.key").startswith(local.pop("secrets.key")))
        self.assertEqual(saved, local)

    def test_whole_rotations(self) -> None:
        """After each step of each rotation, all keys are saved."""
        for target in TARGETS:
            if target == "tls-cert-file":  # it has no key in the state directory
                continue
            self.clock.advance(1.0)
            self.begin(target)
            self.check_saved(target)
            self.assertGreater(self.saves, 0)
            self.saves = 0
            if self.rotation(target).finished is None:
                self.clock.advance(1.0)
                self.begin(target, 0.0)
                self.assertGreater(self.saves, 0, target)
            self.assertIsNotNone(self.rotation(target).finished, target)
            self.check_saved(target)

    def test_cancel(self) -> None:
        """A key that is no longer wanted is removed from the saved files first."""
        for target in ("host-key", "serving-ca"):
            before = self.local()
            self.begin(target)
            self.assertNotEqual(self.local(), before)
            self.successResultOf(self.rotations.cancel(target))
            self.assertEqual((self.local(), self.saved), (before, before))

    def test_not_saved_begin(self) -> None:
        """A key that cannot be saved does not come into use."""
        self.problem = "the API server does not answer"
        for target in TARGETS:
            before = self.keys.fingerprints(), self.keys.authority.hashes, self.keys.users.hashes
            content = {name: data for name, data in self.local().items() if ".next" not in name}
            self.failureResultOf(self.rotations.begin(target), TowerError)
            after = self.keys.fingerprints(), self.keys.authority.hashes, self.keys.users.hashes
            self.assertEqual(before, after)
            self.assertEqual(
                content, {name: data for name, data in self.local().items() if ".next" not in name}
            )
            self.assertIsNone(self.rotations.get(target))

    def test_not_saved_end(self) -> None:
        """A rotation whose end cannot be saved goes on, and ends later."""
        for target in ("host-key", "serving-ca", "users-ca"):
            self.problem = ""
            self.begin(target)
            both = self.keys.fingerprints(), self.keys.authority.hashes, self.keys.users.hashes
            self.problem = "the API server does not answer"
            self.clock.advance(1.0)
            self.failureResultOf(self.rotations.begin(target, 0.0), TowerError)
            self.assertEqual(
                both, (self.keys.fingerprints(), self.keys.authority.hashes, self.keys.users.hashes)
            )
            self.problem = ""
            self.check()
            self.assertIsNotNone(self.rotation(target).finished)
            self.check_saved(target)

    def test_lost_end(self) -> None:
        """A successor with the saved files finishes a rotation whose end was saved, but not recorded."""
        rotation = self.begin("host-key")
        self.saved["ssh_host_ed25519_key"] = self.saved.pop("ssh_host_ed25519_key.next")
        for name in self.local():
            self.state.remove(name)
        for name, data in self.saved.items():
            self.state.write(name, data)
        self.restart()
        self.assertIsNotNone(self.rotation("host-key").finished)
        self.assertEqual(self.keys.fingerprints(), [rotation.new])
