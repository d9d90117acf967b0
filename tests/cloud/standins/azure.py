"""Small stand-ins of Azure's resource manager, its token service and its metadata service.

They reject what Microsoft documents: tokens that are unknown, expired or for another audience; unknown API
versions; invalid ``$expand``; a second extension of a type; metadata requests without its header.
Lists have pages.  An extension takes time, is followed at its operation's URL, and cannot be changed while it
runs; it runs only when its settings or its tag have changed.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from itertools import count
from typing import Any
from urllib.parse import parse_qs, quote

from attrs import define, field
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, PSS
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from twisted.internet.interfaces import IReactorTime

from tests.cloud.standins.rest import Ask, Refusal, Reply, RestResource

SUBSCRIPTION = "11111111-2222-3333-4444-555555555555"
GROUP = "Beta"
TENANT = "99999999-8888-7777-6666-555555555555"
CLIENT, SECRET = "client-of-tower", "s3cr3t~of.the-client"
IDENTITY = "identity-of-tower"
FEDERATED = "eyJhbGciOiJSUzI1NiJ9.of-a-pod.s1gnature"
ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
MANAGER = "https://management.azure.com/"
LARGEST_PAGE = 100

_GROUP = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers"
_COMPUTE, _NETWORK = f"{_GROUP}/Microsoft.Compute", f"{_GROUP}/Microsoft.Network"
_ALL = f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Compute/virtualMachines"


def error(code: int, name: str, message: str = "", **headers: str) -> Reply:
    """Return an error as the resource manager words them."""
    body = {"error": {"code": name, "message": message}}
    return Reply(code, body, {each.replace("_", "-"): value for each, value in headers.items()})


def refuse(code: int, name: str, message: str = "") -> Refusal:
    """Return the refusal with an error of the resource manager."""
    return Refusal(error(code, name, message))


def refuse_token(code: int, name: str, description: str = "") -> Refusal:
    """Return the refusal with an error of a token service."""
    return Refusal(Reply(code, {"error": name, "error_description": description}))


@define
class Extension:
    """An extension on a machine.

    :ivar state: ``Creating``, ``Updating``, ``Succeeded`` or ``Failed``.
    :ivar runs: how often it ran.
    """

    name: str
    properties: dict[str, Any]
    state: str = "Creating"
    runs: int = 0

    def render(self, path: str) -> dict[str, Any]:
        """Return it as the API shows it: never with its protected settings."""
        shown = {name: value for name, value in self.properties.items() if name != "protectedSettings"}
        shown["provisioningState"] = self.state
        return {"name": self.name, "id": f"{path}/{self.name}", "properties": shown}


@define
class Machine:
    """A machine, of a scale set if it has the name of one."""

    name: str
    private: str = "10.0.0.4"
    public: str = ""
    ipv6: str = ""
    zones: tuple[str, ...] = ("1",)
    power: str = "running"
    size: str = "Standard_D2s_v3"
    system: str = "Linux"
    scale_set: str = ""
    flexible: str = ""
    number: str = ""
    extensions: dict[str, Extension] = field(factory=dict)
    keys: list[str] = field(factory=list)

    @property
    def path(self) -> str:
        """Its resource."""
        if self.scale_set:
            return f"{_COMPUTE}/virtualMachineScaleSets/{self.scale_set}/virtualMachines/{self.number}"
        return f"{_COMPUTE}/virtualMachines/{self.name}"

    @property
    def interface(self) -> str:
        """The resource of its network interface."""
        above = self.path if self.scale_set else _NETWORK
        return f"{above}/networkInterfaces/{self.name}-nic"

    @property
    def address(self) -> str:
        """The resource of its public address."""
        above = f"{self.interface}/ipConfigurations/one" if self.scale_set else _NETWORK
        return f"{above}/publicIPAddresses/{self.name}-ip"

    @property
    def _computer(self) -> str:
        """Its host name; machines of scale sets have their own."""
        if self.flexible:
            return f"{self.flexible}000001"
        return self.name.upper() if self.scale_set else self.name

    def view(self) -> dict[str, Any]:
        """Return its instance view."""
        statuses = [{"code": "ProvisioningState/succeeded"}, {"code": f"PowerState/{self.power}"}]
        return {"statuses": statuses}

    def render(self, *, expanded: bool = False) -> dict[str, Any]:
        """Return it as the API shows it."""
        properties: dict[str, Any] = {
            "hardwareProfile": {"vmSize": self.size},
            "storageProfile": {"osDisk": {"osType": self.system}},
            "osProfile": {"computerName": self._computer},
            # Azure does not keep the case of letters.
            "networkProfile": {
                "networkInterfaces": [{"id": self.interface.upper(), "properties": {"primary": True}}]
            },
            "provisioningState": "Succeeded",
        }
        if self.flexible:
            own = f"{_COMPUTE}/virtualMachineScaleSets/{self.flexible}"
            properties["virtualMachineScaleSet"] = {"id": own}
        if expanded:
            properties["instanceView"] = self.view()
        shown = {
            "id": self.path,
            "location": "westeurope",
            "zones": list(self.zones),
            "properties": properties,
        }
        if self.scale_set:
            return {**shown, "name": f"{self.scale_set}_{self.number}", "instanceId": self.number}
        return {**shown, "name": self.name}

    def render_interface(self) -> dict[str, Any]:
        """Return its network interface as the API shows it."""
        first: dict[str, Any] = {"privateIPAddress": self.private, "primary": True}
        if self.public:
            first["publicIPAddress"] = {"id": self.address}
        configurations = [{"name": "one", "properties": first}]
        if self.ipv6:
            six = {"privateIPAddress": self.ipv6, "privateIPAddressVersion": "IPv6", "primary": False}
            configurations.insert(0, {"name": "six", "properties": six})
        return {"id": self.interface, "properties": {"ipConfigurations": configurations}}


@define
class Operation:
    """An operation in progress."""

    ends: float
    machine: Machine
    extension: Extension


class Azure:
    """One subscription with one resource group, all services at one address.

    :param clock: the time.
    :param on_key: is called with ``user, line`` when the extension has run.
    :ivar page_size: of lists.
    :ivar token_life: of the tokens it gives, s.
    :ivar audience: audience of the tokens; None: the requested one.
    :ivar work_time: how long an extension runs, s.
    :ivar patience: how often it should be looked at, s.
    :ivar broken: names of machines whose extension fails.
    :ivar denied: paths, or prefixes of paths, without permission.
    :ivar certificates: keys of the client, by the thumbprints (SHA-256, base64url) of its certificates.
    :ivar elsewhere: where links lead instead of here; empty: here.
    :ivar location_only: follow work by ``Location``, not by its operation.
    """

    def __init__(
        self, clock: IReactorTime, *, on_key: Callable[[str, str], None] = lambda user, line: None
    ) -> None:
        self._clock = clock
        self._on_key = on_key
        self.machines: list[Machine] = []
        self.flexible: list[str] = []
        self.page_size = LARGEST_PAGE
        self.token_life = 3599.0
        self.audience: str | None = None
        self.work_time = 45.0
        self.patience = "10"
        self.broken: set[str] = set()
        self.denied: list[str] = []
        self.elsewhere = ""
        self.location_only = False
        self.tokens: dict[str, tuple[float, str]] = {}
        self.certificates: dict[str, RSAPublicKey] = {}
        self._seen: set[str] = set()
        self.operations: dict[str, Operation] = {}
        self._numbers = count(1)
        self.resource = RestResource(self._answer)

    def machine(self, name: str) -> Machine:
        """Return the machine of that name."""
        return next(machine for machine in self.machines if machine.name == name)

    def runs(self) -> dict[str, int]:
        """Return how often the extension ran on each machine where it did."""
        return {
            each.name: sum(one.runs for one in each.extensions.values())
            for each in self.machines
            if each.extensions
        }

    def _answer(self, ask: Ask) -> Reply:
        if ask.path.startswith("/metadata/"):
            return self._metadata(ask)
        if ask.path.endswith("/oauth2/v2.0/token"):
            return self._login(ask)
        self._settle()
        self._authorize(ask)
        if not re.fullmatch(r"20\d\d-\d\d-\d\d", ask.query.get("api-version", "")):
            raise refuse(400, "MissingApiVersionParameter", "The api-version query parameter is required")
        if ask.path.startswith(f"/subscriptions/{SUBSCRIPTION}/operations/"):
            return self._operation(ask)
        if ask.method == "PUT":
            return self._put(ask)
        if ask.method != "GET":
            raise refuse(405, "MethodNotAllowed")
        return self._get(ask)

    # Authentication

    def _login(self, ask: Ask) -> Reply:
        form = {name: values[-1] for name, values in parse_qs(ask.body.decode()).items()}
        if ask.method != "POST" or ask.path != f"/{TENANT}/oauth2/v2.0/token":
            raise refuse_token(400, "invalid_request", "AADSTS90002: no such tenant")
        if form.get("grant_type") != "client_credentials" or not form.get("scope", "").endswith("/.default"):
            raise refuse_token(400, "invalid_scope", "AADSTS70011: not valid")
        if "client_assertion" in form:
            self._judge(form)
        elif (form.get("client_id"), form.get("client_secret")) != (CLIENT, SECRET):
            said = f"AADSTS7000215: Invalid client secret provided: {form.get('client_secret')}"
            raise refuse_token(401, "invalid_client", said)
        token = self._issue(form["scope"].removesuffix(".default"))
        return Reply(200, {"token_type": "Bearer", "expires_in": int(self.token_life), "access_token": token})

    def _judge(self, form: dict[str, str]) -> None:
        """Reject a client without valid credentials."""
        said = form["client_assertion"]
        if form.get("client_assertion_type") != ASSERTION or form.get("client_id") != CLIENT:
            raise refuse_token(401, "invalid_client", "AADSTS50027: not valid")
        if said == FEDERATED:
            return
        head, claims = (_part(each) for each in said.split(".")[:2]) if said.count(".") == 2 else ({}, {})
        known = self.certificates.get(head.get("x5t#S256", ""))
        if known is None or head.get("alg") != "PS256":
            raise refuse_token(401, "invalid_client", f"AADSTS700027: the key was not found: {said}")
        signed, _, signature = said.rpartition(".")
        try:
            known.verify(_decode(signature), signed.encode(), PSS(MGF1(SHA256()), 32), SHA256())
        except InvalidSignature:
            raise refuse_token(401, "invalid_client", "AADSTS700027: the signature is wrong") from None
        now = self._clock.seconds()
        ours = (claims["iss"], claims["sub"]) == (CLIENT, CLIENT) and claims["jti"] not in self._seen
        if not ours or not claims["aud"].endswith(f"/{TENANT}/oauth2/v2.0/token"):
            raise refuse_token(401, "invalid_client", "AADSTS700023: not for us")
        if not claims["nbf"] - 300 <= now < claims["exp"] <= now + 900:
            raise refuse_token(401, "invalid_client", "AADSTS700024: not within its valid time range")
        self._seen.add(claims["jti"])

    def _metadata(self, ask: Ask) -> Reply:
        if ask.headers.get("metadata", "").lower() != "true" or "x-forwarded-for" in ask.headers:
            raise refuse_token(400, "invalid_request", "Required metadata header")
        if ask.path == "/metadata/instance/compute":
            return Reply(200, {"location": "westeurope", "zone": "2", "name": "here"})
        if ask.path != "/metadata/identity/oauth2/token" or ask.query.get("api-version") != "2018-02-01":
            raise refuse_token(400, "bad_request")
        if ask.query.get("client_id", IDENTITY) != IDENTITY:
            raise refuse_token(400, "invalid_request", "Identity not found")
        token = self._issue(ask.query["resource"])
        # Numbers are texts here.
        return Reply(
            200, {"access_token": token, "expires_in": str(int(self.token_life)), "token_type": "Bearer"}
        )

    def _issue(self, audience: str) -> str:
        token = f"token.of-azure.{next(self._numbers)}-" + "x" * 40
        self.tokens[token] = (self._clock.seconds() + self.token_life, self.audience or audience)
        return token

    def _authorize(self, ask: Ask) -> None:
        kind, _, token = ask.headers.get("authorization", "").partition(" ")
        ends, audience = self.tokens.get(token, (0.0, ""))
        if kind != "Bearer" or not ends:
            raise refuse(401, "AuthenticationFailed", "Authentication failed.")
        if ends <= self._clock.seconds():
            raise refuse(401, "ExpiredAuthenticationToken", "The access token has expired.")
        if audience.rstrip("/") != MANAGER.rstrip("/"):
            raise refuse(401, "InvalidAuthenticationTokenAudience", f"from the wrong audience '{audience}'")
        if any(ask.path.startswith(path) for path in self.denied):
            raise refuse(403, "AuthorizationFailed", "does not have authorization to perform action")

    # Resources

    def _get(self, ask: Ask) -> Reply:
        alone = [machine for machine in self.machines if not machine.scale_set]
        path = ask.path
        if path == f"{_COMPUTE}/virtualMachines":
            if "$expand" in ask.query and "$filter" not in ask.query:
                raise refuse(400, "BadRequest", "$expand needs $filter")
            return self._page(ask, [machine.render() for machine in alone])
        if path == _ALL:
            only = ask.query.get("statusOnly") == "true"
            return self._page(ask, [machine.render(expanded=only) for machine in alone])
        if path == f"{_COMPUTE}/virtualMachineScaleSets":
            names = sorted({machine.scale_set for machine in self.machines if machine.scale_set})
            sets = [{"name": name, "properties": {"orchestrationMode": "Uniform"}} for name in names]
            more = [{"name": name, "properties": {"orchestrationMode": "Flexible"}} for name in self.flexible]
            return self._page(ask, sets + more)
        if path == f"{_NETWORK}/networkInterfaces":
            return self._page(ask, [machine.render_interface() for machine in alone])
        if path == f"{_NETWORK}/publicIPAddresses":
            return self._page(ask, _addresses(alone))
        if found := re.fullmatch(rf"{re.escape(_COMPUTE)}/virtualMachineScaleSets/([\w-]+)/(\w+)", path):
            return self._in_scale_set(ask, *found.groups())
        return self._one(ask)

    def _in_scale_set(self, ask: Ask, name: str, kind: str) -> Reply:
        machines = [machine for machine in self.machines if machine.scale_set == name]
        if not machines:
            raise refuse(404, "ResourceNotFound", f"The Resource '{name}' was not found.")
        if kind == "virtualMachines":
            expanded = ask.query.get("$expand") == "instanceView"
            return self._page(ask, [machine.render(expanded=expanded) for machine in machines])
        if ask.query["api-version"] > "2019":
            raise refuse(400, "NoRegisteredProviderFound")
        if kind == "networkInterfaces":
            return self._page(ask, [machine.render_interface() for machine in machines])
        return self._page(ask, _addresses(machines))

    def _one(self, ask: Ask) -> Reply:
        path = ask.path.lower()
        for machine in self.machines:
            own = machine.path.lower()
            if path == own:
                return Reply(200, machine.render(expanded=ask.query.get("$expand") == "instanceView"))
            if path == f"{own}/instanceview":
                return Reply(200, machine.view())
            if path == f"{own}/extensions":
                shown = [each.render(machine.path) for each in machine.extensions.values()]
                return Reply(200, {"value": shown})
        name = ask.path.rpartition("/")[2]
        raise refuse(404, "ResourceNotFound", f"The Resource '{name}' was not found.")

    def _page(self, ask: Ask, found: list[dict[str, Any]]) -> Reply:
        start = int(ask.query.get("$skiptoken", "0"))
        body: dict[str, Any] = {"value": found[start : start + self.page_size]}
        if start + self.page_size < len(found):
            query = "&".join(f"{quote(n)}={quote(v)}" for n, v in ask.query.items() if n != "$skiptoken")
            link = f"{self._base(ask)}{ask.path}?{query}&%24skiptoken={start + self.page_size}"
            body["nextLink"] = link
        return Reply(200, body)

    def _base(self, ask: Ask) -> str:
        return self.elsewhere or f"http://{ask.headers['host']}"

    # Extensions

    def _put(self, ask: Ask) -> Reply:
        above, _, name = ask.path.rpartition("/")
        machine = next(
            (each for each in self.machines if f"{each.path}/extensions".lower() == above.lower()), None
        )
        if machine is None:
            raise refuse(404, "ParentResourceNotFound")
        said = ask.json()
        properties = said["properties"]
        if machine.power != "running":
            raise refuse(
                409, "OperationNotAllowed", "Cannot modify extensions in the VM when it is not running."
            )
        self._check(machine, said, name)
        there = machine.extensions.get(name)
        changed = there is None or there.properties != properties
        extension = machine.extensions[name] = there or Extension(name, properties)
        if changed:
            extension.properties = properties
            extension.state = "Creating" if there is None else "Updating"
            number = str(next(self._numbers))
            self.operations[number] = Operation(self._clock.seconds() + self.work_time, machine, extension)
            url = f"{self._base(ask)}/subscriptions/{SUBSCRIPTION}/operations/{number}?api-version=2024-07-01"
            if self.location_only:
                return Reply(202, b"", {"Location": url, "Retry-After": self.patience})
            headers = {"Azure-AsyncOperation": url, "Retry-After": self.patience}
            return Reply(201 if there is None else 200, extension.render(above), headers)
        return Reply(200, extension.render(above))

    def _check(self, machine: Machine, said: dict[str, Any], name: str) -> None:
        properties = said["properties"]
        kind = (properties.get("publisher"), properties.get("type"))
        if kind != ("Microsoft.OSTCExtensions", "VMAccessForLinux"):
            raise refuse(400, "ArtifactNotFound", f"no extension {kind}")
        if not machine.scale_set and said.get("location") != "westeurope":
            raise refuse(400, "LocationRequired", "The location property is required for this definition.")
        if not re.fullmatch(r"\d+\.\d+", str(properties.get("typeHandlerVersion"))):
            raise refuse(400, "InvalidParameter", "typeHandlerVersion")
        for other in machine.extensions.values():
            if other.state in ("Creating", "Updating"):
                raise refuse(409, "Conflict", "The request failed due to conflict with a concurrent request.")
            if other.name != name and other.properties["type"] == properties["type"]:
                raise refuse(400, "BadRequest", "Multiple VMExtensions per handler not supported for OS type")

    def _settle(self) -> None:
        for operation in self.operations.values():
            extension = operation.extension
            if operation.ends > self._clock.seconds() or extension.state not in ("Creating", "Updating"):
                continue
            if operation.machine.name in self.broken:
                extension.state = "Failed"
                continue
            extension.state = "Succeeded"
            extension.runs += 1
            settings = extension.properties["protectedSettings"]
            operation.machine.keys.append(settings["ssh_key"])
            self._on_key(settings["username"], settings["ssh_key"])

    def _operation(self, ask: Ask) -> Reply:
        operation = self.operations[ask.path.rpartition("/")[2]]
        if operation.ends > self._clock.seconds():
            if self.location_only:
                return Reply(202, b"", {"Retry-After": self.patience})
            return Reply(200, {"status": "InProgress"}, {"Retry-After": self.patience})
        if operation.extension.state == "Failed":
            said = {"code": "VMExtensionProvisioningError", "message": "VM has reported a failure"}
            return Reply(200, {"status": "Failed", "error": said})
        return Reply(200, {"status": "Succeeded"})


def _part(text: str) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(_decode(text))
    return said


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _addresses(machines: list[Machine]) -> list[dict[str, Any]]:
    return [
        {"id": machine.address, "properties": {"ipAddress": machine.public}}
        for machine in machines
        if machine.public
    ]


def configuration(host: str, **keys: object) -> str:
    """Return a configuration that leads to the stand-in at *host*."""
    return json.dumps(
        {
            "tenantId": TENANT,
            "subscriptionId": SUBSCRIPTION,
            "resourceGroup": GROUP,
            "aadClientId": CLIENT,
            "aadClientSecret": SECRET,
            "resourceManagerEndpoint": host,
            "activeDirectoryEndpoint": host,
            "metadataEndpoint": host,
            "tokenAudience": MANAGER,
            **keys,
        }
    )
