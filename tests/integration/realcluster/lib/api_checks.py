"""Plain requests that kubectl must be able to do: read, write, watch, be refused."""

import json
import re
import time
import urllib.request

from .matrix import MANY, MIB, Bench, Checks, SkippedError, expect

CHECKS = Checks()


@CHECKS.add("get")
def get(b: Bench) -> None:
    expect(
        (seen := b.kubectl.json("get", "pod", "shell"))["metadata"]["name"] == "shell",
        seen,
    )


@CHECKS.add("get -o wide")
def get_wide(b: Bench) -> None:
    lines = b.kubectl.text("get", "pods", "-o", "wide").splitlines()
    expect(
        re.match(r"NAME +READY +STATUS .* NODE", lines[0]) and any("shell" in line for line in lines),
        lines,
    )


@CHECKS.add("get --raw equals direct")
def raw(b: Bench) -> None:
    for path in ("/version", "/api/v1/namespaces/default/pods/terminal", "/openapi/v2"):
        seen, wanted = (each.raw(path) for each in (b.kubectl, b.direct))
        expect(seen == wanted, f"{path}: {len(seen)} bytes, directly {len(wanted)}")


@CHECKS.add("get --raw /healthz")
def healthz(b: Bench) -> None:
    expect((seen := b.kubectl.raw("/healthz")) == "ok", seen)


@CHECKS.add("list with limit and continue", limit=60)
def chunks(b: Bench) -> str:
    path = f"/api/v1/namespaces/{b.namespace}/configmaps?limit=500"
    first = json.loads(b.kubectl.raw(path))
    expect(len(first["items"]) == 500 and first["metadata"]["continue"], first["metadata"])
    names = b.kubectl.text(
        "get", "cm", "-n", b.namespace, "-l", "many", "-o", "name", "--chunk-size=100"
    ).split()
    expect(len(set(names)) == MANY, len(names))
    return f"{len(names)} objects"


@CHECKS.add("watch")
def watch(b: Bench) -> str:
    with b.kubectl.background("get", "cm", "-n", b.namespace, "-w", "-o", "name", "-l", "!many") as watching:
        b.direct.run("create", "cm", "before", "-n", b.namespace)
        watching.line("configmap/before")  # the watch has started
        b.direct.run("create", "cm", "watched", "-n", b.namespace)
        created = time.monotonic()
        delay = watching.line("configmap/watched")[0] - created
    expect(delay < 1, f"{delay:.2f} s")
    return f"event {delay * 1000:+.0f} ms from the end of the create"


@CHECKS.add("describe")
def describe(b: Bench) -> None:
    expect("Containers:" in (seen := b.kubectl.text("describe", "pod", "shell")), seen)


@CHECKS.add("discovery: api-resources")
def api_resources(b: Bench) -> str:
    counts = []
    for kubectl in (b.kubectl, b.direct):
        out, log = kubectl.run("api-resources", "-v=6", "--cached=false")
        expect(b"configmaps" in out and b"apiservices" in out, out)
        counts.append(len(re.findall(rb"\bGET\b", log)))
    expect(counts[0] == counts[1], f"{counts[0]} requests, directly {counts[1]}")
    return f"{counts[0]} requests"


@CHECKS.add("discovery: OpenAPI v3, explain")
def explain(b: Bench) -> None:
    expect(
        "api/v1" in (seen := json.loads(b.kubectl.raw("/openapi/v3"))["paths"]),
        seen,
    )
    expect("tolerations" in (seen := b.kubectl.text("explain", "pod.spec")), seen)


@CHECKS.add("top")
def top(b: Bench) -> None:
    if "metrics.k8s.io/v1beta1" not in b.kubectl.text("api-versions").split():
        raise SkippedError("the cluster has no metrics API")
    expect("shell" in (seen := b.kubectl.text("top", "pod")), seen)
    expect("-node" in (seen := b.kubectl.text("top", "node")), seen)


