"""Tests of `tower.web.api.rotations`."""

from __future__ import annotations

import json
from typing import Any

from tests.fakes.api import BASE, TABLE, ApiTestCase
from tests.fakes.certificates import NOW
from tower.kube.status import StatusError
from tower.kube.timestamps import timestamp

ROTATIONS = f"{BASE}/rotations"


class RotationsApiTests(ApiTestCase):
    """Each test has an agent that is not connected."""

    def setUp(self) -> None:
        """Enrol it."""
        super().setUp()
        self.add("alpha")
        token = self.successResultOf(self.tokens.mint("alpha"))
        self.successResultOf(self.tokens.enrol("alpha", token, "SHA256:a", b"blob"))

    def begin(self, **spec: Any) -> dict[str, Any]:
        """Begin a rotation; return its object."""
        return self.post(ROTATIONS, {"kind": "Rotation", "spec": spec})

    def post(self, path: str, body: Any) -> dict[str, Any]:
        """Return the created object."""
        answer: Any = self.ask("POST", path, body)
        self.assertEqual(answer.code, 201)
        made: dict[str, Any] = json.loads(answer.body)
        return made

    def rejected(self, code: int, method: str, path: str, body: Any = None) -> str:
        """Return the message of an error."""
        error = self.assertRaises(StatusError, self.ask, method, path, body)
        self.assertEqual(error.code, code)
        return str(error)

    def test_selected(self) -> None:
        """Selectors apply to the list, so that a delete by labels leaves the others; watches are refused."""
        self.begin(target="host-key")
        self.assertEqual(self.get(ROTATIONS, labelSelector="a=b")["items"], [])
        self.assertEqual(self.get(ROTATIONS, fieldSelector="metadata.name=users-ca")["items"], [])
        self.assertEqual(len(self.get(ROTATIONS, labelSelector="!a")["items"]), 1)
        self.refused(405, "GET", ROTATIONS, watch="true")
        self.assertEqual(self.get(f"{BASE}/clusters/alpha/agents", labelSelector="a=b")["items"], [])

    def test_invalid(self) -> None:
        """The details of an Invalid Status have the kind."""
        error = self.refused(422, "POST", ROTATIONS, {"metadata": {"name": "x"}, "spec": {"target": "y"}})
        self.assertEqual((error.details["kind"], error.details["name"]), ("Rotation", "x"))

    def test_life(self) -> None:
        """A rotation is begun, shown, changed and finished."""
        self.assertEqual(self.get(ROTATIONS)["items"], [])
        item = self.begin(target="host-key", after="30d")
        self.assertEqual((item["metadata"]["name"], item["status"]["phase"]), ("host-key", "InProgress"))
        self.assertEqual(item["spec"]["untilTimestamp"], timestamp(NOW + 30 * 86400))
        remaining = item["status"]["remaining"]
        self.assertEqual((remaining["readyAgents"], remaining["lackingAgents"]), (0, 1))
        (agent,) = remaining["agents"]
        self.assertEqual(agent, {"cluster": "alpha", "agent": "SHA256:a", "reason": "not connected"})
        row = self.get(ROTATIONS, accept=TABLE)["rows"][0]["cells"]
        self.assertEqual(row[:4], ["host-key", "InProgress", 0, "1 agent"])
        status = self.begin(target="host-key", after="0s")["status"]
        self.assertEqual((status["phase"], status["stranded"]["agents"]), ("Finished", [agent]))
        row = self.get(ROTATIONS, accept=TABLE)["rows"][0]["cells"]
        self.assertEqual(row[:5], ["host-key", "Finished", "", "", "1 agent"])
        self.assertEqual(self.get(f"{ROTATIONS}/host-key")["status"]["new"], self.keys.fingerprints()[0])

    def test_join_lines(self) -> None:
        """A waiting join line is shown with its expiry."""
        self.successResultOf(self.tokens.mint("alpha", 600.0))
        self.clock.advance(1.0)
        item = self.begin(target="host-key")
        self.assertEqual(item["status"]["remaining"]["joinTokensUntil"], timestamp(NOW + 600.0))
        row = self.get(ROTATIONS, accept=TABLE)["rows"][0]["cells"]
        self.assertEqual(row[3], f"1 agent, 1 join line until {timestamp(NOW + 600.0)}")

    def test_dry_run(self) -> None:
        """A dry run shows what a rotation would wait for, and begins none."""
        self.successResultOf(self.tokens.mint("alpha", 600.0))
        self.successResultOf(self.credentials.issue_token("alpha", "jane", (), 600.0))
        self.clock.advance(1.0)
        body = {"kind": "Rotation", "spec": {"target": "serving-ca", "after": "0s"}}
        answer: Any = self.ask("POST", ROTATIONS, body, dryRun="All")
        remaining = json.loads(answer.body)["status"]["remaining"]
        counts = [remaining[key] for key in ("lackingAgents", "joinTokens", "credentials")]
        self.assertEqual(counts, [1, 1, 1])
        self.assertEqual(remaining["kubeconfigs"][0]["user"], "jane")
        self.assertEqual(remaining["joinLines"][0]["expirationTimestamp"], timestamp(NOW + 600.0))
        self.assertEqual(self.get(ROTATIONS)["items"], [])

    def test_cancel(self) -> None:
        """A delete cancels it, unless it is a dry run."""
        self.begin(target="serving-ca")
        self.stays(f"{ROTATIONS}/serving-ca")
        self.assertEqual(len(self.get(ROTATIONS)["items"]), 1)
        self.ask("DELETE", f"{ROTATIONS}/serving-ca")
        self.assertEqual(self.get(ROTATIONS)["items"], [])
        self.assertIn("rotate status", self.rejected(404, "DELETE", f"{ROTATIONS}/serving-ca"))

    def test_refused(self) -> None:
        """Wrong targets, durations, fields and names are rejected with the value."""
        for spec, word in (
            ({"target": "everything"}, "host-key, serving-ca"),
            ({}, "spec.target"),
            ({"target": "host-key", "after": "soon"}, "spec.after"),
            ({"target": "host-key", "now": True}, "spec.now"),
        ):
            self.assertIn(word, self.rejected(422, "POST", ROTATIONS, {"spec": spec}))
        self.rejected(404, "GET", f"{ROTATIONS}/everything")
        self.rejected(405, "PUT", ROTATIONS)
        self.begin(target="host-key")
        text = self.rejected(409, "POST", ROTATIONS, {"spec": {"target": "host-key"}})
        self.assertIn("--now", text)
