"""Access policies with real programs: proxy, agent, API server, kubectl, and users of a token file."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from tests.integration import harness
from tests.integration.member import kubectls, member
from tests.integration.person import Person
from tests.integration.process_clock import ProcessClock
from tests.integration.programs import run, wait_for

SOON = 3.0  # s from a change to the end of watches and commands: 2 s, and the machine's delays
MINUTE, HOUR = 60, 3600  # s
TOKENS = """t-jane,jane@example.org,1,"dev,ops"
t-joe,joe,2,dev
"""
EXEC = ("exec", "-i", "shell", "-c", "main", "--", "cat")
PODS = ("get", "pods")


def policy(name: str = "dev", **spec: Any) -> bytes:
    """Return a policy, by default for the group dev and the cluster alpha."""
    subjects, clusters = [{"kind": "Group", "name": "dev"}], {"names": ["alpha"]}
    value = {
        "apiVersion": "cluster.kubesphere.io/v1alpha1",
        "kind": "AccessPolicy",
        "metadata": {"name": name},
        "spec": {"subjects": subjects, "clusters": clusters, **spec},
    }
    return json.dumps(value).encode()


class AccessPolicyTests(harness.TowerTestCase):
    """Alpha and beta are the same API server, where the group dev has all rights."""

    def new_tower(self) -> harness.Tower:
        """Return a proxy that knows the users of a token file."""
        tower = super().new_tower()
        tokens = self.folder / "tokens.csv"
        tokens.write_text(TOKENS)
        tokens.chmod(0o600)
        self.audit = self.folder / "audit.log"
        options = (harness.PATIENT, f"--token-auth-file={tokens}", f"--audit-log-path={self.audit}")
        tower.proxy = tower.proxy_program(*options)
        return tower

    def setUp(self) -> None:
        """Put the member behind the proxy, and write the users' kubeconfigs."""
        self.member = member()
        super().setUp()
        self.tower.add("alpha", self.member.agent)
        self.program = str(kubectls()[-1])
        self.running: list[subprocess.Popen[bytes]] = []
        self.addCleanup(self.end)

    def end(self) -> None:
        """End the commands that still run."""
        for each in self.running:
            each.kill()
            each.wait()
            for pipe in (each.stdin, each.stdout, each.stderr):
                if pipe is not None:
                    pipe.close()

    def user(self, token: str, cluster: str = "alpha") -> Path:
        """Return the kubeconfig of a user for a cluster."""
        admin = Person(self.tower.state / "admin.kubeconfig")
        config = yaml.safe_load(admin.kubeconfig.read_text())
        server = config["clusters"][0]["cluster"]
        server["server"] = f"https://127.0.0.1:{self.tower.secure_port}/clusters/{cluster}"
        config["users"][0]["user"] = {"token": token}
        path = self.folder / f"{token}-{cluster}.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return path

    def kubectl(self, kubeconfig: Path, *arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
        """Run kubectl; return its exit code and both outputs."""
        done = run([self.program, f"--kubeconfig={kubeconfig}", *arguments], stdin=stdin)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def works(self, kubeconfig: Path, *arguments: str, stdin: bytes = b"") -> str:
        """Run kubectl, which must succeed; return its output."""
        code, out, error = self.kubectl(kubeconfig, *arguments, stdin=stdin)
        self.assertEqual(code, 0, error)
        return out

    def refused(self, kubeconfig: Path, *arguments: str, stdin: bytes = b"") -> str:
        """Run kubectl, which must be refused; return the first line of its error."""
        code, _, error = self.kubectl(kubeconfig, *arguments, stdin=stdin)
        self.assertNotEqual(code, 0)
        return error.splitlines()[0]

    def apply(self, text: bytes, *options: str) -> str:
        """Apply a policy as an administrator; return the warnings."""
        code, _, error = self.kubectl(
            self.tower.state / "admin.kubeconfig", "apply", "-f", "-", *options, stdin=text
        )
        self.assertEqual(code, 0, error)
        return error

    def start(self, kubeconfig: Path, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a command of kubectl that does not end by itself."""
        started = subprocess.Popen(
            [self.program, f"--kubeconfig={kubeconfig}", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.running.append(started)
        return started

    def sessions(self, kubeconfig: Path) -> list[subprocess.Popen[bytes]]:
        """Start a watch and an exec; return them once both work."""
        watch, command = self.start(kubeconfig, *PODS, "--watch"), self.start(kubeconfig, *EXEC)
        assert watch.stdout is not None and command.stdin is not None and command.stdout is not None  # noqa: PT018
        self.assertIn(b"NAME", watch.stdout.readline())
        command.stdin.write(b"hello\n")
        command.stdin.flush()
        self.assertEqual(command.stdout.readline(), b"hello\n")
        return [watch, command]

    def events(self) -> list[dict[str, Any]]:
        """Return the complete events of the audit log."""
        lines = self.audit.read_text().splitlines(keepends=True)
        return [json.loads(each) for each in lines if each.endswith("\n")]

    def changed(self, verb: str, resource: str) -> float:
        """Return when the proxy made an administrator's last change, s since the epoch."""
        times = wait_for(
            "the event of the change",
            lambda: [
                datetime.fromisoformat(each["stageTimestamp"]).timestamp()
                for each in self.events()
                if each["stage"] == "ResponseComplete"
                and (each["verb"], each.get("objectRef", {}).get("resource")) == (verb, resource)
            ],
        )
        return max(times)

    def check_ended(
        self, sessions: list[subprocess.Popen[bytes]], change: Callable[[], float], ahead: float = 0.0
    ) -> None:
        """Check that watches and commands end, and that the proxy has cut them soon after a change.

        :param change: returns its time, s since the epoch.
        :param ahead: by how much the proxy's clock is ahead, s.
        """
        for each in sessions:
            wait_for("the end of a session", lambda each=each: each.poll() is not None)  # type: ignore[misc]
        pattern = r"(?m)^(\S+) info \S+ closed \d+ connections of"
        cuts = wait_for("the log", lambda: re.findall(pattern, self.tower.proxy.output()))
        self.assertLess(datetime.fromisoformat(cuts[-1]).timestamp() - ahead - change(), SOON)

    def test_life_of_a_policy(self) -> None:
        """Without a policy no user enters; with one, its limits hold; its removal ends watch and exec."""
        jane, joe, root = self.user("t-jane"), self.user("t-joe"), self.tower.state / "admin.kubeconfig"
        line = self.refused(jane, *PODS)
        self.assertIn("jane@example.org is not admitted to cluster alpha: ask an administrator", line)
        unknown = self.refused(self.user("t-jane", "nope"), *PODS)
        self.assertEqual(unknown, line.replace("cluster alpha", "cluster nope"))

        warnings = self.apply(policy(access="read-only"), "--dry-run=server")
        self.assertIn("would change: group dev in cluster alpha: no entry -> read-only access", warnings)
        self.assertIn("not admitted", self.refused(jane, *PODS))

        self.apply(policy(access="read-only"))
        self.assertIn("shell", self.works(jane, *PODS))
        self.assertIn("jane@example.org", self.works(jane, "auth", "whoami"))
        code, answer, _ = self.kubectl(joe, "auth", "can-i", "create", "pods")
        self.assertEqual((code, answer.split()[0]), (1, "no"))  # the member would allow it
        line = self.refused(jane, *EXEC[:-1], "true")
        self.assertRegex(
            line, "must not (get|create) pods/exec in cluster alpha: access policy dev permits only"
        )
        config_map = ("create", "configmap", "made-by-jane")
        self.assertIn("permits only read-only access", self.refused(jane, *config_map))
        watch = self.start(joe, *PODS, "--watch")
        assert watch.stdout is not None
        self.assertIn(b"NAME", watch.stdout.readline())

        self.apply(policy())
        sessions = self.sessions(jane)
        self.assertIn("dev", self.works(root, "get", "accesspolicies"))
        self.works(root, "delete", "accesspolicy", "dev", "--wait=false")
        self.check_ended([*sessions, watch], lambda: self.changed("delete", "accesspolicies"))
        self.assertIn("not admitted to cluster alpha", self.refused(jane, *PODS))
        self.assertIn("connections of jane@example.org to cluster alpha", self.tower.proxy.output())
        (event,) = wait_for(
            "the event of the command",
            lambda: [
                each
                for each in self.events()
                if each["stage"] == "ResponseComplete"
                and each.get("objectRef", {}).get("subresource") == "exec"
                and each["responseStatus"]["code"] == 101
            ],
        )
        self.assertEqual(event["user"]["username"], "jane@example.org")
        notes = event["annotations"]
        self.assertEqual(notes["cluster.kubesphere.io/access-policies"], "dev")
        self.assertEqual(notes["cluster.kubesphere.io/member-user"], "jane@example.org")

    def test_names_and_labels(self) -> None:
        """Clusters by label, names in the member, service accounts, and reserved names."""
        self.tower.add("beta", self.member.agent)
        root = self.tower.state / "admin.kubeconfig"
        names = {"user": "door:{user}", "groupMapping": {"ops": "dev"}}
        by_label = {"selector": {"matchLabels": {"region": "berlin"}}}
        all_users = [{"kind": "Group", "name": "system:authenticated"}]
        self.apply(policy("berlin", clusters=by_label, subjects=all_users, **{"as": names}))
        jane = {name: self.user("t-jane", name) for name in ("alpha", "beta")}
        for each in jane.values():
            self.assertIn("not admitted", self.refused(each, *PODS))
        self.works(root, "label", "cluster", "beta", "region=berlin")
        self.assertIn("not admitted", self.refused(jane["alpha"], *PODS))
        who = json.loads(self.works(jane["beta"], "auth", "whoami", "-o", "json"))["status"]["userInfo"]
        self.assertEqual(who["username"], "door:jane@example.org")
        self.assertEqual(sorted(who["groups"]), ["dev", "system:authenticated"])
        sessions = self.sessions(jane["beta"])
        self.works(root, "label", "cluster", "beta", "region-")
        self.check_ended(sessions, lambda: self.changed("patch", "clusters"))

        self.apply(policy("reserved", **{"as": {"user": "system:{user}"}}))
        line = self.refused(jane["alpha"], *PODS)
        self.assertIn("the user 'system:jane@example.org' is reserved there", line)
        code, _, error = self.tower.try_tower("access", "explain", "joe", "alpha", "--group", "qa")
        self.assertEqual(code, 1)
        self.assertIn("joe is not admitted to cluster alpha", error)
        self.works(root, "label", "cluster", "beta", "region=berlin")
        words = ("--group", "ops", "--verb", "create", "--resource", "pods")
        out = self.tower.tower("access", "explain", "joe", "beta", *words)
        self.assertIn("joe enters cluster beta by access policy berlin", out)
        self.assertIn("door:joe", out)

    def test_window_closes(self) -> None:
        """At the end of its time window, a policy's watches and commands end, and the error has the time."""
        now = datetime.now(UTC)
        begin, end = now - timedelta(hours=2), now + timedelta(hours=2)
        window = {"from": f"{begin:%H:%M}", "to": f"{end:%H:%M}", "timeZone": "UTC"}
        self.apply(policy(timeWindow=window))
        jane = self.user("t-jane")
        sessions = self.sessions(jane)
        time.sleep(SOON)  # a session that must not end
        self.assertEqual([each.poll() for each in sessions], [None, None])
        began, ahead = time.time(), 2 * HOUR + MINUTE
        ProcessClock(self.tower.proxy.pid).set(ahead)
        self.check_ended(sessions, lambda: began, ahead)
        line = self.refused(jane, *PODS)
        self.assertIn("is not admitted to cluster alpha now: access policy dev admits only", line)
        self.assertIn(f"{end:%H:%M} UTC", line)