@CHECKS.add("wait --for")
def wait(b: Bench) -> None:
    b.kubectl.run("wait", "--for=condition=Ready", "pod/shell", "--timeout=10s")
    b.kubectl.run("wait", "--for=jsonpath={.status.phase}=Running", "pod/shell", "--timeout=10s")
    b.kubectl.run("wait", "--for=condition=Never", "pod/shell", "--timeout=1s", code=1)


@CHECKS.add("apply, client-side")
def apply(b: Bench) -> None:
    for data, word in (("1", "created"), ("1", "unchanged"), ("2", "configured")):
        expect(
            word in (seen := b.kubectl.text("apply", "-f", "-", stdin=b.configmap("applied", a=data))),
            seen,
        )


@CHECKS.add("apply, server-side; diff")
def apply_server_side(b: Bench) -> None:
    b.kubectl.run("apply", "--server-side", "-f", "-", stdin=b.configmap("served", a="1"))
    diff, _ = b.kubectl.run("diff", "--server-side", "-f", "-", stdin=b.configmap("served", a="2"), code=1)
    expect(b'+  a: "2"' in diff, diff)
    seen = b.kubectl.run(
        "apply",
        "--server-side",
        "--field-manager=other",
        "-f",
        "-",
        stdin=b.configmap("served", a="3"),
        code=1,
    )
    expect(b"conflict" in seen[1], seen)


@CHECKS.add("patch")
def patch(b: Bench) -> None:
    b.kubectl.run("create", "-f", "-", stdin=b.configmap("patched", a="0"))
    operation = '[{"op":"replace","path":"/data/a","value":"3"}]'
    for kind, text in (
        ("strategic", '{"data":{"a":"1"}}'),
        ("merge", '{"data":{"a":"2"}}'),
        ("json", operation),
    ):
        b.kubectl.run("patch", "cm", "patched", "-n", b.namespace, "--type", kind, "-p", text)
    expect(
        (seen := b.kubectl.json("get", "cm", "patched", "-n", b.namespace))["data"] == {"a": "3"},
        seen,
    )


@CHECKS.add("edit")
def edit(b: Bench) -> None:
    b.kubectl.run("create", "-f", "-", stdin=b.configmap("edited", a="before"))
    b.kubectl.run("edit", "cm", "edited", "-n", b.namespace, KUBE_EDITOR="sed -i s/before/after/")
    expect(
        (seen := b.kubectl.json("get", "cm", "edited", "-n", b.namespace))["data"] == {"a": "after"},
        seen,
    )


@CHECKS.add("label, annotate, replace")
def label(b: Bench) -> None:
    b.kubectl.run("create", "-f", "-", stdin=b.configmap("marked", a="1"))
    for verb in ("label", "annotate"):
        b.kubectl.run(verb, "cm", "marked", "-n", b.namespace, "x=y")
    b.kubectl.run("replace", "-f", "-", stdin=b.configmap("marked", a="2"))
    expect(
        (seen := b.kubectl.json("get", "cm", "marked", "-n", b.namespace))["data"] == {"a": "2"},
        seen,
    )


@CHECKS.add("delete with propagation")
def delete(b: Bench) -> None:
    for cascade in ("background", "foreground"):
        b.kubectl.run("create", "-f", "-", stdin=b.configmap(cascade))
    # Makes the deletion wait, also in clusters with a garbage collector.
    owner = b.kubectl.json("get", "cm", "foreground", "-n", b.namespace)["metadata"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "foreground", "uid": owner["uid"]}
    held = json.loads(b.configmap("dependent"))
    held["metadata"]["finalizers"] = ["example.org/hold"]
    held["metadata"]["ownerReferences"] = [{**reference, "blockOwnerDeletion": True}]
    b.kubectl.run("create", "-f", "-", stdin=json.dumps(held).encode())
    for cascade in ("background", "foreground"):
        options = (f"--cascade={cascade}", "--wait=false")
        b.kubectl.run("delete", "cm", cascade, "-n", b.namespace, *options)
    b.kubectl.run("get", "cm", "background", "-n", b.namespace, code=1)
    seen = b.kubectl.json("get", "cm", "foreground", "-n", b.namespace)["metadata"]
    expect(
        seen.get("deletionTimestamp") and seen["finalizers"] == ["foregroundDeletion"],
        seen,
    )
    for name in ("foreground", "dependent"):
        patch = '{"metadata":{"finalizers":null}}'
        b.kubectl.run("patch", "cm", name, "-n", b.namespace, "-p", patch)
    b.kubectl.run("delete", "cm", "dependent", "-n", b.namespace, "--ignore-not-found", "--wait=false")
    for name in ("foreground", "dependent"):
        b.kubectl.run("wait", "--for=delete", f"cm/{name}", "-n", b.namespace, "--timeout=10s")


