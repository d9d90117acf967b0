"""A whole Tower with a cluster whose nodes a cloud lists, and whose key a cloud brings to them."""

from __future__ import annotations

import shutil
import socket
import sys
import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.cloud.aws.kit import config as aws_config
from tests.cloud.standins.aws import KEY as ACCESS_KEY
from tests.cloud.standins.aws import SECRET as AWS_SECRET
from tests.cloud.standins.azure import SECRET as AZURE_SECRET
from tests.cloud.standins.azure import configuration as azure_config
from tests.cloud.standins.gce import PROJECT
from tests.cloud.standins.openstack import PASSWORD
from tests.integration.backends import Backend
from tests.integration.harness import Tower
from tests.integration.node_fleet_kit import CLUSTER, NodeFleet, look_now, ssh_status, wait_until_open, works
from tests.integration.ports import free_port
from tests.integration.programs import LOOPBACK, Program, wait_for
from tests.integration.sshd import Sshd, write_key

NOTICED = 120.0  # s for a key to be noticed, and to be installed, for which Compute Engine may take 30 s


class CloudClusterTests(SynchronousTestCase):
    """Two nodes that reject logins until the cloud installs a key."""

    def setUp(self) -> None:
        """Start nodes, a cluster behind them, and Tower."""
        self.names = {"node-1", "node-2"}
        self.folder = Path(tempfile.mkdtemp(prefix="tower-clouds-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.fleet = NodeFleet(self.folder / "fleet", 0)
        port = free_port()
        self.fleet.nodes = [
            Sshd(self.fleet.folder / f"node-{number}", host=f"127.0.1.{number}", port=port)
            for number in (1, 2)
        ]
        self.fleet.write_known_hosts()
        self.addCleanup(self.fleet.stop)
        self.fleet.start()
        self.backend = Backend(self.folder, CLUSTER)
        self.addCleanup(self.backend.program.stop)
        self.backend.start()
        self.tower = Tower(self.folder)
        self.addCleanup(self.tower.stop)
        self.tower.start()
        self.key = self.fleet.folder / "made" / "id"
        self.key.parent.mkdir(mode=0o700)

    def start_cloud(self, kind: str) -> int:
        """Start a cloud's stand-in that has the nodes; return its port."""
        port = free_port()
        nodes = [f"{node.directory.name}={node.host}" for node in self.fleet.nodes]
        argv = [sys.executable, "-m", "tests.cloud.standins.program", kind, str(port)]
        cloud = Program(kind, [*argv, str(self.fleet.folder), self.fleet.user, *nodes], self.folder)
        self.addCleanup(cloud.stop)
        cloud.start()

        def listens() -> bool:
            try:
                socket.create_connection((LOOPBACK, port), timeout=2).close()
            except OSError:
                return False
            return True

        wait_for(f"the stand-in of {kind}", listens)
        return port

    def check(self, kind: str, config: str, *secrets: str) -> None:
        """Reach a cluster by the cloud's list and a key that the cloud brought; then by another key."""
        file = self.fleet.folder / "cloud.conf"
        file.write_text(config)
        self.tower.tower(
            *("cluster", "add", CLUSTER, "--type", "ssh", "--ssh-user", self.fleet.user),
            *("--ssh-keyfile", str(self.key), "--ssh-known-hosts", str(self.fleet.known_hosts)),
            *(
                "--ssh-port",
                str(self.fleet.nodes[0].port),
                "--cloud-provider",
                kind,
                "--cloud-config",
                str(file),
            ),
            *("--member-kubeconfig", str(self.backend.kubeconfig(CLUSTER))),
        )
        jane = self.tower.person(CLUSTER, "jane")
        wait_until_open(self.tower, self.fleet.nodes, 2 * NOTICED)
        self.assertTrue(works(jane))
        self.assertEqual(self.names, {each["name"] for each in ssh_status(self.tower)["nodes"]})
        old = [node.authorized_keys.read_text() for node in self.fleet.nodes]

        fresh = self.key.with_suffix(".fresh")
        line = write_key(fresh)
        self.key.with_suffix(".fresh.pub").write_text(f"{line}\n")
        fresh.rename(self.key)
        self.key.with_suffix(".fresh.pub").rename(self.key.with_suffix(".pub"))
        look_now(self.tower)
        wait_for(
            "the new key and the old one on the nodes",
            lambda: all(
                line in (now := node.authorized_keys.read_text()) and before.split()[1] in now
                for node, before in zip(self.fleet.nodes, old, strict=True)
            ),
            NOTICED,
        )
        for node in self.fleet.nodes:
            node.authorize(line)
            node.cut()
        wait_until_open(self.tower, self.fleet.nodes, NOTICED)
        self.assertTrue(works(jane))
        said = self.tower.proxy.output() + str(self.tower.status(CLUSTER))
        self.assertNotIn("Traceback", said)
        for secret in secrets:
            self.assertNotIn(secret, said)

    def test_gce(self) -> None:
        """Compute Engine: by the project's metadata."""
        place = f"{LOOPBACK}:{self.start_cloud('gce')}"
        config = f"[global]\nproject-id = {PROJECT}\napi-endpoint = http://{place}/compute/v1\n"
        self.check("gce", f"{config}metadata-host = {place}\n", "ya29")

    def test_openstack(self) -> None:
        """OpenStack: by the servers' metadata."""
        place = f"http://{LOOPBACK}:{self.start_cloud('openstack')}"
        login = f"username = tower\npassword = {PASSWORD}\ndomain-name = Default\ntenant-name = demo\n"
        config = f"[Global]\nauth-url = {place}/identity\nregion = RegionOne\n{login}"
        self.check("openstack", config, "gAAAA", PASSWORD)

    def test_aws(self) -> None:
        """EC2: by Instance Connect, for each dial."""
        place = f"http://{LOOPBACK}:{self.start_cloud('aws')}"
        file = self.folder / "credentials"
        file.write_text(
            f"[default]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {AWS_SECRET}\n"
        )
        self.names = {"ip-127-0-1-1.ec2.internal", "ip-127-0-1-2.ec2.internal"}
        text = f"KubernetesClusterID = beta\nSharedCredentialsFile = {file}"
        self.check("aws", aws_config(text, host=place), AWS_SECRET, "Signature=")

    def test_azure(self) -> None:
        """Azure: by the extension VMAccess."""
        place = f"http://{LOOPBACK}:{self.start_cloud('azure')}"
        self.check("azure", azure_config(place), AZURE_SECRET, "token.of-azure")
