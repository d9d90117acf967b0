"""A change that each validation rule of the CRDs rejects, and one that it accepts."""

from __future__ import annotations

from typing import Any

from attrs import frozen


@frozen
class RuleCase:
    """A case of one rule.

    :ivar plural: of the objects' kind.
    :ivar message: of the rule.
    :ivar before: the spec of the object that is changed.
    :ivar bad: merge patch of the spec, which the rule rejects.
    :ivar good: merge patch of the spec, which is accepted.
    """

    plural: str
    message: str
    before: dict[str, Any]
    bad: dict[str, Any]
    good: dict[str, Any]


_SSH = {"user": "core", "keyFile": "id", "hostKeys": "accept-new", "nodes": ["192.0.2.1:22"]}
_DIGEST, _OTHER = "0" * 64, "1" * 64
_TYPE = "type cannot be changed from or to ssh: remove and add the cluster"
_SETTINGS = "ssh is required for type ssh, and not allowed for others"

RULE_CASES = (
    RuleCase(
        "clusters",
        _TYPE,
        {"connection": {"type": "proxy"}},
        {"connection": {"type": "ssh", "ssh": _SSH}},
        {"connection": {"type": "direct"}},
    ),
    RuleCase(
        "clusters",
        _TYPE,
        {"connection": {"type": "ssh", "ssh": _SSH}},
        {"connection": {"type": "proxy", "ssh": None}},
        {"connection": {"type": "ssh"}},
    ),
    RuleCase(
        "clusters",
        _SETTINGS,
        {"connection": {"type": "proxy"}},
        {"connection": {"ssh": _SSH}},
        {"connection": {"token": "a-token"}},
    ),
    RuleCase(
        "clusters",
        _SETTINGS,
        {"connection": {"type": "ssh", "ssh": _SSH}},
        {"connection": {"ssh": None}},
        {"connection": {"ssh": {"user": "admin"}}},
    ),
    RuleCase(
        "agentkeys",
        "fingerprint cannot be changed: enroll another key",
        {"cluster": "alpha", "fingerprint": "SHA256:first", "connected": False},
        {"fingerprint": "SHA256:second"},
        {"connected": True},
    ),
    RuleCase(
        "credentials",
        "digest cannot be changed: issue another credential",
        {"cluster": "alpha", "user": "jane", "digest": _DIGEST, "ended": False},
        {"digest": _OTHER},
        {"ended": True},
    ),
    RuleCase(
        "credentials",
        "user cannot be changed: issue another credential",
        {"cluster": "alpha", "user": "jane", "digest": _DIGEST, "ended": False},
        {"user": "admin"},
        {"ended": True},
    ),
    RuleCase(
        "loginsessions",
        "key cannot be changed: log in again",
        {"user": "jane", "key": "QUFB", "groups": ["dev"]},
        {"key": "QkJC"},
        {"groups": ["ops"]},
    ),
    RuleCase(
        "loginsessions",
        "user cannot be changed: log in again",
        {"user": "jane", "key": "QUFB", "groups": ["dev"]},
        {"user": "joe"},
        {"groups": []},
    ),
    RuleCase(
        "v1tokens",
        "digest cannot be changed: create another token",
        {"cluster": "alpha", "digest": _DIGEST},
        {"digest": _OTHER},
        {"cluster": "beta"},
    ),
    RuleCase(
        "transactions",
        "a transaction cannot be changed",
        {"data": "Zmlyc3Q="},
        {"data": "c2Vjb25k"},
        {"data": "Zmlyc3Q="},
    ),
)
