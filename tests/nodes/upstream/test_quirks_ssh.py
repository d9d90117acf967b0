"""Bugs of kube-apiserver's SSH client that Tower does not have, by their numbers in the list of quirks."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.ssh_keys import KEYS
from tests.fakes.ssh_node import NODE, FarNode
from tower.conch.transport.keys import ED25519
from tower.conch.transport.signatures import RSA
from tower.net.connecting import ConnectFailed
from tower.nodes.ssh.command import run_ssh_command
from tower.nodes.ssh.failures import OpenFailed
from tower.nodes.ssh.host_keys import AnyHostKey, HostKeyRefused, HostKeyUnknown
from tower.nodes.ssh.known_hosts import KnownHosts
from tower.reactor.interfaces import ISocketReactor


class QuirkTests(SynchronousTestCase):
    """Each number stands for one bug."""

    def test_quirk_8_run_ssh_command_retries_for_its_whole_time(self) -> None:
        """A command's node is dialed each 5 s for 20 s, where upstream dialed once more and gave up."""
        clock, times = Clock(), []

        def dial(host: str, port: int) -> Deferred[Any]:
            times.append(clock.seconds())
            return fail(ConnectFailed("refused", "connection refused"))

        running = Deferred.fromCoroutine(
            run_ssh_command(
                cast(ISocketReactor, clock),
                "true",
                "u",
                "n",
                KEYS[ED25519],
                host_keys=AnyHostKey(),
                dial=dial,
            )
        )
        clock.pump([1.0] * 30)
        self.failureResultOf(running, OpenFailed)
        self.assertEqual(times, [0, 5, 10, 15, 20])

    def test_quirk_11_host_keys_are_verified(self) -> None:
        """Login at a node with an unknown or different host key is not tried; upstream verified none."""
        path = Path(self.mktemp())
        path.write_text("")
        for line, kind in (
            ("", HostKeyUnknown),
            (f"{NODE.host} {KEYS[ED25519].authorized_key.decode()}", HostKeyRefused),
            (f"{NODE.host} {KEYS[RSA].authorized_key.decode()}", None),
        ):
            path.write_text(line)
            far = FarNode()
            opening = far.tunnel(host_keys=KnownHosts(path)).open()
            far.pump()
            if kind is None:
                self.successResultOf(opening)
                self.assertEqual(len(far.asked), 1)
            else:
                cause = self.failureResultOf(opening, OpenFailed).value.cause
                self.assertIs(type(cause), kind)
                self.assertIn(str(path), str(cause))
                self.assertEqual(far.asked, [])
