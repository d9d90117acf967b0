"""A stand-in for AWS in memory, with a provider that asks it."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from twisted.trial.unittest import SynchronousTestCase

from tests.cloud.asking import as_reactor, finish
from tests.cloud.pumped import PumpedClock
from tests.cloud.standins.aws import (
    AWS,
    CONNECT_PATH,
    EC2_PATH,
    KEY,
    REGION,
    SECRET,
    STS_PATH,
    Machine,
)
from tower.cloud.aws.config import read_aws_config
from tower.cloud.aws.provider import AWS as Provider
from tower.cloud.aws.provider import AWSInstances
from tower.cloud.config.text import ConfigText
from tower.cloud.gcfg import parse
from tower.cloud.session import CloudSession

T = TypeVar("T")

HOST = "http://aws.test"
ENVIRON = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}

A, B, C = "i-0a0a0a0a0a0a0a0a0", "i-0b0b0b0b0b0b0b0b0", "i-0c0c0c0c0c0c0c0c0"


def overrides(host: str = HOST) -> str:
    """Return the sections that lead to the stand-in at *host*."""
    places = {"ec2": EC2_PATH, "ec2-instance-connect": CONNECT_PATH, "sts": STS_PATH}
    return "".join(
        f'[ServiceOverride "{service}"]\nService = {service}\nRegion = {REGION}\n'
        f"URL = {host}{path}\nSigningRegion = {REGION}\n"
        for service, path in places.items()
    )


def config(text: str = "KubernetesClusterID = beta", *, region: str = REGION, host: str = HOST) -> str:
    """Return a configuration with *text* in its first section."""
    named = f"Region = {region}\n" if region else ""
    return f"[global]\n{named}MetadataURL = {host}\n{text}\n{overrides(host)}"


def public_key(kind: str = "ssh-ed25519", length: int = 32, fill: int = 7) -> bytes:
    """Return the line of a valid key without a private half."""
    body = bytes((fill,)) * length
    blob = len(kind).to_bytes(4, "big") + kind.encode() + len(body).to_bytes(4, "big") + body
    return f"{kind} {b64encode(blob).decode()} tower@proxy\n".encode()


class AWSTestCase(SynchronousTestCase):
    """Three instances: one with everything, one with less, one that is stopped.

    :cvar make_clock: makes the clock of all.
    """

    make_clock: Callable[[], PumpedClock] = PumpedClock

    def setUp(self) -> None:
        """Start them."""
        self.clock = type(self).make_clock()
        self.keys: list[tuple[str, str]] = []
        self.aws = AWS(
            self.clock,
            on_key=lambda user, line: self.keys.append((user, line)),
            on_key_gone=lambda user, line: self.keys.remove((user, line)),
        )
        self.aws.machines = [
            Machine(A, "10.0.0.1", "203.0.113.1", "2001:db8::1", "10.0.0.101"),
            Machine(B, "10.0.0.2", zone="us-east-1b", type="t3.small"),
            Machine(C, "10.0.0.3", state="stopped"),
        ]
        self.agent = self.clock.ask(self.aws.resource)

    def provider(
        self,
        text: str = "KubernetesClusterID = beta",
        environ: Mapping[str, str] = ENVIRON,
        *,
        region: str = REGION,
        time_of_day: Any = None,
    ) -> Provider:
        """Return a provider with *text* in its configuration."""
        sections = parse(ConfigText("aws.conf", config(text, region=region)))
        provider = Provider(
            read_aws_config(sections),
            environ=environ,
            ask=self.session,
            time_of_day=time_of_day or self.clock,
        )
        provider.initialize(as_reactor(self.clock))
        self.addCleanup(provider.stop)
        return provider

    def instances(
        self,
        text: str = "KubernetesClusterID = beta",
        environ: Mapping[str, str] = ENVIRON,
        *,
        region: str = REGION,
    ) -> AWSInstances:
        """Return the instances of such a provider."""
        return self.provider(text, environ, region=region).instances()

    def zones(self, text: str = "KubernetesClusterID = beta") -> AWSInstances:
        """Return the zones of such a provider."""
        return self.provider(text).zones()

    def session(self, reactor: Any) -> CloudSession:
        """Return what asks the stand-in."""
        return CloudSession(reactor, agent=self.agent, now=self.clock.seconds)

    def finish(self, work: Awaitable[T], limit: float = 600.0) -> T:
        """Return the result of *work*."""
        return finish(self.clock, work, limit)