@CHECKS.add("900 KiB object")
def large_object(b: Bench) -> None:
    b.kubectl.run(
        "apply",
        "--server-side",
        "-f",
        "-",
        stdin=b.configmap("large", a="x" * 900 * 1024),
    )
    expect(
        len(b.kubectl.json("get", "cm", "large", "-n", b.namespace)["data"]["a"]) == 900 * 1024,
        "another size",
    )


@CHECKS.add("too large objects are refused")
def too_large(b: Bench) -> None:
    for size, reason in ((2 * MIB, "Too long"), (4 * MIB, "Request entity too large")):
        _, seen = b.kubectl.run("create", "-f", "-", stdin=b.configmap("huge", a="x" * size), code=1)
        expect(reason.encode() in seen, seen)


@CHECKS.add("auth can-i")
def can_i(b: Bench) -> None:
    expect(
        (seen := b.kubectl.text("auth", "can-i", "create", "pods").strip()) == "yes",
        seen,
    )
    seen, _ = b.weak.run("auth", "can-i", "create", "pods", code=1)
    expect(seen.strip() == b"no", seen)


@CHECKS.add("auth whoami")
def whoami(b: Bench) -> str:
    if b.version < (1, 28):
        raise SkippedError("this kubectl requires an API that was removed")
    name = b.kubectl.json("auth", "whoami")["status"]["userInfo"]["username"]
    seen = b.weak.json("auth", "whoami")["status"]["userInfo"]
    expect(seen["username"] == "jane" and "team" in seen["groups"], seen)
    return name


@CHECKS.add("create token")
def token(b: Bench) -> None:
    b.kubectl.run("create", "serviceaccount", "robot", "-n", b.namespace)
    seen = b.kubectl.text("create", "token", "robot", "-n", b.namespace).strip()
    expect(seen.count(".") == 2, seen)


@CHECKS.add("errors: not found, forbidden, unknown path")
def errors(b: Bench) -> None:
    for kubectl, reason, arguments in (
        (b.kubectl, "NotFound", ("get", "cm", "nobody")),
        (b.weak, "Forbidden", ("get", "pods")),
        (b.kubectl, "could not find the requested resource", ("get", "--raw", "/no/such/path")),
        (b.kubectl, "doesn't have a resource type", ("get", "nothings")),
    ):
        _, seen = kubectl.run(*arguments, code=1)
        expect(reason.encode() in seen, seen)


@CHECKS.add("--as is obeyed or refused, never dropped")
def impersonation(b: Bench) -> str:
    _, seen = b.kubectl.run("get", "pods", "--as=jane", code=1)
    expect(b"Forbidden" in seen or b"forbidden" in seen, seen)
    if b.may_impersonate:
        expect(b'User "jane" cannot list' in seen, seen)
        return "obeyed"
    expect(b'User "jane" cannot list' not in seen, seen)
    return "refused"


@CHECKS.add("proxy")
def proxy(b: Bench) -> None:
    with b.kubectl.background("proxy", "--port=0") as serving:
        address = serving.line(r"127\.0\.0\.1:\d+")[1][0]
        url = f"http://{address}/api/v1/namespaces/default/pods/shell"
        with urllib.request.urlopen(url, timeout=b.kubectl.left()) as answer:
            expect((seen := json.load(answer))["metadata"]["name"] == "shell", seen)
