"""Small stand-ins of EC2, EC2 Instance Connect, the Security Token Service and the metadata service.

They reject what AWS documents: signatures that are wrong, of another time, region or service, or of expired
credentials; invalid pages and filters; keys and users that Instance Connect does not accept; too many
requests a second; metadata without a session token.  Keys on instances expire.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from itertools import count
from time import gmtime, strftime
from typing import Any
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

from attrs import define, field
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from tests.cloud.standins.awssignature import SKEW, Claim, canonical, claim_of, is_signed
from tests.cloud.standins.rest import Ask, Refusal, Reply, RestResource

REGION = "us-east-1"
ZONE = "us-east-1a"
KEY, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
ROLE = "tower-proxy"
OTHER_ROLE = "arn:aws:iam::123456789012:role/tower-keys"
IDENTITY = "eyJhbGciOiJSUzI1NiJ9.web-identity.token"
CONTAINER_TOKEN = "Bearer-of-the-container"

EC2_PATH, CONNECT_PATH, STS_PATH = "/ec2/", "/ec2-instance-connect/", "/sts/"
VERSIONS = {"ec2": "2016-11-15", "sts": "2011-06-15"}
LONGEST_SESSION = 21600
LARGEST_PAGE = 1000
THROTTLED = "ThrottlingException"

_FILTERS = {"tag-key", "vpc-id", "subnet-id", "instance-state-name", "private-dns-name", "instance-type"}


@define
class Credentials:
    """One access key.

    :ivar expires: s since the epoch; None: never.
    """

    secret: str
    token: str = ""
    expires: float | None = None


@define
class Machine:
    """An instance."""

    id: str
    private: str = "10.0.0.10"
    public: str = ""
    ipv6: str = ""
    second: str = ""
    pods: int = 0
    zone: str = ZONE
    state: str = "running"
    type: str = "m5.large"
    platform: str = ""
    vpc: str = "vpc-1"
    subnet: str = "subnet-1"
    tags: dict[str, str] = field(factory=lambda: {"kubernetes.io/cluster/beta": "owned"})

    @property
    def dns(self) -> str:
        """Its private name."""
        return f"ip-{self.private.replace('.', '-')}.ec2.internal" if self.private else ""

    def passes(self, name: str, values: list[str]) -> bool:
        """Return whether it matches a filter."""
        if name.startswith("tag:"):
            return self.tags.get(name[4:]) in values
        if name == "tag-key":
            return bool(set(values) & set(self.tags))
        own = {
            "vpc-id": self.vpc,
            "subnet-id": self.subnet,
            "instance-state-name": self.state,
            "private-dns-name": self.dns,
            "instance-type": self.type,
        }
        return own[name] in values

    def render(self) -> str:
        """Return it as DescribeInstances shows it."""
        at_home = f"<privateIpAddress>{self.private}</privateIpAddress>"
        seen = f"<association><publicIp>{self.public}</publicIp></association>" if self.public else ""
        more = f"<item><privateIpAddress>{self.second}</privateIpAddress></item>" if self.second else ""
        more += "".join(
            f"<item><privateIpAddress>{each}</privateIpAddress><privateDnsName>ip-{each.replace('.', '-')}"
            ".ec2.internal</privateDnsName><primary>false</primary></item>"
            for each in (f"100.64.{number // 256}.{number % 256}" for number in range(self.pods))
        )
        six = f"<item><ipv6Address>{self.ipv6}</ipv6Address></item>" if self.ipv6 else ""
        tags = "".join(
            f"<item><key>{escape(key)}</key><value>{escape(value)}</value></item>"
            for key, value in self.tags.items()
        )
        return (
            "<item><reservationId>r-1</reservationId><instancesSet><item>"
            f"<instanceId>{self.id}</instanceId><instanceState><code>16</code><name>{self.state}</name></instanceState>"
            f"<privateDnsName>{self.dns}</privateDnsName><dnsName>{self._public_dns}</dnsName>"
            f"<instanceType>{self.type}</instanceType>"
            f"<placement><availabilityZone>{self.zone}</availabilityZone></placement>"
            f"{'<platform>' + self.platform + '</platform>' if self.platform else ''}"
            f"<subnetId>{self.subnet}</subnetId><vpcId>{self.vpc}</vpcId>{at_home}"
            f"{'<ipAddress>' + self.public + '</ipAddress>' if self.public else ''}<tagSet>{tags}</tagSet>"
            "<networkInterfaceSet><item><attachment><deviceIndex>0</deviceIndex></attachment>"
            f"<privateIpAddressesSet><item>{at_home}<primary>true</primary>{seen}</item>{more}</privateIpAddressesSet>"
            f"<ipv6AddressesSet>{six}</ipv6AddressesSet></item></networkInterfaceSet>"
            "</item></instancesSet></item>"
        )

    @property
    def _public_dns(self) -> str:
        return f"ec2-{self.public.replace('.', '-')}.compute-1.amazonaws.com" if self.public else ""


class AWS:
    """One account and region, all services at one address.

    :param clock: its ``seconds()`` count from the epoch; ends what has a life.
    :param on_key: is called with ``user, line`` when a key is handed to an instance.
    :param on_key_gone: likewise when its life there is over.
    :ivar key_life: of keys on instances, s.
    :ivar page_size: no page is larger.
    :ivar rate: requests that Instance Connect takes each second; 0: any number.
    :ivar denied: actions without permission.
    :ivar external_id: required by the role's owner; empty: none.
    :ivar pushed: ``instance, user, line`` of each key that was handed out.
    """

    def __init__(
        self,
        clock: IReactorTime,
        *,
        on_key: Callable[[str, str], None] = lambda user, line: None,
        on_key_gone: Callable[[str, str], None] = lambda user, line: None,
    ) -> None:
        self._clock = clock
        self._on_key = on_key
        self._on_key_gone = on_key_gone
        self.machines: list[Machine] = []
        self.credentials: dict[str, Credentials] = {KEY: Credentials(SECRET)}
        self.key_life = 60.0
        self.credentials_life = 3600.0
        self.page_size = LARGEST_PAGE
        self.rate = 0
        self.denied: set[str] = set()
        self.external_id = ""
        self.metadata: dict[str, str] = {
            "placement/region": REGION,
            "placement/availability-zone": ZONE,
            "local-hostname": "ip-10-0-0-99.ec2.internal",
        }
        self.pushed: list[tuple[str, str, str]] = []
        self._ends: list[IDelayedCall] = []
        self._given: list[tuple[str, str, str, float]] = []
        self.sessions: dict[str, float] = {}
        self._recent: list[float] = []
        self._numbers = count(1)
        self._pages: dict[str, tuple[int, dict[str, str]]] = {}
        self.resource = RestResource(self._answer, clock.seconds)

    def machine(self, instance_id: str) -> Machine:
        """Return the machine of that id."""
        return next(machine for machine in self.machines if machine.id == instance_id)

    def keys(self, instance_id: str, user: str) -> list[str]:
        """Return the keys that an instance lets *user* in with at this moment."""
        now = self._clock.seconds()
        self._given = [each for each in self._given if each[3] > now]
        found = [line for name, whose, line, _ in self._given if (name, whose) == (instance_id, user)]
        return list(dict.fromkeys(found))

    def stop(self) -> None:
        """Cancel the timers of keys."""
        for each in self._ends:
            if each.active():
                each.cancel()

    def give_role(self) -> None:
        """Give the instance that asks a role."""
        self.metadata["iam/security-credentials/"] = ROLE

    def issue(self) -> tuple[str, Credentials]:
        """Return new credentials that end."""
        number = next(self._numbers)
        expires = self._clock.seconds() + self.credentials_life
        made = Credentials(f"secret-of-session-{number}", f"token-of-session-{number}", expires)
        self.credentials[f"ASIAEXAMPLE{number}"] = made
        return f"ASIAEXAMPLE{number}", made

    def _answer(self, ask: Ask) -> Reply:
        for path, service, answer in (
            (EC2_PATH, "ec2", self._ec2),
            (CONNECT_PATH, "ec2-instance-connect", self._connect),
            (STS_PATH, "sts", self._sts),
        ):
            if ask.path == path:
                refuse = _refuse_json if service == "ec2-instance-connect" else _refuse_xml
                if ask.method != "POST":
                    raise refuse(405, "InvalidAction", "only POST")
                return answer(ask)
        if ask.path.startswith("/latest/"):
            return self._metadata(ask)
        if ask.path == "/credentials":
            if ask.headers.get("authorization") != CONTAINER_TOKEN:
                raise Refusal(Reply(401))
            return Reply(200, self._issued())
        raise Refusal(Reply(404))

    # Authentication

    def _authenticate(self, ask: Ask, service: str, refuse: Callable[[int, str, str], Refusal]) -> Claim:
        is_json = refuse is _refuse_json
        claim = claim_of(ask)
        if claim is None:
            code = "MissingAuthenticationTokenException" if is_json else "AuthFailure"
            raise refuse(400 if is_json else 401, code, "the request is not signed")
        known = self.credentials.get(claim.key)
        if known is None:
            code = {"ec2": "AuthFailure", "sts": "InvalidClientTokenId"}.get(
                service, "UnrecognizedClientException"
            )
            raise refuse(
                400 if is_json else 401, code, "The security token included in the request is invalid."
            )
        wrong = "InvalidSignatureException" if is_json else "SignatureDoesNotMatch"
        if (claim.region, claim.service) != (REGION, service):
            raise refuse(403, wrong, f"Credential should be scoped to a valid region, not '{claim.region}'.")
        if abs(claim.when - self._clock.seconds()) > SKEW:
            raise refuse(403, wrong, f"Signature expired: {claim.stamp} is now earlier than the present")
        if (
            not is_signed(ask, claim, known.secret)
            or ask.headers.get("x-amz-security-token", "") != known.token
        ):
            quoted = canonical(ask, claim.signed)
            raise refuse(403, wrong, f"The Canonical String for this request should have been '{quoted}'")
        if known.expires is not None and known.expires <= self._clock.seconds():
            code = {"ec2": "RequestExpired", "sts": "ExpiredToken"}.get(service, "ExpiredTokenException")
            raise refuse(400, code, "The security token included in the request is expired")
        return claim

    def _form(self, ask: Ask, service: str) -> dict[str, str]:
        kind = ask.headers.get("content-type", "").partition(";")[0]
        if kind != "application/x-www-form-urlencoded":
            raise _refuse_xml(400, "MissingAction", "no form")
        form = {
            name: values[-1] for name, values in parse_qs(ask.body.decode(), keep_blank_values=True).items()
        }
        if form.get("Version") != VERSIONS[service]:
            raise _refuse_xml(
                400, "NoSuchVersion", f"The requested version ({form.get('Version')}) is not valid."
            )
        return form

    def _allow(self, action: str, refuse: Callable[[int, str, str], Refusal], code: str) -> None:
        if action in self.denied:
            raise refuse(403, code, f"You are not authorized to perform this operation: {action}")

    # EC2

    def _ec2(self, ask: Ask) -> Reply:
        self._authenticate(ask, "ec2", _refuse_xml)
        form = self._form(ask, "ec2")
        if form.get("Action") != "DescribeInstances":
            raise _refuse_xml(400, "InvalidAction", f"The action {form.get('Action')} is not valid")
        self._allow("DescribeInstances", _refuse_xml, "UnauthorizedOperation")
        wanted = [value for name, value in form.items() if re.fullmatch(r"InstanceId\.\d+", name)]
        if wanted and ("MaxResults" in form or "NextToken" in form):
            raise _refuse_xml(400, "InvalidParameterCombination", "MaxResults goes with no instance ids")
        for each in wanted:
            if not re.fullmatch(r"i-[0-9a-f]{8}(?:[0-9a-f]{9})?", each):
                raise _refuse_xml(400, "InvalidInstanceID.Malformed", f'Invalid id: "{each}"')
            if each not in {machine.id for machine in self.machines}:
                raise _refuse_xml(
                    400, "InvalidInstanceID.NotFound", f"The instance ID '{each}' does not exist"
                )
        found = [machine for machine in self.machines if not wanted or machine.id in wanted]
        for name, values in _filters(form):
            if name not in _FILTERS and not name.startswith("tag:"):
                raise _refuse_xml(400, "InvalidParameterValue", f"The filter '{name}' is invalid")
            found = [machine for machine in found if machine.passes(name, values)]
        return self._page(form, found)

    def _page(self, form: dict[str, str], found: list[Machine]) -> Reply:
        most = form.get("MaxResults", str(LARGEST_PAGE))
        if not most.isdecimal() or not 5 <= int(most) <= LARGEST_PAGE:
            raise _refuse_xml(
                400, "InvalidParameterValue", f"Value ( {most} ) for parameter maxResults is invalid."
            )
        asked = {name: value for name, value in form.items() if name != "NextToken"}
        start = 0
        if "NextToken" in form:
            start, before = self._pages.get(form["NextToken"], (0, {}))
            if before != asked:
                raise _refuse_xml(400, "InvalidNextToken", "The token is not valid for this request")
        end = start + min(int(most), self.page_size)
        token = ""
        if end < len(found):
            token = f"page/{next(self._numbers)}+=&"
            self._pages[token] = (end, asked)
        said = "".join(machine.render() for machine in found[start:end])
        after = f"<nextToken>{escape(token)}</nextToken>" if token else ""
        return Reply(
            200,
            f'<?xml version="1.0" encoding="UTF-8"?>\n<DescribeInstancesResponse '
            f'xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>{next(self._numbers)}</requestId>'
            f"<reservationSet>{said}</reservationSet>{after}</DescribeInstancesResponse>".encode(),
            {"Content-Type": "text/xml;charset=UTF-8"},
        )

    # EC2 Instance Connect

    def _connect(self, ask: Ask) -> Reply:
        self._authenticate(ask, "ec2-instance-connect", _refuse_json)
        if ask.headers.get("content-type") != "application/x-amz-json-1.1":
            raise _refuse_json(404, "UnknownOperationException", "")
        if ask.headers.get("x-amz-target") != "AWSEC2InstanceConnectService.SendSSHPublicKey":
            raise _refuse_json(400, "UnknownOperationException", "")
        self._allow("SendSSHPublicKey", _refuse_json, "AccessDeniedException")
        self._throttle()
        said = json.loads(ask.body)
        machine = self._target(said)
        user, line = str(said.get("InstanceOSUser")), str(said.get("SSHPublicKey"))
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9@._-]{0,30}[A-Za-z0-9$_-]?", user):
            raise _refuse_json(400, "InvalidArgsException", "InstanceOSUser is not valid")
        if not 80 <= len(line) <= 4096 or not _is_key(line):
            raise _refuse_json(400, "InvalidArgsException", "SSHPublicKey is not valid")
        self.pushed.append((machine.id, user, line))
        self._given.append((machine.id, user, line, self._clock.seconds() + self.key_life))
        self._on_key(user, line)
        self._ends = [each for each in self._ends if each.active()]
        self._ends.append(self._clock.callLater(self.key_life, self._on_key_gone, user, line))
        return Reply(200, {"RequestId": str(next(self._numbers)), "Success": True})

    def _target(self, said: dict[str, Any]) -> Machine:
        name, zone = str(said.get("InstanceId")), said.get("AvailabilityZone")
        if not re.fullmatch(r"i-[a-f0-9]{8,30}", name):
            raise _refuse_json(400, "InvalidArgsException", "InstanceId is not valid")
        if zone is not None and not re.fullmatch(r"(\w+-){2,3}\d+\w+", str(zone)):
            raise _refuse_json(400, "InvalidArgsException", "AvailabilityZone is not valid")
        for machine in self.machines:
            if machine.id == name and zone in (None, machine.zone):
                if machine.state != "running":
                    raise _refuse_json(400, "EC2InstanceStateInvalidException", "The instance is not running")
                return machine
        raise _refuse_json(400, "EC2InstanceNotFoundException", "The instance was not found")

    def _throttle(self) -> None:
        now = self._clock.seconds()
        self._recent = [when for when in self._recent if now - when < 1.0]
        if self.rate and len(self._recent) >= self.rate:
            raise _refuse_json(400, THROTTLED, "The requests were made too frequently")
        self._recent.append(now)

    # Credentials

    def _sts(self, ask: Ask) -> Reply:
        form = self._form(ask, "sts")
        action = form.get("Action", "")
        if action == "AssumeRoleWithWebIdentity":
            if form.get("WebIdentityToken") != IDENTITY:
                raise _refuse_xml(
                    400, "InvalidIdentityToken", f"no such token: {form.get('WebIdentityToken')}"
                )
        elif action == "AssumeRole":
            self._authenticate(ask, "sts", _refuse_xml)
            self._allow("AssumeRole", _refuse_xml, "AccessDenied")
            if form.get("ExternalId", "") != self.external_id:
                raise _refuse_xml(403, "AccessDenied", "not authorized to perform: sts:AssumeRole")
            if not 900 <= int(form.get("DurationSeconds", "3600")) <= 43200:
                raise _refuse_xml(400, "ValidationError", "DurationSeconds")
        else:
            raise _refuse_xml(400, "InvalidAction", action)
        if form.get("RoleArn") != OTHER_ROLE or not re.fullmatch(
            r"[\w+=,.@-]{2,64}", form["RoleSessionName"]
        ):
            raise _refuse_xml(403, "AccessDenied", "not authorized to perform: sts:AssumeRole")
        key, made = self.issue()
        return Reply(
            200,
            f'<{action}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><{action}Result><Credentials>'
            f"<AccessKeyId>{key}</AccessKeyId><SecretAccessKey>{made.secret}</SecretAccessKey>"
            f"<SessionToken>{made.token}</SessionToken><Expiration>{_iso(made.expires)}</Expiration>"
            f"</Credentials></{action}Result></{action}Response>".encode(),
            {"Content-Type": "text/xml"},
        )

    def _issued(self) -> dict[str, str]:
        key, made = self.issue()
        return {
            "Code": "Success",
            "LastUpdated": _iso(self._clock.seconds()),
            "Type": "AWS-HMAC",
            "AccessKeyId": key,
            "SecretAccessKey": made.secret,
            "Token": made.token,
            "Expiration": _iso(made.expires),
        }

    def _metadata(self, ask: Ask) -> Reply:
        if ask.path == "/latest/api/token":
            life = ask.headers.get("x-aws-ec2-metadata-token-ttl-seconds", "")
            if ask.method != "PUT":
                raise Refusal(Reply(405))
            if not life.isdecimal() or not 1 <= int(life) <= LONGEST_SESSION:
                raise Refusal(Reply(400))
            if "x-forwarded-for" in ask.headers:
                raise Refusal(Reply(403))
            token = f"metadata-session-{next(self._numbers)}"
            self.sessions[token] = self._clock.seconds() + int(life)
            return Reply(200, token.encode())
        ends = self.sessions.get(ask.headers.get("x-aws-ec2-metadata-token", ""), 0.0)
        if ends <= self._clock.seconds():
            raise Refusal(Reply(401))
        path = ask.path.removeprefix("/latest/meta-data/")
        role = self.metadata.get("iam/security-credentials/", "")
        if role and path == f"iam/security-credentials/{role}":
            return Reply(200, json.dumps(self._issued()).encode(), {"Content-Type": "text/plain"})
        if path not in self.metadata:
            raise Refusal(Reply(404))
        return Reply(200, self.metadata[path].encode(), {"Content-Type": "text/plain"})


def _filters(form: dict[str, str]) -> list[tuple[str, list[str]]]:
    found = []
    for name, value in form.items():
        if match := re.fullmatch(r"Filter\.(\d+)\.Name", name):
            prefix = f"Filter.{match[1]}.Value."
            found.append((value, [given for key, given in form.items() if key.startswith(prefix)]))
    return found


def _is_key(line: str) -> bool:
    kind, _, text = line.partition(" ")
    try:
        blob = base64.b64decode(text.split()[0], validate=True)
    except (ValueError, IndexError):
        return False
    return kind in ("ssh-rsa", "ssh-ed25519") and blob[4 : 4 + len(kind)] == kind.encode()


def _iso(when: float | None) -> str:
    return strftime("%Y-%m-%dT%H:%M:%SZ", gmtime(when))


def _refuse_xml(code: int, name: str, message: str) -> Refusal:
    body = (
        f"<Response><Errors><Error><Code>{name}</Code><Message>{escape(message)}</Message></Error></Errors>"
        "<RequestID>0</RequestID></Response>"
    )
    return Refusal(Reply(code, body.encode(), {"Content-Type": "text/xml;charset=UTF-8"}))


def _refuse_json(code: int, name: str, message: str) -> Refusal:
    body = {"__type": f"com.amazonaws.ec2instanceconnect#{name}", "Message": message}
    return Refusal(Reply(code, json.dumps(body).encode(), {"Content-Type": "application/x-amz-json-1.1"}))
