"""Every operation of kubectl, as ``realcluster matrix`` runs them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from .member import REALCLUSTER, Member
from .programs import Program

PATIENCE = 240.0  # s for all operations with one kubectl
FEWEST = 40  # operations that the oldest kubectl has

# A kubelet answers a stream of a port-forward in one goroutine, and resets it in another when nobody listens
# on the port (k8s.io/cri-streaming, portforward/httpstream.go): neither waits for the other.  On a busy
# machine the reset may come first, with Tower and without it; kubectl reports that in place of the refusal.
RACE = ("port-forward to a closed port [spdy]", "error creating forwarding stream", "Stream reset")


class Matrix:
    """One kubectl on one way to a cluster; runs beside others if they are on other clusters.

    :param folder: for its output.
    :param member: the cluster, which the way is compared with.
    :param kubeconfig: names the way, for somebody who may do everything.
    :param weak: the same for jane of the group team, who has no rights; without it, --as takes her part.
    """

    def __init__(
        self, folder: Path, member: Member, kubectl: Path, kubeconfig: Path, weak: Path | None = None
    ) -> None:
        argv = [sys.executable, str(REALCLUSTER), "matrix", "--json", f"--kubectl={kubectl}"]
        argv += [f"--kubeconfig={kubeconfig}", f"--direct={member.admin}"]
        argv += [] if weak is None else [f"--weak={weak}"]
        self._program = Program(f"matrix-{kubeconfig.stem}-{kubectl.name}", argv, folder)

    def start(self) -> None:
        """Have it run."""
        self._program.start()

    def stop(self) -> None:
        """End it, if it still runs."""
        self._program.stop()

    def failed(self) -> list[str]:
        """Wait for its end and return what did not go well; what has a reason to be skipped is no failure."""
        code = self._program.wait(PATIENCE)
        try:
            rows: list[dict[str, Any]] = json.loads(self._program.output())
        except ValueError:
            return [f"exit code {code}: {self._program.tail()}"]
        wrong = [f"{row['operation']}: {row['detail']}" for row in rows if row["result"] == "FAIL"]
        failed = [text for text in wrong if not all(part in text for part in RACE)]
        if code and not wrong:
            failed.append(f"exit code {code}")
        if len(rows) <= FEWEST:
            failed.append(f"there were {len(rows)} operations only")
        return failed
