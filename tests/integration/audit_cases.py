"""An audit policy, and requests for a real kube-apiserver and Tower, for `test_audit_policies`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from attrs import frozen

from tests.fakes.protobuf import PROTOBUF, message

HEAD = "apiVersion: audit.k8s.io/v1\nkind: Policy\n"

POLICY = (
    HEAD
    + """
omitStages: [Panic]
rules:
- level: None
  nonResourceURLs: ["/healthz*"]
- level: None
  users: [jane]
  verbs: [get]
  resources: [{group: "", resources: [namespaces], resourceNames: [default]}]
- level: Metadata
  resources: [{group: "", resources: [services]}]
  omitStages: [RequestReceived]
- level: Request
  resources: [{group: "", resources: [configmaps]}]
  namespaces: [default]
- level: RequestResponse
  userGroups: [dev]
  resources: [{group: "", resources: [secrets, pods, pods/status]}]
  omitManagedFields: true
- level: RequestResponse
  resources: [{group: apps}]
- level: Metadata
  userGroups: ["system:authenticated"]
"""
)


@frozen
class Case:
    """One request of jane."""

    method: str
    path: str
    body: str | bytes = ""
    media: str = "application/json"
    fields: Mapping[str, str] = MappingProxyType({})


_NS = "/api/v1/namespaces/default"
_MAP = '{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"one"},"data":{"a":"b"}}'
_OTHER_MAP = _MAP.replace("one", "other")
_SECRET = '{"kind":"Secret","apiVersion":"v1","metadata":{"name":"one"},"stringData":{"a":"b"}}'
_POD = (
    '{"kind":"Pod","apiVersion":"v1","metadata":{"name":"one"},'
    '"spec":{"automountServiceAccountToken":false,"containers":[{"name":"a","image":"b"}]}}'
)
_DEPLOYMENT = (
    '{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"one"},"spec":{"selector":{"matchLabels":'
    '{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"a","image":"b"}]}}}}'
)

_AS_JOE = MappingProxyType({"Impersonate-User": "joe", "Impersonate-Group": "dev"})
_MAP_IN_PROTOBUF = b"k8s\0" + message(
    f1=message(f1="v1", f2="ConfigMap"),
    f2=message(f1=message(f1="one"), f2=message(f1="a", f2="protobuf")),
)

#: Rights of jane at Tower.
RIGHTS = (
    {"apiGroups": [""], "resources": ["users"], "resourceNames": ["joe", "carl"], "verbs": ["impersonate"]},
    {"apiGroups": [""], "resources": ["groups"], "resourceNames": ["dev"], "verbs": ["impersonate"]},
)

#: Fields of the last event that differ, with method and path of the request.
DIFFERENT = {
    # kube-apiserver has an object that it could decode; Tower any JSON that was sent
    ("POST", f"{_NS}/configmaps", "requestObject"),
    # kube-apiserver has the defaults of the type
    ("POST", f"{_NS}/secrets?dryRun=All", "requestObject"),
    ("POST", f"{_NS}/pods?dryRun=All", "requestObject"),
    ("POST", "/apis/apps/v1/namespaces/default/deployments?dryRun=All", "requestObject"),
    # Tower records only JSON; an annotation has the reason
    ("PUT", f"{_NS}/configmaps/one", "requestObject"),
    # the name is in the body, which Tower does not read at level Metadata
    ("POST", "/api/v1/namespaces/kube-system/configmaps?dryRun=All", "objectRef"),
    # the answer to a HEAD has no body, so Tower does not see it
    ("HEAD", "/apis/apps/v1/deployments", "responseStatus"),
    ("HEAD", "/apis/apps/v1/deployments", "responseObject"),
}

CASES = (
    Case("GET", "/healthz"),
    Case("GET", "/version"),
    Case("GET", "/nothing/here"),
    Case("GET", "/api/v1"),
    Case("GET", "/api/v1/namespaces/default"),
    Case("GET", "/api/v1/namespaces"),
    Case("GET", "/api/v1/namespaces?watch=1&timeoutSeconds=1"),
    Case("GET", f"{_NS}/services?limit=1"),
    Case("GET", f"{_NS}/services/missing"),
    Case("POST", f"{_NS}/configmaps", _MAP),
    Case("POST", f"{_NS}/configmaps", _MAP),
    Case("PUT", f"{_NS}/configmaps/one", _MAP),
    Case("PATCH", f"{_NS}/configmaps/one", '{"data":{"c":"d"}}', "application/merge-patch+json"),
    Case(
        "PATCH", f"{_NS}/configmaps/one", '[{"op":"remove","path":"/data/c"}]', "application/json-patch+json"
    ),
    Case("PATCH", f"{_NS}/configmaps/one?fieldManager=x&force=true", _MAP, "application/apply-patch+yaml"),
    Case("PATCH", f"{_NS}/configmaps/missing", "{}", "application/merge-patch+json"),
    Case("POST", f"{_NS}/configmaps", '{"kind":"Secret"}'),
    Case("PUT", f"{_NS}/configmaps/one", _MAP_IN_PROTOBUF, PROTOBUF),
    Case("GET", f"{_NS}/pods", fields=_AS_JOE),
    Case("POST", f"{_NS}/configmaps?dryRun=All", _OTHER_MAP, fields=_AS_JOE),
    Case("GET", f"{_NS}/pods", fields={"Impersonate-User": "carl"}),
    Case("DELETE", f"{_NS}/configmaps/one"),
    Case("DELETE", f"{_NS}/configmaps?labelSelector=a%3Db"),
    Case("POST", "/api/v1/namespaces/kube-system/configmaps?dryRun=All", _MAP),
    Case("POST", f"{_NS}/secrets?dryRun=All", _SECRET),
    Case("GET", f"{_NS}/secrets"),
    Case("GET", f"{_NS}/secrets/missing"),
    Case("POST", f"{_NS}/pods?dryRun=All", _POD),
    Case("GET", f"{_NS}/pods?watch=1&timeoutSeconds=1"),
    Case("GET", f"{_NS}/pods/missing/log"),
    Case("GET", f"{_NS}/pods/missing/status"),
    Case("POST", f"{_NS}/pods/missing/exec?command=sh"),
    Case("POST", "/apis/apps/v1/namespaces/default/deployments?dryRun=All", _DEPLOYMENT),
    Case("GET", "/apis/apps/v1/deployments"),
    Case("GET", "/apis/apps/v1/deployments?fieldSelector=metadata.name%3Dx"),
    Case("HEAD", "/apis/apps/v1/deployments"),
    Case(
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        '{"kind":"SelfSubjectAccessReview",'
        '"apiVersion":"authorization.k8s.io/v1","spec":{"nonResourceAttributes":{"path":"/","verb":"get"}}}',
    ),
    Case("PUT", f"{_NS}/nothings/x", "{}"),
    Case("OPTIONS", f"{_NS}/pods"),
)
