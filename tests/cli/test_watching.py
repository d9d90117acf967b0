"""Tests for `tower.cli.watching`, and for selectors and formats of lists."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence

import yaml

from tests.fakes.api import Stream
from tests.fakes.cli import CommandTestCase, FakeConnection, FakeResponse
from tests.fakes.tunnels import FakeTunnel
from tower.cli.watching import PERIOD


class WatchTests(CommandTestCase):
    """`tower cluster list --watch` and `tower cluster show --watch`."""

    def watched(self, *words: str) -> str:
        """Return the output of a watch that ends with Ctrl-C."""
        code, out, err = self.run_tower("cluster", *words, "--watch")
        self.assertEqual((code, err), (130, ""))
        return out

    def label(self, name: str, **labels: str) -> None:
        """Set the labels of a cluster."""
        body = json.dumps({"metadata": {"labels": labels}}).encode()
        path = f"/apis/cluster.kubesphere.io/v1alpha1/clusters/{name}"
        answer = self.answer("PATCH", path, body, {"Content-Type": "application/merge-patch+json"})
        self.assertEqual(answer.status, 200)

    def test_table(self) -> None:
        """The list is followed by one row for each change; the header is printed once."""
        self.add("alpha")
        self.steps = [lambda _: self.add("beta"), lambda _: self.good("cluster", "disable", "alpha")]
        lines = self.watched("list").splitlines()
        self.assertEqual([line.split()[0] for line in lines], ["NAME", "alpha", "beta", "alpha"])
        start = lines[0].index("ENABLED")
        self.assertEqual([line[start:].split()[0] for line in lines[1:]], ["true", "true", "false"])

    def test_empty_at_first(self) -> None:
        """Without clusters, the header precedes the first one that is added."""
        self.steps = [lambda _: self.add("beta")]
        lines = self.watched("list", "-o", "wide").splitlines()
        self.assertEqual([line.split()[0] for line in lines], ["NAME", "beta"])
        self.assertIn("ENDPOINT", lines[0])

    def test_formats(self) -> None:
        """Each object is printed by itself in the other formats."""
        self.add("alpha")
        self.steps = [lambda _: self.add("beta")]
        self.assertEqual(self.watched("list", "-o", "name"), "alpha\nbeta\n")
        self.assertEqual(
            [item["metadata"]["name"] for item in yaml.safe_load_all(self.watched("list", "-o", "yaml"))],
            ["alpha", "beta"],
        )
        item, _ = json.JSONDecoder().raw_decode(self.watched("list", "-o", "json"))
        self.assertEqual((item["kind"], item["metadata"]["name"]), ("Cluster", "alpha"))

    def test_one(self) -> None:
        """A watch of one cluster shows only that one."""
        self.add("alpha")
        self.steps = [lambda _: self.add("beta"), lambda _: self.good("cluster", "disable", "alpha")]
        lines = self.watched("show", "alpha").splitlines()
        self.assertEqual([line.split()[0] for line in lines], ["NAME", "alpha", "alpha"])
        self.assertIn("there is no cluster nope", self.bad("cluster", "show", "nope", "-w"))

    def test_selector(self) -> None:
        """Lists and watches have only the clusters that the selector matches."""
        for name, tier in (("alpha", "prod"), ("beta", "test")):
            self.add(name)
            self.label(name, tier=tier)
        self.assertEqual(self.good("cluster", "list", "-l", "tier=prod", "-o", "name"), "alpha\n")
        self.assertIn("no cluster matches", self.good("cluster", "list", "-l", "tier=none"))
        self.assertIn("label selector", self.wrong("cluster", "list", "-l", "a=("))
        self.steps = [lambda _: self.label("beta", tier="prod")]
        self.assertEqual(self.watched("list", "-l", "tier=prod", "-o", "name"), "alpha\nbeta\n")

    def test_resumed(self) -> None:
        """A watch that the proxy ends is resumed after the last change."""
        self.add("alpha")
        self.steps = [
            lambda _: self.add("beta"),
            lambda stream: stream.finish(),
            lambda _: self.add("gamma"),
        ]
        self.assertEqual(self.watched("list", "-o", "name"), "alpha\nbeta\ngamma\n")

    def test_too_old(self) -> None:
        """If the proxy forgot the version, the clusters are listed again."""
        self.add("alpha")
        gone = {"code": 410, "reason": "Expired", "message": "too old"}

        def expire(stream: Stream) -> None:
            stream.lines.append({"type": "ERROR", "object": gone})

        self.steps = [expire]
        self.assertEqual(self.watched("list", "-o", "name"), "alpha\nalpha\n")

    def test_cut(self) -> None:
        """A proxy that answers with something else ends the watch with one line."""
        listed = {
            "kind": "ClusterList",
            "apiVersion": "x/v1",
            "metadata": {"resourceVersion": "1"},
            "items": [],
        }

        def answer(_: str, target: str, *__: object) -> FakeResponse:
            if "watch" in target:
                return FakeResponse(403, b'{"message": "forbidden", "reason": "Forbidden"}')
            return FakeResponse(200, json.dumps(listed).encode())

        self.connection = FakeConnection(answer)
        self.assertIn("forbidden", self.bad("cluster", "list", "-w", "-o", "name"))


class PolledTests(CommandTestCase):
    """`--watch` of objects that the API cannot watch."""

    def polled(self, *words: str, then: Sequence[Callable[[], object]]) -> str:
        """Return the output of a watch; the changes *then* are made one by one, then the user ends it."""
        changes = iter(then)

        def sleep(seconds: float) -> None:
            self.assertEqual(seconds, PERIOD)
            change = next(changes, None)
            if change is None:
                raise KeyboardInterrupt
            change()

        self.patch(time, "sleep", sleep)
        code, out, err = self.run_tower(*words, "--watch")
        self.assertEqual((code, err), (130, ""))
        return out

    def issue(self, user: str) -> str:
        """Return the ID of a new credential."""
        credential, _ = self.successResultOf(self.credentials.issue_token("alpha", user, [], 3600.0))
        return str(credential.id)

    def test_credentials(self) -> None:
        """New credentials are added, and a revoked one is printed once more; the header is printed once."""
        self.add("alpha")
        first = self.issue("jane")
        out = self.polled(
            "credential",
            "list",
            then=[
                lambda: self.clock.advance(60),
                lambda: self.issue("joe"),
                lambda: self.successResultOf(self.credentials.revoke(first)),
            ],
        )
        lines = out.splitlines()
        self.assertEqual([line.split()[0] for line in lines[:2]], ["NAME", first])
        self.assertEqual([line.split()[2] for line in lines[1:]], ["jane", "joe", "jane"])
        self.assertEqual(self.polled("credential", "list", "-l", "a=b", then=[]), "")

    def test_agents(self) -> None:
        """An agent is printed when its tunnel comes, and not when only its round trip changes."""
        self.add("alpha")
        token = self.successResultOf(self.tokens.mint("alpha"))
        self.successResultOf(self.tokens.enrol("alpha", token, "SHA256:a", b"blob"))
        tunnel = FakeTunnel(fingerprint="SHA256:a")

        def measure() -> None:
            tunnel.round_trip += 0.001

        then = [lambda: self.tunnels.add(tunnel), measure, measure]
        lines = self.polled("cluster", "agents", "alpha", then=then).splitlines()
        self.assertEqual([line.split()[0] for line in lines], ["NAME", "SHA256:a", "SHA256:a"])
        self.assertIn(tunnel.peer, lines[2])
        self.assertEqual(self.polled("cluster", "agents", "-o", "name", then=[measure]), "SHA256:a\n")

    def test_rotations(self) -> None:
        """A rotation is printed when it begins and when it ends."""
        self.add("alpha")
        token = self.successResultOf(self.tokens.mint("alpha"))
        self.successResultOf(self.tokens.enrol("alpha", token, "SHA256:a", b"blob"))
        then = [lambda: self.good("rotate", "host-key"), lambda: self.good("rotate", "host-key", "--now")]
        out = self.polled("rotate", "status", "-o", "yaml", then=then)
        phases = [item["status"]["phase"] for item in yaml.safe_load_all(out)]
        self.assertEqual(phases, ["InProgress", "Finished"])


class FormatTests(CommandTestCase):
    """`--output` and `--selector` of the other lists."""

    def test_credentials(self) -> None:
        """Credentials have all formats and a selector."""
        self.add("alpha")
        self.good("kubeconfig", "alpha", "--user", "jane")
        (name,) = self.store.snapshot("credentials")
        self.assertEqual(self.good("credential", "list", "-o", "name"), f"{name}\n")
        self.assertIn("jane", self.good("credential", "list", "-o", "wide"))
        self.assertEqual(self.good("credential", "list", "-l", "team=a"), "no credentials\n")
        self.assertIn("'al pha'", self.wrong("credential", "list", "--cluster", "al pha"))

    def test_cluster(self) -> None:
        """One cluster has all formats."""
        self.add("alpha")
        self.assertEqual(self.good("cluster", "show", "alpha", "-o", "name"), "alpha\n")
        self.assertIn("ENDPOINT", self.good("cluster", "show", "alpha", "-o", "wide"))

    def test_agents(self) -> None:
        """Agents have all formats."""
        self.add("alpha")
        token = self.successResultOf(self.tokens.mint("alpha"))
        self.successResultOf(self.tokens.enrol("alpha", token, "SHA256:a", b"blob"))
        self.assertEqual(self.good("cluster", "agents", "alpha", "-o", "name"), "SHA256:a\n")
        self.assertIn("SHA256:a", self.good("cluster", "agents", "alpha", "-o", "wide"))

    def test_labels_of_cluster(self) -> None:
        """Agents and credentials are selected by the labels of their cluster."""
        for name, tier in (("alpha", "prod"), ("beta", "test")):
            self.add(name, labels={"tier": tier})
            token = self.successResultOf(self.tokens.mint(name))
            self.successResultOf(self.tokens.enrol(name, token, f"SHA256:{name}", b"blob"))
            self.successResultOf(self.credentials.issue_token(name, f"jane-{name}", [], 3600.0))
        lines = self.good("cluster", "agents", "-l", "tier=prod").splitlines()
        self.assertEqual([line.split()[:2] for line in lines[1:]], [["SHA256:alpha", "alpha"]])
        self.assertEqual(len(self.good("cluster", "agents").splitlines()), 3)
        self.assertIn("no agent matches", self.good("cluster", "agents", "alpha", "-l", "tier=test"))
        self.assertIn("jane-beta", self.good("credential", "list", "-l", "tier!=prod"))
        self.assertNotIn("jane-alpha", self.good("credential", "list", "-l", "tier!=prod"))

    def test_rotations(self) -> None:
        """Rotations have all formats and a selector."""
        self.good("rotate", "secrets-key")
        self.assertEqual(self.good("rotate", "status", "-o", "name"), "secrets-key\n")
        self.assertIn("OLD", self.good("rotate", "status", "-o", "wide"))
        self.assertEqual(self.good("rotate", "status", "-l", "a=b"), "no rotation matches the selector\n")
