"""Keeping clusters up until a signal, and ending what was started."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from .cluster import LIBC, STOP_TIMEOUT, Cluster

POLL = 0.2  # seconds between looks at the parts
PR_SET_CHILD_SUBREAPER = 36


def supervise(clusters: list[Cluster], ready: Callable[[], None]) -> int:
    """Run the clusters until SIGTERM or SIGINT and call `ready` once all are up.

    Return 1 when a part of a cluster ends by itself.  However this ends, what was started ends too.
    """
    adopt_orphans()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    try:
        for cluster in clusters:
            cluster.start()
        for cluster in clusters:
            cluster.populate()
        ready()
        while True:
            for cluster in clusters:
                if part := cluster.ended():
                    print(f"{cluster.name}: {part} has ended", file=sys.stderr, flush=True)
                    return 1
            time.sleep(POLL)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        for cluster in clusters:
            cluster.stop()
        end_orphans()


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1)


def end_orphans() -> None:
    """Kill what is left of the pods' processes when their kubelet could not do so."""
    while children := Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        for pid in map(int, children):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def start_time(pid: int) -> str:
    """Return when a process started, in clock ticks since boot, or "" when it does not run."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state == "Z" else fields[18]


def record(directory: Path) -> None:
    """Record this process as the one to end in order to take down the clusters in `directory`."""
    note = {"pid": os.getpid(), "started": start_time(os.getpid())}
    (directory / "supervisor.json").write_text(json.dumps(note))


def running(directory: Path) -> int | None:
    """Return the pid of the running supervisor of the clusters in `directory`, if there is one."""
    path = directory / "supervisor.json"
    note = json.loads(path.read_text()) if path.exists() else {"pid": 0, "started": "never"}
    return note["pid"] if start_time(note["pid"]) == note["started"] else None


def down(directory: Path) -> bool:
    """End the supervisor of the clusters in `directory` and all that it started; False if none runs."""
    pid = running(directory)
    if pid is None:
        return False
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_TIMEOUT * 10
    while running(directory) and time.monotonic() < deadline:
        time.sleep(0.05)
    if running(directory):
        os.kill(pid, signal.SIGKILL)  # the parts die with it
    return True
