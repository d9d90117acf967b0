"""Running the checks of what kubectl must be able to do, each by itself and in bounded time."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from .assets import kubectl_version
from .kubectl import FailedError, Kubectl

MIB = 2**20
MANY = 600  # objects to list, more than kubectl's chunk of 500
AT_ONCE = 200  # objects for one kubectl to create; one that makes more than 300 requests slows down


class SkippedError(Exception):
    """Neither ok nor wrong: this kubectl or cluster lacks the operation; the message has the reason."""


@dataclass
class Row:
    """Result of one operation."""

    operation: str
    result: str  # ok, FAIL or skip
    seconds: float
    detail: str


@dataclass
class Bench:
    """Environment of a check."""

    kubectl: Kubectl  # through the endpoint
    direct: Kubectl  # to the API server itself, if it is known
    weak: Kubectl  # through the endpoint, as the user jane of the group team, without any rights
    may_impersonate: bool  # whether the endpoint lets its users act as others
    namespace: str  # for the check's own objects
    folder: Path  # for the check's own files
    version: tuple[int, int]  # of kubectl

    def configmap(self, name: str, **data: str) -> bytes:
        """Return a ConfigMap's manifest."""
        metadata = {"name": name, "namespace": self.namespace}
        manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        return json.dumps({**manifest, "data": data}).encode()


Check = Callable[[Bench], str | None]


@dataclass
class Registered:
    """A check: its name, its time limit in seconds, and its modes."""

    operation: str
    limit: float
    streaming_since: int | None
    function: Check

    def modes(self, version: tuple[int, int]) -> tuple[str, ...]:
        """Return the modes of kubectl to check; a plain request has only one real mode."""
        if self.streaming_since and version >= (1, self.streaming_since):
            return ("spdy", "ws")
        return ("spdy",)


class Checks(list[Registered]):
    """Checks in the order in which they run."""

    def add(
        self, operation: str, limit: float = 20, streaming_since: int | None = None
    ) -> Callable[[Check], Check]:
        """Add the decorated check.

        With `streaming_since`, kubectls from 1.that on are checked with SPDY and with WebSockets.
        """

        def register(function: Check) -> Check:
            self.append(Registered(operation, limit, streaming_since, function))
            return function

        return register


def expect(condition: object, seen: object) -> None:
    """Fail with the end of *seen*, unless the condition holds."""
    if not condition:
        raise FailedError(f"saw {str(seen)[-200:]!r}")


def run(
    checks: Iterable[Registered],
    binary: Path,
    kubeconfig: Path,
    context: str | None,
    direct: Path | None,
    weak: Path | None = None,
) -> Iterator[Row]:
    """Run the checks with one kubectl; yield the result of each.

    `weak` is jane's own kubeconfig for an endpoint without impersonation; without it, the checks
    become jane by impersonation.
    """
    major, minor = kubectl_version(binary).split(".")[:2]
    version = int(major), int(minor)
    with TemporaryDirectory(prefix="realcluster-") as name:
        folder = Path(name)
        through = Kubectl(binary, kubeconfig, context, folder / "cache")
        other = Kubectl(binary, direct, None, folder / "direct") if direct else through
        if weak:
            jane = Kubectl(binary, weak, None, folder / "weak")
        else:
            jane = Kubectl(binary, kubeconfig, context, folder / "cache", "--as=jane", "--as-group=team")
        bench = Bench(through, other, jane, weak is None, f"matrix-{os.getpid()}", folder, version)
        prepare(bench)
        try:
            for each in checks:
                for through.mode in each.modes(version):
                    other.mode = jane.mode = through.mode
                    tag = f" [{through.mode}]" if each.streaming_since else ""
                    yield run_one(each, tag, bench)
        finally:
            clean_up(bench)


def run_one(each: Registered, tag: str, bench: Bench) -> Row:
    """Run one check; any exception, and a hang, is a failure."""
    began = time.monotonic()
    for kubectl in (bench.kubectl, bench.direct, bench.weak):
        kubectl.deadline = began + each.limit
    try:
        result, detail = "ok", each.function(bench) or ""
    except SkippedError as reason:
        result, detail = "skip", str(reason)
    except FailedError as reason:
        result, detail = "FAIL", str(reason)
    except (subprocess.TimeoutExpired, TimeoutError):
        result, detail = "FAIL", f"not done within {each.limit:.0f} s"
    except (OSError, ValueError, LookupError) as error:  # an answer of another form
        result, detail = "FAIL", f"{type(error).__name__}: {error}"
    seconds = round(time.monotonic() - began, 2)
    return Row(each.operation + tag, result, seconds, " ".join(detail.split()))


def prepare(bench: Bench) -> None:
    """Create the checks' namespace, and many objects in it."""
    bench.kubectl.deadline = bench.direct.deadline = time.monotonic() + 120
    bench.direct.run("create", "namespace", bench.namespace)
    items = [json.loads(bench.configmap(f"many-{number}", a="x")) for number in range(MANY)]
    for item in items:
        item["metadata"]["labels"] = {"many": "yes"}
    for first in range(0, MANY, AT_ONCE):
        manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": items[first : first + AT_ONCE]})
        bench.direct.run("create", "-f", "-", stdin=manifest.encode())


def clean_up(bench: Bench) -> None:
    """Remove the namespace; there is no controller that would finish its deletion."""
    bench.direct.deadline = time.monotonic() + 60
    path = f"/api/v1/namespaces/{bench.namespace}"
    for kind in ("configmaps", "serviceaccounts", "pods"):
        bench.direct.run("delete", "--raw", f"{path}/{kind}")
    bench.direct.run("delete", "namespace", bench.namespace, "--wait=false")
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": bench.namespace}}
    manifest = json.dumps(namespace).encode()
    bench.direct.run("replace", "--raw", f"{path}/finalize", "-f", "-", stdin=manifest)


def rows_as_json(rows: list[Row]) -> str:
    """Return the rows as a JSON list."""
    return json.dumps([asdict(row) for row in rows], indent=1)
