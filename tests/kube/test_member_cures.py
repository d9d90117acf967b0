"""Tests of `tower.kube.member_cures`: the commands of cures."""

from __future__ import annotations

import shlex
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tower.cli.arguments import parser
from tower.kube.kubeconfig import KubeAccess
from tower.kube.member_cures import REPORTED_TEXTS, agent_texts, proxy_texts

SERVER = "https://api:6443"
CREATE = "kubectl -n tower-system create token tower-agent --duration 8760h"


class CommandTests(SynchronousTestCase):
    """Cures that are commands work as typed."""

    def test_rights(self) -> None:
        """The command for missing rights prints a manifest of this installation."""
        for texts, account in (
            (agent_texts("/etc/k", KubeAccess(SERVER)), "tower-agent"),
            (proxy_texts("alpha"), "tower-proxy"),
        ):
            cure = texts.rights("")
            self.assertTrue(cure.endswith(" | kubectl apply -f -' in the member cluster"), cure)
            words = cure.removeprefix("run 'tower ").partition(" | ")[0].split()
            options = parser({}).parse_args(words)
            self.assertIn(f"kind: ServiceAccount\nmetadata:\n  name: {account}\n", options.text(options))

    def test_new_token(self) -> None:
        """A new token has an account first, and replaces only the token of the kubeconfig's user."""
        for access, command in (
            (
                KubeAccess(SERVER, user="me"),
                f"kubectl --kubeconfig '/my files/k' config set-credentials me --token=$({CREATE})",
            ),
            (
                KubeAccess(SERVER, user="a b"),
                f"kubectl --kubeconfig '/my files/k' config set-credentials 'a b' --token=$({CREATE})",
            ),
            (KubeAccess(SERVER, user="me", token_file=Path("/etc/t")), f"{CREATE} > /etc/t"),
        ):
            cure = agent_texts("/my files/k", access).credential
            self.assertTrue(cure.startswith("run 'tower rbac agent | kubectl apply -f -' in"), cure)
            self.assertTrue(cure.endswith(f", and then '{command}'"), cure)
            self.assertTrue(shlex.split(command))

    def test_pod(self) -> None:
        """The account of a pod may have been deleted."""
        cure = agent_texts("", KubeAccess(SERVER)).credential
        self.assertTrue(cure.startswith("run 'tower rbac agent | kubectl apply -f -'"))
        self.assertTrue(cure.endswith("restart the pod"))

    def test_rights_with_limits(self) -> None:
        """A manifest may limit the rights of an agent, which `tower rbac agent` does not."""
        for texts in (agent_texts("", KubeAccess(SERVER)), REPORTED_TEXTS):
            cure = texts.rights("system:serviceaccount:edge:tower-agent")
            self.assertTrue(
                cure.startswith("if a manifest or chart installed the agent, apply it again; ")
            )
        self.assertTrue(agent_texts("/k", KubeAccess(SERVER)).rights("").startswith("run "))
