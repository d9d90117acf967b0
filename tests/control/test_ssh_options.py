"""Tests of `tower.control.ssh_options`."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tower.control.proxy_options import Options
from tower.options.errors import one_line_errors

BASE = ("--ssh-user=core", "--ssh-keyfile=/keys/id")


class NodeOptionsTests(SynchronousTestCase):
    """Options of the --ssh-user cluster."""

    def parse(self, *words: str) -> Options:
        """Return the parsed options."""
        options = Options({})
        with one_line_errors("tower-proxy"):
            options.parse(words)
        return options

    def refusal(self, *words: str) -> str:
        """Return the error about them."""
        with self.assertRaises(SystemExit) as caught:
            self.parse(*words)
        return str(caught.exception)

    def test_none(self) -> None:
        """Without --ssh-user there is no such cluster."""
        self.assertIsNone(self.parse().given_cluster)

    def test_all(self) -> None:
        """Every option sets its field; files get absolute paths."""
        kubeconfig = Path(self.mktemp())
        kubeconfig.write_text("{}")
        given = self.parse(
            *BASE,
            *(
                "--nodes=h1,h2:2222,[fd00::1]:22",
                "--ssh-host-keys=accept-new",
                "--ssh-port=2200",
                "--ssh-key-type=rsa",
            ),
            *("--ssh-cluster=beta", f"--member-kubeconfig={kubeconfig}", "--kubelet-port=10260"),
            *(f"--ssh-known-hosts={kubeconfig}", f"--kubelet-certificate-authority={kubeconfig}"),
            "--insecure-skip-kubelet-tls-verify",
        ).given_cluster
        assert given is not None
        spec = given.spec
        self.assertEqual((given.name, given.kubeconfig), ("beta", kubeconfig))
        self.assertEqual((spec.user, spec.key_file, spec.key_type), ("core", "/keys/id", "rsa"))
        self.assertEqual(spec.nodes, ("h1", "h2:2222", "[fd00::1]:22"))
        self.assertEqual((spec.host_keys, spec.ssh_port, spec.kubelet_port), ("accept-new", 2200, 10260))
        self.assertEqual(spec.known_hosts, str(kubeconfig.absolute()))
        self.assertEqual(spec.kubelet_authority, spec.known_hosts)
        self.assertTrue(spec.kubelet_insecure)

    def test_defaults(self) -> None:
        """The cluster is named default, and host keys are verified."""
        given = self.parse(*BASE, "--nodes=h1").given_cluster
        assert given is not None
        self.assertEqual((given.name, given.spec.host_keys), ("default", "known-hosts"))

    def test_list_of_the_api(self) -> None:
        """The API lists the nodes and a cloud installs the key."""
        given = self.parse(*BASE, "--nodes-from-api", "--cloud-provider=gce").given_cluster
        assert given is not None
        self.assertEqual((given.spec.nodes_from_api, given.spec.cloud_provider), (True, "gce"))

    def test_external(self) -> None:
        """With ``external``, as in kube-apiserver, the API server lists the nodes."""
        given = self.parse(*BASE, "--cloud-provider=external", "--cloud-config=/dev/null").given_cluster
        assert given is not None
        self.assertEqual((given.spec.cloud_provider, given.spec.cloud_config), ("", ""))
        given = self.parse(*BASE, "--cloud-provider=external", "--nodes=h1").given_cluster
        assert given is not None
        self.assertEqual((given.spec.cloud_provider, given.spec.nodes), ("", ("h1",)))
        self.assertIn(
            "--nodes and --cloud-provider", self.refusal(*BASE, "--nodes=h1", "--cloud-provider=External")
        )

    def test_refused(self) -> None:
        """Missing and conflicting options are named with the cure."""
        for words, wanted in (
            (("--ssh-keyfile=/k",), ("--ssh-keyfile", "--ssh-user")),
            (("--nodes=h1,h2",), ("--nodes 'h1,h2'", "--ssh-user")),
            (("--ssh-user=core", "--nodes=h1"), ("--ssh-keyfile is missing",)),
            (BASE, ("no option lists the nodes", "--nodes-file")),
            (("--nodes-from-api",), ("--nodes-from-api", "--ssh-user")),
            ((*BASE, "--nodes=h1", "--nodes-from-api"), ("--nodes and --nodes-from-api",)),
            ((*BASE, "--nodes=h1", "--cloud-provider=gce"), ("--nodes and --cloud-provider",)),
            ((*BASE, "--nodes=h1", "--cloud-config=/dev/null"), ("--cloud-config", "--cloud-provider")),
            ((*BASE, "--nodes=h1:x"), ("h1:x", "host:port")),
            ((*BASE, "--nodes=h1", "--ssh-host-keys=no"), ("'no'", "accept-new")),
            ((*BASE, "--nodes=h1", "--ssh-key-type=dsa"), ("'dsa'", "rsa")),
            ((*BASE, "--nodes=h1", "--ssh-cluster=A_b"), ("A_b", "lower case")),
        ):
            text = self.refusal(*words)
            for part in wanted:
                self.assertIn(part, text)

    def test_kubelet_port(self) -> None:
        """The error is kube-apiserver's."""
        self.assertIn(
            "must enable kubelet port if proxy ssh-tunneling is specified",
            self.refusal(*BASE, "--nodes=h1", "--kubelet-port=0"),
        )

    def test_metrics_port(self) -> None:
        """It differs from the other ports."""
        self.assertEqual(self.parse("--metrics-port=9100")["metrics-port"], 9100)
        for number, name in ((8080, "8080"), (8443, "8443"), (6001, "--cluster-ports")):
            self.assertIn(name, self.refusal(f"--metrics-port={number}"))
