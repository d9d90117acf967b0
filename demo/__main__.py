"""Start a proxy, an agent and its cluster; print commands to paste; stop everything on Ctrl-C."""

from __future__ import annotations

import fcntl
import http.client
import shlex
import shutil
import signal
import sys
from pathlib import Path

from .clusters import choose
from .programs import HOST, DemoError, Programs, output_of, port_near, script

CLUSTER = "alpha"
CLUSTER_PORTS = 10


def main() -> int:
    """Run the demo in ``.demo`` in the working directory; return the exit code."""
    folder = Path(".demo").absolute()
    folder.mkdir(mode=0o700, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"demo: another demo is running in {folder}; stop it first", file=sys.stderr)
            return 1
        clean(folder)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        programs = Programs(folder)
        try:
            run(folder, programs)
        except DemoError as error:
            print(f"demo: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("\nstopping proxy, agent and cluster ...", file=sys.stderr)
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            programs.stop()
    return 0


def clean(folder: Path) -> None:
    """Remove the files of an earlier demo."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != "lock":
            path.unlink()


def run(folder: Path, programs: Programs) -> None:
    """Start everything, print commands, and wait until a program ends."""
    kubectl = shutil.which("kubectl")
    if not kubectl:
        raise DemoError("kubectl is not installed; 'make demo' downloads it")
    state = folder / "proxy"
    port, secure_port, first = port_near(8080), port_near(8443), port_near(6000)
    options = [f"--state-dir={state}", f"--host={HOST}", f"--port={port}", f"--secure-port={secure_port}"]
    options.append(f"--cluster-ports={first}-{first + CLUSTER_PORTS - 1}")
    programs.start("proxy", [script("tower-proxy"), *options])
    programs.wait("the proxy", lambda: answers(port, "/health"))

    behind = choose(folder, kubectl, programs, state)
    tower = [script("tower"), "--state-dir", str(state)]
    output_of([*tower, "cluster", "add", CLUSTER])
    words = shlex.split(output_of([*tower, "join", CLUSTER, "--format", "env"]))
    secrets = dict(word.split("=", 1) for word in words if word.startswith("TOWER_"))
    health = port_near(8081)
    argv = [script("tower-agent"), *words[words.index("tower-agent") + 1 :]]
    argv += [
        f"--state-dir={folder / 'agent'}",
        f"--kubeconfig={behind.kubeconfig}",
        f"--health-address={HOST}:{health}",
    ]
    programs.start("agent", argv, secrets)
    programs.wait("the tunnel", lambda: answers(health, "/readyz/tunnel"))

    jane = folder / "jane.kubeconfig"
    output_of([*tower, "kubeconfig", CLUSTER, "--user", "jane", "--group", "dev", "--output", str(jane)])
    show = f"{kubectl} --kubeconfig {jane} "
    output_of(shlex.split(show + behind.show))
    print(f"\nCluster {CLUSTER} ({behind.text}) is connected to the proxy at https://{HOST}:{secure_port}.")
    print(f"Logs: {folder}.  Press Ctrl-C to stop everything.  Paste into another terminal:\n")
    for line in (
        shlex.join([*tower, "cluster", "list"]),
        shlex.join([*tower, "cluster", "agents", CLUSTER]),
        *behind.hints,
        show + "auth whoami",
        show + "api-resources",
        show + behind.show,
    ):
        print(f"    {line}")
    print(flush=True)
    programs.stay()


def answers(port: int, path: str) -> bool:
    """Return whether a GET of *path* is answered with 200."""
    connection = http.client.HTTPConnection(HOST, port, timeout=2)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(main())
