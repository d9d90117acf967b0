"""Every operation of kubectl, as ``realcluster matrix`` runs them."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from tests.integration.member import REALCLUSTER, Member
from tests.integration.programs import Program

PATIENCE = 1800.0  # s for all operations with one kubectl; each has its own limit
FEWEST = 40  # operations that the oldest kubectl has

# A kubelet answers a stream of a port-forward in one goroutine, and resets it in another if nothing listens
# on the port (k8s.io/cri-streaming, portforward/httpstream.go): neither waits for the other.  On a busy
# machine the reset may come first, with Tower and without it; kubectl reports that in place of the refusal.
# With WebSockets, too: the API server carries the same SPDY streams in them.
RACE = ("port-forward to a closed port [", "error creating forwarding stream", "Stream reset")


class Matrix:
    """One kubectl on one path to a cluster; runs concurrently with others if they are on other clusters.

    :param folder: for its output.
    :param member: the cluster, reached directly for comparison.
    :param kubeconfig: of the path, with a user who may do everything.
    :param weak: the same for jane of the group team, without any rights; without it, --as is used instead.
    :param only: names of the operations to run; all without it.
    :param environment: more variables for it, kubectl and its plugins.
    """

    def __init__(
        self,
        folder: Path,
        member: Member,
        kubectl: Path,
        kubeconfig: Path,
        weak: Path | None = None,
        *,
        only: Collection[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        argv = [sys.executable, str(REALCLUSTER), "matrix", "--json", f"--kubectl={kubectl}"]
        argv += [f"--kubeconfig={kubeconfig}", f"--direct={member.admin}"]
        argv += [] if weak is None else [f"--weak={weak}"]
        if only:
            argv.append("--only=" + "|".join(f"^{re.escape(name)}$" for name in only))
        self._fewest = 0 if only else FEWEST
        descriptor, log = tempfile.mkstemp(prefix="matrix-", suffix=".log", dir=folder)
        os.close(descriptor)
        self._program = Program(Path(log).stem, argv, folder, environment)

    def start(self) -> None:
        """Start it."""
        self._program.start()

    def stop(self) -> None:
        """End it, if it still runs."""
        self._program.stop()

    def failed(self) -> list[str]:
        """Wait for its end and return the failures; operations skipped for a reason are not failures."""
        return [f"{operation}: {detail}" for operation, detail in self.failures()]

    def failures(self) -> list[tuple[str, str]]:
        """Do as `failed`; return the operations and their results separately."""
        code = self._program.wait(PATIENCE)
        try:
            rows: list[dict[str, Any]] = json.loads(self._program.output())
        except ValueError:
            return [("all", f"exit code {code}: {self._program.tail()}")]
        wrong = [(row["operation"], row["detail"]) for row in rows if row["result"] == "FAIL"]
        failed = [pair for pair in wrong if not all(part in ": ".join(pair) for part in RACE)]
        if code and not wrong:
            failed.append(("all", f"exit code {code}"))
        if len(rows) <= self._fewest:
            failed.append(("all", f"there were {len(rows)} operations only"))
        return failed
