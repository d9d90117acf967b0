"""Opens the audit that options describe: policy, log and webhook."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tower.errors import ConfigurationError
from tower.kube.rest.rest_config import RestConfig
from tower.kube.rest.webhook_client import WebhookClient
from tower.reactor.interfaces import IReactor
from tower.reactor.signals import Reloads
from tower.store.audit_log import open_audit_log
from tower.web.access.audit.audit import Audit
from tower.web.access.audit.batches import BatchSettings
from tower.web.access.audit.destinations import BATCH, Destination
from tower.web.access.audit.policy_file import AuditPolicyFile
from tower.web.access.audit.webhook_backend import WebhookBackend

_WEBHOOK = "audit-webhook-config-file"


def open_audit(
    options: Mapping[str, Any], reactor: IReactor, epoch: Callable[[], float], reloads: Reloads
) -> tuple[Audit | None, AuditPolicyFile | None]:
    """Return the audit of the ``--audit-…`` options, and the file with its policy, each if there is one.

    :param epoch: returns the time of day, s since the epoch.
    :raise OptionError: the log cannot be written; the text names the cure.
    :raise ConfigurationError: a file is wrong; the text has upstream's, and names the option.
    """
    destinations = []
    log = open_audit_log(options, reactor, epoch)
    if log is not None:
        reloads.add("audit log", log.reopen)
        form, mode = options["audit-log-format"], options["audit-log-mode"]
        destinations.append(Destination("log", log, form, mode, _limit(options, "log")))
    if options[_WEBHOOK] is not None:
        backend = _webhook(options, reactor)
        limit = _limit(options, "webhook")
        destinations.append(Destination("webhook", backend, mode=options["audit-webhook-mode"], limit=limit))
    if not destinations:
        return None, None
    audit = Audit(destinations, epoch, clock=reactor)
    path = options["audit-policy-file"]
    if path is None:
        return audit, None

    policy = AuditPolicyFile(path, audit.use)
    reloads.add("audit policy", policy.file.reload)
    return audit, policy


def batches_of(options: Mapping[str, Any]) -> BatchSettings:
    """Return the batches for the webhook; modes other than ``batch`` post each event at once."""
    name, defaults = "audit-webhook-batch", BatchSettings()
    truncates = options["audit-webhook-truncate-enabled"]
    max_bytes = options["audit-webhook-truncate-max-batch-size"] if truncates else defaults.max_bytes
    backoff = options["audit-webhook-initial-backoff"]
    if options["audit-webhook-mode"] != BATCH:
        return BatchSettings(max_wait=0.0, qps=0.0, max_bytes=max_bytes, initial_backoff=backoff)
    return BatchSettings(
        buffer_size=options[f"{name}-buffer-size"],
        max_size=options[f"{name}-max-size"],
        max_wait=options[f"{name}-max-wait"],
        qps=options[f"{name}-throttle-qps"] if options[f"{name}-throttle-enable"] else 0.0,
        burst=options[f"{name}-throttle-burst"],
        max_bytes=max_bytes,
        initial_backoff=backoff,
    )


def _webhook(options: Mapping[str, Any], reactor: IReactor) -> WebhookBackend:
    try:
        config = RestConfig.from_kubeconfig(options[_WEBHOOK], reactor)
    except ConfigurationError as e:
        raise ConfigurationError(f"initializing audit webhook: --{_WEBHOOK}: {e}") from e
    return WebhookBackend(reactor, WebhookClient(reactor, config), batches_of(options))


def _limit(options: Mapping[str, Any], name: str) -> int:
    """Return the size of the largest event, B; 0: any."""
    if not options[f"audit-{name}-truncate-enabled"]:
        return 0
    limit: int = options[f"audit-{name}-truncate-max-event-size"]
    return limit
