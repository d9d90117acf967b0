"""A real API server with ABAC, RBAC and a webhook, for several modules of tests."""

from __future__ import annotations

import atexit
import os
import tempfile
from functools import cache
from pathlib import Path

from tests.integration import authorizer_cases as cases
from tests.integration.member import Running
from tests.integration.review_webhook import ReviewWebhook


@cache
def authorizing_server() -> tuple[Path, Running, ReviewWebhook]:
    """Return the folder, the API server with all modes, which ends with the process, and its webhook."""
    folder = Path(tempfile.mkdtemp(prefix="tower-authorizers-"))
    (folder / "policies").write_text(cases.policy_lines())
    webhook = ReviewWebhook(folder)
    flags = {
        "authorization-mode": "ABAC,RBAC,Webhook",
        "authorization-policy-file": folder / "policies",
        "authorization-webhook-config-file": webhook.kubeconfig,
        "authorization-webhook-version": "v1",
        "authorization-webhook-cache-authorized-ttl": "0s",
        "authorization-webhook-cache-unauthorized-ttl": "0s",
    }
    started = Running(folder, "--bare", *(f"--apiserver-flag={key}={value}" for key, value in flags.items()))
    owner = os.getpid()
    atexit.register(lambda: started.stop() if os.getpid() == owner else None)
    started.run()
    return folder, started, webhook
