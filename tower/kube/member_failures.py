"""Reasons why a member's API server is not usable, as checks with the cause and the cure.  No I/O."""

from __future__ import annotations

from attrs import evolve
from twisted.internet import defer

from tower.durations import describe_offset
from tower.errors import ClusterUnreachable, ConfigurationError, StreamRefused, TunnelLost
from tower.kube.client import APIError
from tower.kube.member_cures import LARGE_OFFSET, MemberTexts, found, is_about_clock
from tower.kube.member_status import API_SERVER, TIMEOUT, UNCHECKED, Check, MemberStatus
from tower.net.connecting import ConnectFailed

#: Reason and statement for the kinds of `ConnectFailed` and the codes of `StreamRefused`.
_KINDS = {
    "refused": ("ConnectionRefused", "refuses connections"),
    "unreachable": ("Unreachable", "cannot be reached"),
    "name": ("NameNotResolved", "has a name that cannot be resolved"),
}

#: Parts of OpenSSL's texts, with reason and statement; the first that matches counts.
_CERTIFICATES = (
    (("expired",), "CertificateExpired", "has an expired certificate"),
    (("not yet valid",), "CertificateNotYetValid", "has a certificate that is not yet valid"),
    (("mismatch",), "CertificateWrongName", "has a certificate for another name"),
    (
        ("self-signed", "self signed", "issuer", "unable to verify", "signature failure", "invalid CA"),
        "CertificateUntrusted",
        "has a certificate of a CA that is not trusted",
    ),
)

#: Changes of the clock offset that are not reported, s.
_STEADY = 30.0
_AT_THRESHOLD = {"Reachable", "ClockSkew"}


def skewed(server: str, offset: float, texts: MemberTexts) -> Check:
    """Return the check of an API server that answers, with a large difference of the clocks."""
    text = f"API server {server} answers, but {compared(offset, texts)}"
    return found(API_SERVER, "ClockSkew", text, texts)


def compared(offset: float, texts: MemberTexts) -> str:
    """Return the difference of the clocks."""
    return f"the clock of {texts.checker} is {describe_offset(offset)} that of the API server"


def unreached(error: APIError, server: str, texts: MemberTexts) -> Check:
    """Return the check of *server*, which did not answer."""
    cause = error.cause
    if isinstance(cause, TunnelLost | ClusterUnreachable):
        return UNCHECKED
    if isinstance(cause, ConfigurationError):
        return found(API_SERVER, "NotChecked", str(cause), texts)
    kind, detail = "", error.message
    if isinstance(cause, ConnectFailed):
        kind = cause.kind
    elif isinstance(cause, StreamRefused):
        kind, detail = cause.code, cause.reported_by(texts.peer)
    if kind == "timeout" or isinstance(cause, defer.TimeoutError):
        return late(server, texts)
    if kind in _KINDS:
        reason, statement = _KINDS[kind]
        return found(API_SERVER, reason, f"API server {server} {statement}", texts)
    if kind == "tls":
        return _insecure(server, detail, texts)
    if kind == "busy":
        text = f"{texts.checker} could not check API server {server} ({detail})"
        return found(API_SERVER, "CheckFailed", text, texts)
    text = f"API server {server} did not answer ({detail})"
    return found(API_SERVER, "ConnectionLost", text, texts)


def late(server: str, texts: MemberTexts) -> Check:
    """Return the check of *server*, which did not answer in time."""
    text = f"API server {server} did not answer {texts.checker} in time"
    return found(API_SERVER, TIMEOUT, text, texts)


def slow(server: str, texts: MemberTexts) -> Check:
    """Return the check of *server*, which answered, but too slowly for all checks."""
    text = f"API server {server} answers so slowly that {texts.checker} could not finish its checks in time"
    return found(API_SERVER, "Slow", text, texts)


def _insecure(server: str, detail: str, texts: MemberTexts) -> Check:
    for parts, reason, statement in _CERTIFICATES:
        if any(part in detail for part in parts):
            return found(API_SERVER, reason, f"API server {server} {statement} ({detail})", texts)
    return found(API_SERVER, "TLSFailed", f"no TLS with API server {server} ({detail})", texts)


def misdated(check: Check, offset: float | None, server: str, texts: MemberTexts) -> Check:
    """Return *check*, see `is_about_dates`, with the clock as the cause if *offset* is large."""
    if offset is None or abs(offset) < LARGE_OFFSET:
        return check
    state = "expired" if check.reason == "CertificateExpired" else "not yet valid"
    text = (
        f"the certificate of API server {server} is {state} by the clock of {texts.checker}, which is "
        f"{describe_offset(offset)} that of the API server"
    )
    return found(API_SERVER, check.reason, text, texts, offset=offset)


def steady(before: MemberStatus | None, now: MemberStatus) -> MemberStatus:
    """Return *now* without jitter of the clock; an unknown version does not replace a known one."""
    if before is None:
        return now
    now = evolve(now, version=now.version or before.version)
    old, new = before.clock_offset, now.clock_offset
    if old is None or new is None or abs(old - new) > _STEADY:
        return now
    reasons = {before.api_server.reason, now.api_server.reason}
    if reasons == _AT_THRESHOLD or (len(reasons) == 1 and is_about_clock(now.api_server)):
        return evolve(now, clock_offset=old, api_server=before.api_server)
    return evolve(now, clock_offset=old)
