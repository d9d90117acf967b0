"""Small stand-ins of Compute Engine's REST API, its metadata service and its token services.

They reject what Google documents: unknown and expired tokens, metadata requests without its header, metadata
with a stale fingerprint (412), too long values, invalid page sizes and page tokens, assertions with a wrong
signature, audience or time.  Changes take time: an operation starts, and takes effect at its end.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from email.utils import formatdate
from itertools import count
from typing import Any
from urllib.parse import parse_qs

from attrs import define, field
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256

from tests.cloud.standins.fieldmask import masked, parse_mask
from tests.cloud.standins.rest import Ask, Refusal, Reply, RestResource

PROJECT = "demo-project"
NUMBER = 123456789012  # the project's
LARGEST_VALUE = 256 << 10  # B, of one metadata item
LARGEST_METADATA = 512 << 10  # B, of all of them
LARGEST_PAGE = 500
SCOPES = {
    "https://www.googleapis.com/auth/cloud-platform",
    "https://www.googleapis.com/auth/compute",
}
IDENTITY = "eyJhbGciOiJSUzI1NiJ9.of-somebody-else.s1gnature"
POOL = "//iam.googleapis.com/projects/42/locations/global/workloadIdentityPools/p/providers/q"
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
ACCOUNT = "tower@demo-project.iam.gserviceaccount.com"

Items = dict[str, str]


def error(code: int, reason: str, message: str, **headers: str) -> Reply:
    """Return an error as Compute Engine words them."""
    errors = [{"message": message, "domain": "global", "reason": reason}]
    body = {"error": {"code": code, "message": message, "errors": errors}}
    return Reply(code, body, {name.replace("_", "-"): value for name, value in headers.items()})


RATE_LIMIT = error(403, "rateLimitExceeded", "Rate Limit Exceeded", Retry_After="3")
BUSY = error(503, "backendError", "Backend Error")


@define
class Metadata:
    """Metadata of the project or of an instance."""

    items: Items = field(factory=dict)
    _changes: int = 0

    @property
    def fingerprint(self) -> str:
        """A hash that is another one after each change."""
        text = json.dumps([self._changes, sorted(self.items.items())])
        return base64.b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode()

    def replace(self, items: Items) -> None:
        """Replace the items."""
        self.items = items
        self._changes += 1

    def render(self) -> dict[str, Any]:
        """Return it as the API shows it."""
        shown: dict[str, Any] = {"kind": "compute#metadata", "fingerprint": self.fingerprint}
        if self.items:
            shown["items"] = [{"key": key, "value": value} for key, value in self.items.items()]
        return shown


@define
class Machine:
    """An instance.

    :ivar backend: its address in another network, ``backend``.
    """

    name: str
    zone: str = "europe-west1-b"
    internal: str = "10.0.0.2"
    external: str = ""
    ipv6: str = ""
    backend: str = ""
    tags: tuple[str, ...] = ()
    status: str = "RUNNING"
    type: str = "e2-small"
    metadata: Metadata = field(factory=Metadata)

    def render(self, base: str) -> dict[str, Any]:
        """Return it as the API shows it."""
        zone = f"{base}/zones/{self.zone}"
        interface: dict[str, Any] = {
            "name": "nic0",
            "network": f"{base}/global/networks/default",
            "networkIP": self.internal,
        }
        access = {"type": "ONE_TO_ONE_NAT", "name": "External NAT"}
        interface["accessConfigs"] = [access | ({"natIP": self.external} if self.external else {})]
        if self.ipv6:
            interface |= {
                "ipv6AccessType": "EXTERNAL",
                "ipv6AccessConfigs": [{"type": "DIRECT_IPV6", "externalIpv6": self.ipv6}],
            }
        interfaces = [interface]
        if self.backend:
            network = f"{base}/global/networks/backend"
            interfaces.append({"name": "nic1", "network": network, "networkIP": self.backend})
        return {
            "kind": "compute#instance",
            "id": str(int.from_bytes(hashlib.sha256(self.name.encode()).digest()[:7], "big")),
            "name": self.name,
            "zone": zone,
            "machineType": f"{zone}/machineTypes/{self.type}",
            "status": self.status,
            "tags": {"items": list(self.tags), "fingerprint": "42WmSpB8rSM="},
            "networkInterfaces": interfaces,
            "metadata": self.metadata.render(),
            "selfLink": f"{zone}/instances/{self.name}",
        }


@define
class Operation:
    """An operation in progress.

    :ivar done_at: s, by the stand-in's clock.
    """

    name: str
    scope: str
    done_at: float
    metadata: Metadata
    fingerprint: str
    items: Items
    status: str = "PENDING"
    error: dict[str, Any] | None = None

    def settle(self) -> None:
        """Carry it out; concurrent changes are not overwritten."""
        self.status = "DONE"
        if self.fingerprint != self.metadata.fingerprint:
            self.error = {
                "errors": [{"code": "CONDITION_NOT_MET", "message": "Supplied fingerprint is stale."}]
            }
        else:
            self.metadata.replace(self.items)


class GCE:
    """One project and the services around it, all at one address.

    :param seconds: returns the time, s.
    :param account_key: the public key of `ACCOUNT`.
    :param on_key: is called with ``user, line`` of each key that is in force on a running instance after a
        change, as Google's guest agent would give it to that user.
    :ivar page_size: no page is larger.
    :ivar operation_time: how long a change takes, s.
    :ivar token_life: of the tokens it gives, s.
    :ivar alternate_body: what the alternate token service wants to be posted.
    :ivar flavored: whether its metadata service sends Google's header.
    """

    def __init__(
        self,
        seconds: Callable[[], float],
        *,
        account_key: rsa.RSAPublicKey | None = None,
        on_key: Callable[[str, str], None] = lambda user, line: None,
    ) -> None:
        self._seconds = seconds
        self._account_key = account_key
        self._on_key = on_key
        self.project = Metadata()
        self.machines: list[Machine] = []
        self.page_size = LARGEST_PAGE
        self.operation_time = 1.0
        self.token_life = 3600.0
        self.alternate_body = '{"audience": "tower"}'
        self.flavored = True
        self.zone = "europe-west1-b"
        self.operations: dict[str, Operation] = {}
        self.tokens: dict[str, float] = {}
        self.federated: set[str] = set()
        self._numbers = count(1)
        self.resource = RestResource(self._answer)

    def revoke(self) -> None:
        """Make all tokens invalid."""
        self.tokens.clear()

    def keys(self, machine: Machine) -> Iterator[tuple[str, str]]:
        """Yield user and key line as the guest agent of *machine* has them."""
        own, common = machine.metadata.items, self.project.items
        lines = own.get("ssh-keys", "").split("\n") + own.get("sshKeys", "").split("\n")
        blocked = own.get("block-project-ssh-keys", "").lower() == "true" or bool(own.get("sshKeys"))
        if not blocked:
            lines += common.get("ssh-keys", "").split("\n") + common.get("sshKeys", "").split("\n")
        if (own.get("enable-oslogin") or common.get("enable-oslogin", "")).lower() == "true":
            return
        for line in lines:
            user, colon, key = line.strip().partition(":")
            if colon and " google-ssh {" not in key:
                yield user, key

    # -- routes

    def _answer(self, ask: Ask) -> Reply:
        self._settle()
        if ask.path.startswith("/computeMetadata/"):
            return self._metadata_service(ask)
        if ask.path == "/token":
            return self._grant(ask)
        if ask.path == "/sts":
            return self._trade(ask)
        if ask.path == f"/v1/projects/-/serviceAccounts/{ACCOUNT}:generateAccessToken":
            return self._impersonate(ask)
        if ask.path == "/identity":
            return Reply(200, {"value": IDENTITY})
        if ask.path == "/alternate-token":
            return self._alternate(ask)
        self._check_token(ask)
        match = re.fullmatch(r"/compute/v1/projects/([^/]+)(/.*)?", ask.path)
        if match is None:
            raise Refusal(error(404, "notFound", "Not Found"))
        if match[1] != PROJECT:
            message = f"Required 'compute.projects.get' permission for 'projects/{match[1]}'"
            raise Refusal(error(403, "forbidden", message))
        return self._project(ask, match[2] or "")

    def _project(self, ask: Ask, path: str) -> Reply:
        if ask.method == "GET" and path == "":
            shown = {"kind": "compute#project", "name": PROJECT, "id": str(NUMBER)}
            return Reply(body=shown | {"commonInstanceMetadata": self.project.render()})
        if ask.method == "POST" and path == "/setCommonInstanceMetadata":
            return self._set(ask, self.project, "global")
        if ask.method == "GET" and path == "/aggregated/instances":
            return self._masked(ask, self._aggregated(ask))
        if match := re.fullmatch(r"/(global|zones/[^/]+)/operations/([^/]+)", path):
            return self._operation(ask, match[1], match[2])
        if match := re.fullmatch(r"/zones/([^/]+)/instances", path):
            return self._masked(ask, self._list(ask, match[1]))
        if match := re.fullmatch(r"/zones/([^/]+)/instances/([^/]+)(/setMetadata)?", path):
            return self._machine(ask, match[1], match[2], match[3] or "")
        raise Refusal(error(404, "notFound", f"The resource '{path}' was not found"))

    def _machine(self, ask: Ask, zone: str, name: str, verb: str) -> Reply:
        for each in self.machines:
            if (each.zone, each.name) == (zone, name):
                if verb and ask.method == "POST":
                    return self._set(ask, each.metadata, f"zones/{zone}")
                if not verb and ask.method == "GET":
                    return Reply(body=each.render(self._base()))
                raise Refusal(error(405, "methodNotAllowed", "Method Not Allowed"))
        what = f"projects/{PROJECT}/zones/{zone}/instances/{name}"
        raise Refusal(error(404, "notFound", f"The resource '{what}' was not found"))

    def _base(self) -> str:
        return f"https://www.googleapis.com/compute/v1/projects/{PROJECT}"

    # -- lists

    @staticmethod
    def _masked(ask: Ask, reply: Reply) -> Reply:
        try:
            mask = parse_mask(ask.query["fields"]) if "fields" in ask.query else {}
        except ValueError as mistake:
            message = f"Invalid field selection {ask.query['fields']}"
            raise Refusal(error(400, "invalidParameter", message)) from mistake
        return Reply(reply.code, masked(reply.body, mask))

    def _aggregated(self, ask: Ask) -> Reply:
        page, token = self._page(ask, sorted(self.machines, key=lambda each: (each.zone, each.name)))
        items: dict[str, Any] = {}
        for zone in sorted({each.zone for each in self.machines} | {"us-east1-b"}):
            here = [each.render(self._base()) for each in page if each.zone == zone]
            warning = {"code": "NO_RESULTS_ON_PAGE", "message": "There are no results for scope."}
            items[f"zones/{zone}"] = {"instances": here} if here else {"warning": warning}
        answer = {"kind": "compute#instanceAggregatedList", "items": items}
        return Reply(body=answer | ({"nextPageToken": token} if token else {}))

    def _list(self, ask: Ask, zone: str) -> Reply:
        if zone not in {each.zone for each in self.machines} | {self.zone}:
            raise Refusal(error(400, "invalid", f"Invalid value for field 'zone': '{zone}'. Unknown zone."))
        here = sorted((each for each in self.machines if each.zone == zone), key=lambda each: each.name)
        page, token = self._page(ask, here)
        answer: dict[str, Any] = {"kind": "compute#instanceList"}
        if page:
            answer["items"] = [each.render(self._base()) for each in page]
        return Reply(body=answer | ({"nextPageToken": token} if token else {}))

    def _page(self, ask: Ask, machines: list[Machine]) -> tuple[list[Machine], str]:
        known = {"filter", "fields", "maxResults", "pageToken", "orderBy", "returnPartialSuccess"}
        if unknown := set(ask.query) - known:
            raise Refusal(error(400, "invalidParameter", f"Unknown parameters {sorted(unknown)}"))
        wanted = self._filtered(ask.query.get("filter", ""), machines)
        text = ask.query.get("maxResults", str(LARGEST_PAGE))
        if not text.isdigit() or int(text) > LARGEST_PAGE:
            message = (
                f"Invalid value for field 'maxResults': '{text}'. Values must be within the range: [0, 500]"
            )
            raise Refusal(error(400, "invalid", message))
        size = min(int(text) or LARGEST_PAGE, self.page_size)
        start = 0
        if token := ask.query.get("pageToken"):
            start = self._start(token, ask.query.get("filter", ""))
        rest = len(wanted) > start + size
        return wanted[start : start + size], self._token(start + size, ask) if rest else ""

    @staticmethod
    def _token(start: int, ask: Ask) -> str:
        return base64.urlsafe_b64encode(json.dumps([start, ask.query.get("filter", "")]).encode()).decode()

    @staticmethod
    def _start(token: str, wanted: str) -> int:
        try:
            start, filtered = json.loads(base64.urlsafe_b64decode(token))
        except ValueError:
            start, filtered = -1, ""
        if start < 0 or filtered != wanted:
            raise Refusal(error(400, "invalid", f"Invalid value for field 'pageToken': '{token}'."))
        return int(start)

    @staticmethod
    def _filtered(text: str, machines: list[Machine]) -> list[Machine]:
        if not text:
            return machines
        # Escapes in quotes are not documented.
        match = re.fullmatch(r'name eq "([^"\\]*)"', text)
        if match is None:
            raise Refusal(error(400, "invalid", f"Invalid value for field 'filter': '{text}'."))
        return [each for each in machines if re.fullmatch(match[1], each.name)]

    # -- changes

    def _set(self, ask: Ask, metadata: Metadata, scope: str) -> Reply:
        try:
            body = ask.json()
            given = [(each["key"], each["value"]) for each in body.get("items", [])]
        except (ValueError, KeyError, TypeError, AttributeError) as mistake:
            raise Refusal(error(400, "parseError", "Parse Error")) from mistake
        items = dict(given)
        if len(items) != len(given):
            raise Refusal(error(400, "invalid", "Metadata has duplicate keys"))
        for key, value in items.items():
            if not re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", key) or len(value.encode()) > LARGEST_VALUE:
                raise Refusal(error(400, "invalid", f"Invalid value for field 'metadata.items[{key}]'"))
        if sum(len(key) + len(value.encode()) for key, value in items.items()) > LARGEST_METADATA:
            raise Refusal(error(400, "invalid", "Metadata size exceeds 524288 bytes"))
        if body.get("fingerprint") != metadata.fingerprint:
            raise Refusal(
                error(412, "conditionNotMet", "Supplied fingerprint does not match current metadata.")
            )
        name = f"operation-{len(self.operations) + 1}"
        done_at = self._seconds() + self.operation_time
        operation = Operation(name, scope, done_at, metadata, metadata.fingerprint, items)
        self.operations[name] = operation
        return Reply(body=self._show(operation))

    def _operation(self, ask: Ask, scope: str, name: str) -> Reply:
        operation = self.operations.get(name)
        if ask.method != "GET" or operation is None or operation.scope != scope:
            raise Refusal(error(404, "notFound", f"The resource '{scope}/operations/{name}' was not found"))
        return Reply(body=self._show(operation))

    def _show(self, operation: Operation) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "kind": "compute#operation",
            "name": operation.name,
            "operationType": "setMetadata",
            "status": operation.status,
            "progress": 100 if operation.status == "DONE" else 0,
            "selfLink": f"{self._base()}/{operation.scope}/operations/{operation.name}",
        }
        if operation.error:
            shown |= {"error": operation.error, "httpErrorStatusCode": 412}
        return shown

    def _settle(self) -> None:
        for each in self.operations.values():
            if each.status == "DONE":
                continue
            each.status = "RUNNING"
            if self._seconds() >= each.done_at:
                each.settle()
                self._tell()

    def _tell(self) -> None:
        for machine in self.machines:
            if machine.status == "RUNNING":
                for user, key in self.keys(machine):
                    self._on_key(user, key)

    # -- tokens

    def _issue(self) -> tuple[str, float]:
        token = f"ya29.secret-{next(self._numbers)}-{secrets.token_urlsafe(12)}"
        self.tokens[token] = self._seconds() + self.token_life
        return token, self.token_life

    def _check_token(self, ask: Ask) -> None:
        scheme, _, token = ask.headers.get("authorization", "").partition(" ")
        if scheme != "Bearer" or self.tokens.get(token, 0) <= self._seconds():
            message = "Request had invalid authentication credentials."
            refusal = error(
                401, "authError", message, WWW_Authenticate='Bearer realm="https://accounts.google.com/"'
            )
            raise Refusal(refusal)

    def _metadata_service(self, ask: Ask) -> Reply:
        flavor = {"Metadata-Flavor": "Google"} if self.flavored else {}
        if ask.headers.get("metadata-flavor") != "Google" or "x-forwarded-for" in ask.headers:
            raise Refusal(Reply(403, b"Missing Metadata-Flavor:Google header."))
        path = ask.path.removeprefix("/computeMetadata/v1/")
        if path == "instance/service-accounts/default/token":
            token, life = self._issue()
            body = {"access_token": token, "expires_in": int(life), "token_type": "Bearer"}
            return Reply(200, body, flavor)
        texts = {
            "project/project-id": PROJECT,
            "instance/name": "node-a",
            "instance/zone": f"projects/{NUMBER}/zones/{self.zone}",
        }
        if path not in texts:
            raise Refusal(Reply(404, b"not found", flavor))
        return Reply(200, texts[path].encode(), flavor)

    def _alternate(self, ask: Ask) -> Reply:
        self._check_token(ask)
        if ask.method != "POST" or ask.body.decode() != self.alternate_body:
            raise Refusal(error(400, "invalid", "Bad Request"))
        token, life = self._issue()
        date = formatdate(self._seconds(), usegmt=True)
        body = {"accessToken": token, "expireTime": _rfc3339(self._seconds() + life)}
        return Reply(200, body, {"Date": date})

    def _grant(self, ask: Ask) -> Reply:
        form = {name: values[-1] for name, values in parse_qs(ask.body.decode()).items()}
        kind = ask.headers.get("content-type", "")
        try:
            if ask.method != "POST" or not kind.startswith("application/x-www-form-urlencoded"):
                raise ValueError("not a form")
            if form.get("grant_type") != GRANT:
                raise ValueError("unknown grant")
            self._check_assertion(form.get("assertion", ""), ask)
        except (ValueError, KeyError, InvalidSignature) as mistake:
            refusal = {"error": "invalid_grant", "error_description": f"Invalid JWT: {mistake}"}
            raise Refusal(Reply(400, refusal)) from mistake
        token, life = self._issue()
        return Reply(body={"access_token": token, "expires_in": int(life), "token_type": "Bearer"})

    def _trade(self, ask: Ask) -> Reply:
        form = {name: values[-1] for name, values in parse_qs(ask.body.decode()).items()}
        wanted = {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
            "audience": POOL,
        }
        if any(form.get(key) != value for key, value in wanted.items()) or not form.get("scope"):
            raise Refusal(Reply(400, {"error": "invalid_request", "error_description": "Invalid request."}))
        if form.get("subject_token") != IDENTITY:
            said = {"error": "invalid_grant", "error_description": f"not for us: {form.get('subject_token')}"}
            raise Refusal(Reply(400, said))
        token, life = self._issue()
        if form["scope"] == "https://www.googleapis.com/auth/cloud-platform":
            self.federated.add(token)
        kind = wanted["requested_token_type"]
        return Reply(
            body={
                "access_token": token,
                "issued_token_type": kind,
                "token_type": "Bearer",
                "expires_in": int(life),
            }
        )

    def _impersonate(self, ask: Ask) -> Reply:
        self._check_token(ask)
        said = ask.json()
        if ask.headers["authorization"].partition(" ")[2] not in self.federated:
            raise Refusal(error(403, "forbidden", "Request had insufficient authentication scopes."))
        if not set(said.get("scope", ())) & SCOPES or not re.fullmatch(r"\d{1,4}s", said.get("lifetime", "")):
            raise Refusal(error(400, "invalid", "Request contains an invalid argument."))
        token, life = self._issue()
        date = formatdate(self._seconds(), usegmt=True)
        body = {"accessToken": token, "expireTime": _rfc3339(self._seconds() + life)}
        return Reply(200, body, {"Date": date})

    def _check_assertion(self, assertion: str, ask: Ask) -> None:
        head, claims, signature = assertion.split(".")
        if self._account_key is None:
            raise ValueError("no such account")
        self._account_key.verify(
            _decode(signature), f"{head}.{claims}".encode(), padding.PKCS1v15(), SHA256()
        )
        if json.loads(_decode(head)).get("alg") != "RS256":
            raise ValueError("alg")
        said = json.loads(_decode(claims))
        if said["iss"] != ACCOUNT or not set(said["scope"].split()) & SCOPES:
            raise ValueError("issuer or scope")
        if said["aud"] != f"http://{ask.headers['host']}/token":
            raise ValueError("audience")
        if not 0 < said["exp"] - said["iat"] <= 3600 or not said["iat"] - 60 <= self._seconds() < said["exp"]:
            raise ValueError("Token must be a short-lived token (60 minutes) and in a reasonable timeframe.")


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _rfc3339(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
