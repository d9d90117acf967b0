"""`tower join --protocol v1`: its command starts a deployed agent, which is shown and revoked."""

from __future__ import annotations

import base64
import json
import shlex
from pathlib import Path
from typing import Any

import yaml

from tests.integration import harness
from tests.integration.backends import Backend
from tests.integration.member import member
from tests.integration.old_peers import OldAgent
from tests.integration.programs import LOOPBACK, wait_for

#: As upstream makes them: 64 hex digits.
OLD_TOKEN = "0123456789abcdef" * 4


def condition(tower: harness.Tower) -> dict[str, Any]:
    """Return the condition about the protocol of alpha's agents; empty before the first agent."""
    conditions = tower.status("alpha")["status"]["conditions"]
    return next((one for one in conditions if one["type"] == "AgentProtocol"), {})


class JoinTests(harness.TowerTestCase):
    """One cluster, alpha, behind one old agent."""

    def setUp(self) -> None:
        """Add the cluster, and start what is behind its agent."""
        super().setUp()
        self.backend = Backend(self.folder, "alpha")
        self.backend.start()
        self.addCleanup(self.backend.program.stop)
        self.tower.tower("cluster", "add", "alpha")
        self.token_file = self.folder / "token-of-the-agent"
        self.token_file.write_text("the-agent-of-alpha")
        way = json.loads(self.backend.kubeconfig("alpha").read_text())["clusters"][0]["cluster"]
        self.service = way["server"].removeprefix("https://")
        self.ca = self.folder / "backend-ca.crt"
        self.ca.write_bytes(base64.b64decode(way["certificate-authority-data"]))

    def start(self, words: list[str], trusts: Path | None = None, label: str = "old") -> OldAgent:
        """Start an old agent with exactly the flags in *words*."""
        match words:
            case ["--name", name, "--token", token, "--proxy-server", server]:
                agent = OldAgent(
                    self.folder,
                    server,
                    name,
                    token,
                    self.service,
                    ca=self.ca,
                    bearer=self.token_file,
                    trusts=trusts,
                    label=label,
                )
            case _:
                raise AssertionError(words)
        agent.program.start()
        self.addCleanup(agent.program.stop)
        return agent

    def works(self) -> None:
        """Expect a request of jane's to reach the API server as jane."""
        answer = self.tower.person("alpha", "jane").get("/marks/jane@alpha/1?size=100")
        self.assertEqual((answer.status, len(answer.body)), (200, 100))

    def agents(self) -> dict[str, list[dict[str, Any]]]:
        """Return the live tunnels by the names of their credentials."""
        shown = json.loads(self.tower.tower("cluster", "agents", "alpha", "-o", "json"))
        return {item["metadata"]["name"]: item["status"]["tunnels"] for item in shown["items"]}

    def test_line(self) -> None:
        """The line works as it is printed; its agent is shown, warned of, and cut when it is revoked."""
        code, line, notes = self.tower.try_tower("join", "alpha", "--protocol", "v1")
        self.assertEqual((code, line.count("\n")), (0, 1), notes)
        program, *words = shlex.split(line)
        self.assertEqual(program, "agent")
        self.assertEqual(words[-1], f"http://{LOOPBACK}:{self.tower.port}")
        agent = self.start(words)
        agent.wait_until_ready()
        self.works()
        ((name, (tunnel,)),) = self.agents().items()
        self.assertTrue(name.startswith("v1:"), name)
        self.assertEqual(tunnel["protocol"], "kubesphere-v1")
        shown = wait_for("the condition", lambda: condition(self.tower))
        self.assertEqual((shown["status"], shown["reason"]), ("False", "KubeSphereV1"))
        self.assertIn(f"(token {name}) speaks kubesphere-v1", self.tower.proxy.output())
        self.tower.tower("cluster", "revoke", "alpha", name)
        wait_for("the end of the tunnel", lambda: agent.failures() > 0)
        wait_for("the refusal", lambda: "Unauthorized" in agent.program.output())
        self.assertEqual(self.agents(), {})
        self.assertEqual(agent.connections(), 1)
        token = words[words.index("--token") + 1]
        self.assertNotIn(token, self.tower.proxy.output())
        self.assertNotIn(
            token.encode(), b"".join(path.read_bytes() for path in self.tower.state.glob("tower.db*"))
        )

    def test_line_with_ca(self) -> None:
        """With the CA the agent comes by TLS and verifies the proxy; with another one it does not come."""
        ca = self.folder / "tower-ca.crt"
        line = self.tower.tower("join", "alpha", "--protocol", "v1", "--ca-file", str(ca))
        env, trusts, program, *words = shlex.split(line)
        self.assertEqual((env, trusts, program), ("env", f"SSL_CERT_FILE={ca}", "agent"))
        self.assertEqual(words[-1], f"https://{LOOPBACK}:{self.tower.secure_port}")
        rejected = self.start(words, self.ca, "deceived")
        wait_for("the failure", lambda: "certificate" in rejected.program.output())
        rejected.program.stop()
        self.assertEqual(rejected.connections(), 0)
        self.start(words, ca).wait_until_ready()
        self.works()

    def test_manifest(self) -> None:
        """The manifest's values for the agent's container authenticate it, over TLS with the CA in it."""
        text = self.tower.tower("join", "alpha", "--protocol", "v1", "--format", "manifest")
        objects = {item["kind"]: item for item in yaml.safe_load_all(text)}
        (container,) = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
        secret = objects["Secret"]["stringData"]
        ca = self.folder / "mounted-ca.crt"
        ca.write_text(secret["ca.crt"])
        flags = dict(word.removeprefix("--").split("=", 1) for word in container["args"])
        self.assertEqual(flags["token"], "$(TOWER_TOKEN)")
        words = ["--name", flags["name"], "--token", secret["token"], "--proxy-server", flags["proxy-server"]]
        self.start(words, ca).wait_until_ready()
        self.works()

    def test_imported(self) -> None:
        """An agent whose token is imported comes in unchanged, on the attempt after that."""
        url = f"http://{LOOPBACK}:{self.tower.port}"
        agent = self.start(["--name", "alpha", "--token", OLD_TOKEN, "--proxy-server", url])
        wait_for("the refusal", lambda: "Unauthorized" in agent.program.output())
        token_file = self.folder / "old-token"
        token_file.write_text(f"{OLD_TOKEN}\n")
        self.tower.tower("join", "alpha", "--protocol", "v1", "--token-file", str(token_file))
        agent.wait_until_ready()
        self.works()
        self.assertNotIn(OLD_TOKEN, self.tower.proxy.output())

    def test_disabled_and_removed(self) -> None:
        """Disabling cuts old agents at once; enabled, they are back; removed, they are not (hole 5)."""
        words = shlex.split(self.tower.tower("join", "alpha", "--protocol", "v1"))[1:]
        agent = self.start(words)
        agent.wait_until_ready()
        self.tower.tower("cluster", "disable", "alpha")
        wait_for("the end of the tunnel", lambda: agent.failures() > 0)
        self.tower.tower("cluster", "enable", "alpha")
        agent.wait_until_ready()
        self.works()
        self.tower.tower("cluster", "remove", "alpha")
        wait_for("the end of the tunnel", lambda: not agent.ready())
        self.tower.tower("cluster", "add", "alpha")
        refused = agent.failures()
        wait_for("another refusal", lambda: agent.failures() > refused)
        self.assertEqual(agent.connections(), 2)


