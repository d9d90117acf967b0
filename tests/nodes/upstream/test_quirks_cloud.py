"""Upstream's bugs in its cloud providers, by their numbers: they are not here."""

from __future__ import annotations

from tests.cloud.asking import finish
from tests.cloud.gce.kit import KEY, GCETestCase


class CloudQuirkTests(GCETestCase):
    """Each test names its bug's number."""

    def test_quirk_12_a_user_whose_name_ends_another_line(self) -> None:
        """The key of bob is installed though xbob's line has bob's line within it."""
        text = KEY.decode()
        lines = f"xbob:{text} bob@bob\nbob:{text} bob@bobby\nbob:ssh-rsa AAAA google-ssh {{}}"
        for item in ("sshKeys", "ssh-keys"):
            self.gce.project.replace({item: lines})
            instances = self.provider(f"metadata-key = {item}\n").instances()
            finish(self.clock, instances.add_ssh_key_to_all_instances("bob", KEY))
            self.assertEqual({item: f"{lines}\nbob:{text} bob@bob"}, self.gce.project.items)
