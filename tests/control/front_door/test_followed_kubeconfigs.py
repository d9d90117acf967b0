"""Tests of `tower.control.front_door.followed_kubeconfigs`."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.audits import Lines, audit_to
from tests.fakes.log_lines import logged_lines
from tower.control.front_door.followed_kubeconfigs import KUBECONFIGS, followed_kubeconfigs
from tower.web.access.audit.file_changes import FileRecorder

KUBECONFIG = """apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: 'https://{host}'}}}}]
users: [{{name: u, user: {{token: secret}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
current-context: x
"""


class FollowedKubeconfigsTests(SynchronousTestCase):
    """Tests of `followed_kubeconfigs`."""

    def test_change(self) -> None:
        """Another webhook is an event, with salted digests as it may have a token; a broken file has none."""
        option = "authorization-webhook-config-file"
        path = Path(self.mktemp())
        path.write_text(KUBECONFIG.format(host="one"))
        (file,) = followed_kubeconfigs({**dict.fromkeys(KUBECONFIGS), option: path})
        lines, logged = Lines(), logged_lines(self)
        FileRecorder(audit_to(lines, lambda: 0.0)).observe(file)
        path.write_text("clusters: [")
        file.check()
        self.assertEqual((lines, len(logged)), ([], 1))
        path.write_text(KUBECONFIG.format(host="two"))
        file.check()
        (event,) = lines.events()
        self.assertEqual((event["objectRef"]["name"], file.value.server), (option, "https://two"))
        for key in ("old-digest", "new-digest"):
            self.assertTrue(event["annotations"][f"cluster.kubesphere.io/{key}"].startswith("salted:"))
