"""Options of ``tower-proxy`` for the audit of requests, with kube-apiserver's names and errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from twisted.python import usage

from tower.control.front_door.authorization_options import AuthorizationOptions
from tower.options.parameters import Parameter, flag, parameter
from tower.options.values import read_boolean, read_duration, read_path
from tower.web.access.audit.destinations import BATCH, MODES
from tower.web.access.audit.formats import FORMATS

_VERSION = "audit.k8s.io/v1"

# Megabytes of the largest file that `RotatingFile` counts.
_LARGEST_FILE = 1_000_000

#: Default largest event and batch, B.
EVENT_SIZE = 100 * 1024
BATCH_SIZE = 10 * 1024 * 1024


def _read_integer(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = None
    if number is None or not text.isascii() or "_" in text or abs(number) >= 1 << 63:
        raise ValueError("is not a number: give a whole number")
    return number


def _read_rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = None
    if rate is None or not abs(rate) < 1e9:
        raise ValueError("is not a rate: give a number such as 10 or 0.5")
    return rate


def _read_wait(text: str) -> float:
    return 0.0 if text in ("0", "0s") else read_duration(text)


def _truncation(name: str) -> list[Parameter]:
    return [
        parameter(
            f"audit-{name}-truncate-max-event-size",
            str(EVENT_SIZE),
            "Maximum size of an event, B; a larger one loses its bodies, or is dropped.",
            _read_integer,
        ),
        parameter(
            f"audit-{name}-truncate-max-batch-size",
            str(BATCH_SIZE),
            "Maximum size of a batch, B."
            if name == "webhook"
            else "Accepted for compatibility, without effect; at least the maximum size of an event.",
            _read_integer,
        ),
    ]


def _mode(name: str) -> Parameter:
    texts = {
        "log": "When events are written: batch (requests do not wait), blocking (a request waits until its "
        "first event is written or writing fails), blocking-strict (if writing fails, so does the request).",
        "webhook": "When events are posted: batch (requests do not wait), blocking (a request waits until "
        "its first event is posted or that fails), blocking-strict (if posting fails, so does the request).",
    }
    return parameter(f"audit-{name}-mode", BATCH, texts[name])


class AuditOptions(AuthorizationOptions):
    """Options of the audit."""

    optParameters: ClassVar[Sequence[Parameter]] = [
        parameter(
            "audit-policy-file",
            None,
            "File with the audit policy (audit.k8s.io/v1 Policy).  Read again when it changes.  [default: "
            "the metadata of all requests]",
            read_path,
        ),
        parameter("audit-log-path", None, "Audit log file, or - for standard output."),
        parameter("audit-log-format", "json", "Audit log format: json (audit.k8s.io/v1) or legacy."),
        parameter("audit-log-version", _VERSION, "API version of the events in the audit log."),
        _mode("log"),
        parameter(
            "audit-log-maxsize",
            "100",
            "Maximum size of an audit log file, MB; 0: no limit.",
            _read_integer,
        ),
        parameter("audit-log-maxbackup", "0", "Number of rotated audit logs to keep; 0: all.", _read_integer),
        parameter("audit-log-maxage", "0", "Days to keep rotated audit logs; 0: for ever.", _read_integer),
        *_truncation("log"),
        parameter(
            "audit-webhook-config-file",
            None,
            "File in kubeconfig format that describes the webhook of audit events.",
            read_path,
        ),
        parameter("audit-webhook-version", _VERSION, "API version of the events for the webhook."),
        _mode("webhook"),
        parameter(
            "audit-webhook-initial-backoff",
            "10s",
            "Delay after the first failure to post a batch.",
            read_duration,
        ),
        parameter(
            "audit-webhook-batch-buffer-size",
            "10000",
            "Maximum number of events that wait for the webhook; further ones are dropped.",
            _read_integer,
        ),
        parameter(
            "audit-webhook-batch-max-size", "400", "Maximum number of events in a batch.", _read_integer
        ),
        parameter(
            "audit-webhook-batch-max-wait",
            "30s",
            "Maximum time until a batch that is not full is posted.",
            _read_wait,
        ),
        parameter(
            "audit-webhook-batch-throttle-enable",
            "true",
            "Limit the number of batches per second: true or false.",
            read_boolean,
        ),
        parameter(
            "audit-webhook-batch-throttle-qps", "10", "Average number of batches per second.", _read_rate
        ),
        parameter(
            "audit-webhook-batch-throttle-burst",
            "15",
            "Maximum number of batches at once after a pause.",
            _read_integer,
        ),
        *_truncation("webhook"),
    ]
    optFlags: ClassVar[Sequence[tuple[str, None, str]]] = [
        flag("audit-log-truncate-enabled", "Limit the size of events in the audit log."),
        flag("audit-webhook-truncate-enabled", "Limit the size of events and batches for the webhook."),
    ]

    def check_rules(self) -> None:
        """See `EnvironmentOptions.check_rules`."""
        super().check_rules()
        if self["audit-log-path"]:
            for rule in (self._check_backend, self._check_truncation, self._check_version):
                self.check(rule, "log")
            self.check(self._check_format)
            for name in ("maxage", "maxbackup", "maxsize"):
                self.check(self._check_limit, f"audit-log-{name}")
        if self["audit-webhook-config-file"] is not None:
            for rule in (self._check_backend, self._check_truncation, self._check_version):
                self.check(rule, "webhook")
        if (
            self["audit-policy-file"] is not None
            and not self["audit-log-path"]
            and self["audit-webhook-config-file"] is None
        ):
            self.check(
                _fail,
                "--audit-policy-file has no effect without --audit-log-path or --audit-webhook-config-file: "
                "set one of them, or omit it",
            )

    def _check_backend(self, name: str) -> None:
        mode = self[f"audit-{name}-mode"]
        if mode not in MODES:
            _fail(f'invalid audit {name} mode {mode}, allowed modes are "{",".join(MODES)}"')
        if mode != BATCH or name == "log":
            return
        batch = "audit-webhook-batch"
        throttled = self[f"{batch}-throttle-enable"]
        for key, text in (("buffer-size", "buffer size"), ("max-size", "max batch size")):
            _positive(self[f"{batch}-{key}"], f"invalid audit batch {name} {text}")
        for key, text in (("throttle-qps", "throttle QPS"), ("throttle-burst", "throttle burst")):
            if throttled:
                _positive(self[f"{batch}-{key}"], f"invalid audit batch {name} {text}")

    def _check_truncation(self, name: str) -> None:
        event, batch = (self[f"audit-{name}-truncate-max-{each}-size"] for each in ("event", "batch"))
        _positive(event, f"invalid audit truncate {name} max event size")
        if batch < event:
            _fail(
                f"invalid audit truncate {name} max batch size {batch}, must be greater than max event size "
                f"({event})"
            )

    def _check_version(self, name: str) -> None:
        version: str = self[f"audit-{name}-version"]
        if version.count("/") > 1:
            _fail(f"unexpected GroupVersion string: {version}")
        if version != _VERSION:
            _fail(f'invalid group version, allowed versions are ["{_VERSION}"]')

    def _check_format(self) -> None:
        form = self["audit-log-format"]
        if form not in FORMATS:
            _fail(f'invalid audit log format {form}, allowed formats are "{",".join(FORMATS)}"')

    def _check_limit(self, name: str) -> None:
        value = self[name]
        if value < 0:
            _fail(f"--{name} {value} can't be a negative number")
        if name == "audit-log-maxsize" and value > _LARGEST_FILE:
            _fail(f"--{name} {value} is too large: give at most {_LARGEST_FILE} megabytes")


def _positive(value: float, text: str) -> None:
    if value <= 0:
        _fail(f"{text} {value:g}, must be a positive number")


def _fail(text: str) -> None:
    raise usage.UsageError(text)