class ManifestTests(harness.TowerTestCase):
    """The manifest in a real cluster, where no kubelet starts pods."""

    def test_applied(self) -> None:
        """It is valid, and its rights are those that an old agent needs to serve users."""
        real = member()
        self.tower.tower("cluster", "add", "alpha")
        text = self.tower.tower("join", "alpha", "--protocol", "v1", "--format", "manifest")
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kubesphere-system"}}
        real.kubectl("apply", "-f", "-", stdin=json.dumps(namespace).encode())
        self.addCleanup(real.remove_namespace, "kubesphere-system")
        printed = real.kubectl("apply", "--validate=strict", "-f", "-", stdin=text.encode())
        self.addCleanup(real.kubectl, "delete", "-f", "-", "--wait=false", stdin=text.encode())
        self.assertEqual(printed.count("tower-v1-agent created"), 5, printed)
        objects = {item["kind"]: item for item in yaml.safe_load_all(text)}
        files = {name: self.folder / name for name in ("bearer", "ca.crt")}
        account = objects["Deployment"]["spec"]["template"]["spec"]["serviceAccountName"]
        bearer = real.kubectl("-n", "kubesphere-system", "create", "token", account, "--duration=1h").strip()
        files["bearer"].write_text(bearer)
        files["ca.crt"].write_text(objects["Secret"]["stringData"]["ca.crt"])
        agent = OldAgent(
            self.folder,
            f"https://{LOOPBACK}:{self.tower.secure_port}",
            "alpha",
            objects["Secret"]["stringData"]["token"],
            real.service,
            ca=real.ca,
            bearer=files["bearer"],
            trusts=files["ca.crt"],
        )
        agent.program.start()
        self.addCleanup(agent.program.stop)
        agent.wait_until_ready()
        jane = self.tower.person("alpha", "jane", "--group", "dev")
        self.assertEqual(jane.get("/api/v1/namespaces").status, 200)
        rejected = self.tower.person("alpha", "stranger")
        self.assertEqual(rejected.get("/api/v1/namespaces").status, 403)
        self.assertNotIn(bearer, self.tower.proxy.output())
        shown = wait_for("the condition", lambda: condition(self.tower))
        self.assertIn("The credential that it sent expires at", shown["message"])
