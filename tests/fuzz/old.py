"""Targets in an old agent's messages: its config, and any global request as its first."""

from __future__ import annotations

import json
import random

from tests.fakes.v1_pairs import GOOD, TOKEN, OldPair
from tests.fuzz.engine import Broken, Target
from tower.conch.transport.fields import Malformed
from tower.v1.config import LONGEST_CONFIG, AgentConfig

_SECRETS = (TOKEN, "bearer-of-alpha")

_FULL = AgentConfig("v0.2.1", "alpha", TOKEN, "[::1]:6443", "ks", b"ca", b"certificate", b"key", b"bearer")
_CONFIGS = (
    GOOD.encode(),
    _FULL.encode(),
    json.dumps({key.upper(): value for key, value in json.loads(GOOD.encode()).items()}).encode(),
    b'{"Name":"alpha","CertData":null,"unknown":{"a":[1,2]},"KeyData":""}',
    b'{"name":"alpha","NAME":"beta"}',
)
_WORDS = (b"null", b"[]", b"{}", b'"', b"\\ud800", b"====", b"[" * 500, b'"CertData":"', b"\\n", b"\xff")


def check_config(data: bytes, chance: random.Random) -> None:
    """A config is read or refused; one that was read is written as something that reads as the same."""
    try:
        config = AgentConfig.decode(data)
    except Malformed as e:
        if any(secret in str(e) for secret in _SECRETS):
            raise Broken(f"the refusal {e} shows a secret") from e
        return
    if any(secret in repr(config) for secret in _SECRETS if secret not in config.name):
        shown = (config.version, config.name, config.kubernetes, config.kubesphere)
        if not any(secret in text for secret in _SECRETS for text in shown):
            raise Broken(f"{config!r} shows a secret")
    again = config.encode()
    if len(again) <= LONGEST_CONFIG and AgentConfig.decode(again) != config:
        raise Broken(f"{config} is not what was written")


def check_registration(data: bytes, chance: random.Random) -> None:
    """Any config is answered once: with nothing, or with a text and then the end."""
    pair = OldPair()
    pair.connect()
    answers: list[object] = []
    pair.client.request(b"config", data).addBoth(answers.append)
    pair.pump()
    if len(answers) != 1:
        raise Broken(f"{len(answers)} answers to a config")
    reply = getattr(getattr(answers[0], "value", None), "reply", None)
    if answers[0] != b"" and not reply:
        raise Broken(f"an agent of kubesphere-v1 takes {answers[0]!r} for a success")
    if reply and len(pair.lost) < 2:
        raise Broken("an agent that was refused stays")
    if not reply and pair.lost:
        raise Broken(f"an accepted agent was disconnected: {pair.lost}")


TARGETS = (
    Target("old-config", _CONFIGS, _WORDS, check_config),
    Target("old-registration", _CONFIGS, _WORDS, check_registration),
)
