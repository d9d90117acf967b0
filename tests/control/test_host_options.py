"""Tests of `tower.control.host_options`."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tower.control.host_options import HostOptions
from tower.options.errors import one_line_errors


class HostOptionsTests(SynchronousTestCase):
    """Options of the host cluster."""

    def setUp(self) -> None:
        """Write a kubeconfig."""
        self.kubeconfig = Path(self.mktemp())
        self.kubeconfig.write_text("{}")

    def parse(self, *words: str, **variables: str) -> HostOptions:
        """Return the parsed options."""
        options = HostOptions(variables)
        with one_line_errors("tower-proxy"):
            options.parse(words)
        return options

    def refusal(self, *words: str) -> str:
        """Return the error about them."""
        with self.assertRaises(SystemExit) as caught:
            self.parse(*words)
        return str(caught.exception)

    def test_default(self) -> None:
        """Without options the records are in the state directory."""
        options = self.parse()
        self.assertFalse(options.is_hosted)
        self.assertTrue(options["leader-elect"])

    def test_store(self) -> None:
        """A kubeconfig or the store chooses the host cluster."""
        self.assertTrue(self.parse("--store=kubernetes").is_hosted)
        self.assertTrue(self.parse(f"--kubeconfig={self.kubeconfig}").is_hosted)
        self.assertTrue(self.parse(TOWER_STORE="kubernetes").is_hosted)
        self.assertFalse(self.parse("--store=sqlite").is_hosted)

    def test_contradictions(self) -> None:
        """Options that do not go together are refused, with the cure."""
        for words, part in (
            (("--store=sqlite", f"--kubeconfig={self.kubeconfig}"), "requires --store kubernetes"),
            (("--store=etcd",), "'etcd' is not a store"),
            (("--namespace=tower",), "--namespace requires --store kubernetes: give both"),
            (("--leader-elect",), "--leader-elect requires --store kubernetes"),
            (("--kubesphere-compat",), "--kubesphere-compat requires --store kubernetes"),
            (("--health-port=8081",), "--health-port requires --store kubernetes"),
            (("--install-crds", "--store=sqlite"), "--install-crds is for a host cluster"),
            (("--store=kubernetes", "--namespace=A_b"), "is not a namespace"),
            (("--store=kubernetes", "--leader-elect=maybe"), "is not a boolean"),
        ):
            self.assertIn(part, self.refusal(*words), words)

    def test_install_crds(self) -> None:
        """The installation of CRDs needs no other option."""
        self.assertTrue(self.parse("--install-crds")["install-crds"])
        self.assertTrue(self.parse("--install-crds", "--namespace=tower")["install-crds"])

    def test_leader_elect(self) -> None:
        """The election is on, with and without a value, unless it is false."""
        for words, expected in (
            ((), True),
            (("--leader-elect",), True),
            (("--leader_elect", "--namespace", "tower"), True),
            (("--leader-elect=true",), True),
            (("--leader-elect=false",), False),
            (("--leader-elect=0",), False),
        ):
            self.assertIs(self.parse("--store=kubernetes", *words)["leader-elect"], expected, words)
        self.assertFalse(self.parse("--store=kubernetes", TOWER_LEADER_ELECT="false")["leader-elect"])

    def test_times(self) -> None:
        """The times must be in an order that allows one leader only."""
        for times, part in (
            (("0.5s", "5s", "9s"), "--leader-elect-retry-period '0.5s' is too short: give 1s or more"),
            (("5s", "6s", "30s"), "--leader-elect-renew-deadline '6s' must be more than 1.2 times"),
            (("5s", "15s", "15s"), "--leader-elect-lease-duration '15s' must be longer than"),
        ):
            names = ("retry-period", "renew-deadline", "lease-duration")
            words = [f"--leader-elect-{name}={time}" for name, time in zip(names, times, strict=True)]
            self.assertIn(part, self.refusal("--store=kubernetes", *words), words)
        self.parse("--store=kubernetes", "--leader-elect-lease-duration=20s")
