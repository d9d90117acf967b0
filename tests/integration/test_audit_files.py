"""The audit log has the changes of all files that decide on the access of users."""

from __future__ import annotations

import json
import signal
import time
from hashlib import sha256
from pathlib import Path

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.fakes.audits import HEAD
from tests.fakes.certificates import DAY, authority
from tests.integration import harness
from tests.integration.programs import wait_for

AUTHENTICATION = """apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
anonymous: {{enabled: true, conditions: [{{path: /{path}}}]}}
jwt: []
"""
POLICY = HEAD + "rules: [{{level: {level}}}]\n"


def public_key() -> str:
    """Return a new public key."""
    key = ec.generate_private_key(ec.SECP256R1()).public_key()
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_bytes(serialization.Encoding.PEM, form).decode()


def certificates() -> str:
    """Return a new CA."""
    return authority(lifetime=DAY, now=time.time()).pem.decode()


def kubeconfig(host: str) -> str:
    """Return the kubeconfig of a webhook."""
    return yaml.safe_dump(
        {
            "clusters": [{"name": "hook", "cluster": {"server": f"https://{host}:1/"}}],
            "contexts": [{"name": "hook", "context": {"cluster": "hook", "user": ""}}],
            "current-context": "hook",
        }
    )


#: The first and the second content of the file of each option.
FILES = {
    "audit-policy-file": (POLICY.format(level="Metadata"), POLICY.format(level="None")),
    "token-auth-file": ("t-jane,jane,1\n", "t-joe,joe,2\n"),
    "authorization-policy-file": (json.dumps({"user": "jane"}), json.dumps({"user": "joe"})),
    "client-ca-file": (certificates(), certificates()),
    "service-account-key-file": (public_key(), public_key()),
    "authorization-webhook-config-file": (kubeconfig("one.example"), kubeconfig("two.example")),
}


class AuditFilesTests(harness.TowerTestCase):
    """A proxy with a file for each option."""

    def new_tower(self) -> harness.Tower:
        """Return a Tower with the first contents."""
        tower = super().new_tower()
        self.log = self.folder / "audit.log"
        options = [f"--audit-log-path={self.log}", "--authorization-mode=ABAC,Webhook"]
        options += ["--service-account-issuer=https://issuer.example", "--api-audiences=tower"]
        for option, (content, _) in FILES.items():
            self.path(option).write_text(content)
            self.path(option).chmod(0o600)
            options.append(f"--{option}={self.path(option)}")
        tower.proxy = tower.proxy_program(*options)
        return tower

    def path(self, option: str) -> Path:
        """Return the file of *option*."""
        return self.folder / option

    def changes(self) -> dict[str, dict[str, str]]:
        """Return the annotations of the events of files, by option."""
        events = map(json.loads, self.log.read_bytes().splitlines())
        return {
            each["objectRef"]["name"]: each["annotations"]
            for each in events
            if each.get("objectRef", {}).get("resource") == "optionfiles"
        }

    def test_files(self) -> None:
        """Each new content is an event, at last that of a policy that omits all events."""
        for option, (_, content) in [*FILES.items()][1:]:
            self.path(option).write_text(content)
        wait_for("the events", lambda: len(self.changes()) == len(FILES) - 1)
        self.path("audit-policy-file").write_text(FILES["audit-policy-file"][1])
        self.tower.proxy.signal(signal.SIGHUP)
        wait_for("the event of the policy", lambda: len(self.changes()) == len(FILES))
        for option, notes in self.changes().items():
            name = f"--{option} {self.path(option)}"
            self.assertEqual(notes["cluster.kubesphere.io/option"], name)
            for key, content in zip(("old", "new"), FILES[option], strict=True):
                digest = notes[f"cluster.kubesphere.io/{key}-digest"]
                if digest.startswith("sha256:"):
                    self.assertEqual(digest, f"sha256:{sha256(content.encode()).hexdigest()}")
        salted = {key for key, each in self.changes().items() if "salted:" in str(each)}
        self.assertEqual(salted, {"token-auth-file", "authorization-webhook-config-file"})
