"""Streams that kubectl must be able to use: logs, exec, attach, cp, port-forward."""

import hashlib
import os
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from itertools import pairwise

from .kubectl import Background, FailedError
from .matrix import MIB, Bench, Checks, expect

CHECKS = Checks()
LOG_SIZE = 5 * MIB  # for the pod "burst"

# With WebSockets, the API server closes an exec's socket as soon as it has written the last output.  If one
# of the pings that kubectl sends every 5 s arrives while the kernel still sends that output, the kernel
# resets the connection and the rest is lost.  A direct connection at 4 MiB/s lost it in 4 of 10 attempts.
CUT = "unexpected EOF"
ATTEMPTS = 3
PIPED = ["exec", "-i", "shell", "--"]


@cache
def bulk() -> bytes:
    """Return 64 MiB that do not compress, nor repeat within a flow-control window."""
    return os.urandom(8 * MIB) * 8


def digest(data: bytes) -> str:
    """Return the SHA-256 of data."""
    return hashlib.sha256(data).hexdigest()


@CHECKS.add("logs")
def logs(b: Bench) -> None:
    seen = b.kubectl.text("logs", "shell", "-c", "sidecar", "--tail=3", "--timestamps").splitlines()
    expect(
        len(seen) == 3 and all(re.fullmatch(r"\d{4}-\S+Z line \d+", line) for line in seen),
        seen,
    )


@CHECKS.add("logs -f, live")
def logs_follow(b: Bench) -> str:
    with b.kubectl.background("logs", "-f", "shell", "-c", "sidecar", "--tail=1") as following:
        arrivals = [following.line(r"^line (\d+)$") for _ in range(25)]
    numbers = [int(match[1]) for _, match in arrivals]
    expect(numbers == list(range(numbers[0], numbers[0] + 25)), numbers)
    gap = max(after[0] - before[0] for before, after in pairwise(arrivals))
    expect(gap < 1.5, f"a gap of {gap:.2f} s in lines that are written every 0.1 s")
    return f"longest gap {gap * 1000:.0f} ms"


@CHECKS.add("logs, 5 MiB, equal direct")
def logs_large(b: Bench) -> None:
    seen, wanted = (each.run("logs", "burst")[0] for each in (b.kubectl, b.direct))
    expect(
        len(seen) == LOG_SIZE and seen == wanted,
        f"{len(seen)} bytes, directly {len(wanted)}",
    )


@CHECKS.add("exec uses the requested protocol", streaming_since=29)
def exec_protocol(b: Bench) -> None:
    out, log = b.kubectl.run("exec", "shell", "-c", "main", "-v=7", "--", "echo", "here")
    expect(out == b"here\n", out)
    expect_upgrade(b, log.decode(), "exec")


def expect_upgrade(b: Bench, log: str, subresource: str) -> None:
    """Fail unless kubectl's log has just one upgrade, by the method that belongs to the mode."""
    methods = re.findall(rf"\b(GET|POST)\W.*/pods/shell/{subresource}", log)
    expect(methods == [{"ws": "GET", "spdy": "POST"}[b.kubectl.mode]], f"upgrades by {methods}")


@CHECKS.add("exec, standard input", streaming_since=29)
def exec_stdin(b: Bench) -> None:
    expect((seen := b.kubectl.text(*PIPED, "cat", stdin=b"hello\n")) == "hello\n", seen)


@CHECKS.add("exec, exit code", streaming_since=29)
def exec_code(b: Bench) -> None:
    b.kubectl.run("exec", "shell", "--", "sh", "-c", "exit 42", code=42)


@CHECKS.add("exec, standard error apart", streaming_since=29)
def exec_stderr(b: Bench) -> None:
    out, error = b.kubectl.run("exec", "shell", "-c", "main", "--", "sh", "-c", "echo out; echo error >&2")
    expect((out, error) == (b"out\n", b"error\n"), (out, error))


@CHECKS.add("exec, 64 MiB in and out", limit=120, streaming_since=29)
def exec_bulk(b: Bench) -> str:
    for attempt in range(1, ATTEMPTS + 1):
        began = time.monotonic()
        try:
            out, _ = b.kubectl.run(*PIPED, "cat", stdin=bulk())
        except FailedError as reason:
            if attempt == ATTEMPTS or b.kubectl.mode != "ws" or CUT not in str(reason):
                raise
        else:
            break
    expect(digest(out) == digest(bulk()), f"{len(out)} bytes back")
    return f"{64 / (time.monotonic() - began):.0f} MiB/s, attempt {attempt}"


@CHECKS.add("exec -it, resized", streaming_since=29)
def exec_terminal(b: Bench) -> None:
    with b.kubectl.terminal("exec", "-it", "shell", "-c", "main", "--", "sh", size=(40, 120)) as terminal:
        terminal.ask("stty size", r"\b40 120\r")
        terminal.resize(50, 160)
        terminal.ask("stty size", r"\b50 160\r")
        expect((code := terminal.end("exit 7")) == 7, f"exit code {code}")


@CHECKS.add("attach", streaming_since=29)
def attach(b: Bench) -> None:
    with b.kubectl.background("attach", "-i", "shell", "-c", "main") as attached:
        for _ in range(3):
            attached.send("echo answer $((6 * 7))\n")
            attached.line("answer 42")


@CHECKS.add("attach -it", streaming_since=29)
def attach_terminal(b: Bench) -> None:
    with b.kubectl.terminal("attach", "-it", "terminal", size=(41, 121)) as terminal:
        terminal.ask("stty size", r"\b41 121\r")


@CHECKS.add("run --rm -i", limit=30, streaming_since=29)
def run_pod(b: Bench) -> None:
    name = f"run-{b.kubectl.mode}"
    options = ["-n", b.namespace, "--rm", "-i", "--restart=Never", "--image=local/process"]
    shout = ["--command", "--", "sh", "-c", "sleep 1; tr a-z A-Z"]
    out, _ = b.kubectl.run("run", name, *options, *shout, stdin=b"shout\n")
    expect(b"SHOUT" in out, out)


@CHECKS.add("cp, 16 MiB to and from", limit=60, streaming_since=29)
def copy(b: Bench) -> None:
    source, back = b.folder / "source", b.folder / "back"
    source.write_bytes(bulk()[: 16 * MIB])
    b.kubectl.run("cp", str(source), "default/shell:copied", "-c", "main")
    b.kubectl.run("cp", "default/shell:copied", str(back), "-c", "main")
    expect(
        digest(back.read_bytes()) == digest(source.read_bytes()),
        f"{back.stat().st_size} bytes back",
    )


@contextmanager
def echo_server() -> Iterator[int]:
    """Serve a port that sends back what it gets, each connection until its end."""

    def echo(connection: socket.socket) -> None:
        with connection, suppress(ConnectionError):
            while chunk := connection.recv(256 << 10):
                connection.sendall(chunk)

    def accept() -> None:
        while True:
            try:
                connection = listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=echo, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def round_trip(port: int, data: bytes, timeout: float) -> bytes:
    """Send data to a port, end the sending side, and return all that comes back."""
    with socket.create_connection(("127.0.0.1", port), timeout) as connection:

        def send() -> None:
            with suppress(OSError):  # lost data is missing in the answer
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        parts = []
        while chunk := connection.recv(256 << 10):
            parts.append(chunk)
        sender.join(timeout)
    return b"".join(parts)


@contextmanager
def forwarded(b: Bench, port: int, *options: str) -> Iterator[tuple[int, Background]]:
    """Forward a free local port to `port` of the pod while the block lasts."""
    with b.kubectl.background("port-forward", *options, "pod/shell", f":{port}") as forward:
        yield int(forward.line(r"127\.0\.0\.1:(\d+) ->")[1][1]), forward


@CHECKS.add("port-forward uses the requested protocol", streaming_since=30)
def port_forward_protocol(b: Bench) -> None:
    with echo_server() as port, forwarded(b, port, "-v=7") as (local, forward):
        expect((back := round_trip(local, b"x", b.kubectl.left())) == b"x", back)
        expect_upgrade(b, forward.seen, "portforward")


@CHECKS.add("port-forward, 64 MiB both ways", limit=60, streaming_since=30)
def port_forward(b: Bench) -> str:
    with (
        echo_server() as port,
        b.kubectl.background("port-forward", "pod/shell", f":{port}") as forward,
    ):
        local = int(forward.line(r"127\.0\.0\.1:(\d+) ->")[1][1])
        expect(round_trip(local, b"small", b.kubectl.left()) == b"small", "another answer")
        began = time.monotonic()
        back = round_trip(local, bulk(), b.kubectl.left())
        expect(digest(back) == digest(bulk()), f"{len(back)} bytes back")
        return f"{64 / (time.monotonic() - began):.0f} MiB/s"


@CHECKS.add("port-forward, 20 connections at once", limit=30, streaming_since=30)
def port_forward_many(b: Bench) -> None:
    with (
        echo_server() as port,
        b.kubectl.background("port-forward", "pod/shell", f":{port}") as forward,
    ):
        local = int(forward.line(r"127\.0\.0\.1:(\d+) ->")[1][1])
        answers: dict[int, bytes] = {}

        def talk(number: int) -> None:
            answers[number] = round_trip(local, b"%d" % number * 1000, b.kubectl.left())

        threads = [threading.Thread(target=talk, args=(number,), daemon=True) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(b.kubectl.left())
        expect(
            answers == {number: b"%d" % number * 1000 for number in range(20)},
            sorted(answers),
        )


@CHECKS.add("port-forward, a client that resets", streaming_since=30)
def port_forward_reset(b: Bench) -> None:
    with echo_server() as port, forwarded(b, port) as (local, _):
        with socket.create_connection(("127.0.0.1", local), b.kubectl.left()) as connection:
            connection.sendall(bytes(MIB))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        back = round_trip(local, b"next", b.kubectl.left())
        expect(back == b"next", back)


@CHECKS.add("port-forward to a closed port", streaming_since=30)
def port_forward_closed(b: Bench) -> str:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        closed = unused.getsockname()[1]
    ends = []
    for kubectl in (b.kubectl, b.direct):
        with forwarded(replace(b, kubectl=kubectl), closed) as (local, forward):
            with suppress(ConnectionError):  # a reset counts as an end
                back = round_trip(local, b"x", b.kubectl.left())
                expect(back == b"", back)
            forward.line("connection refused")
            ends.append(forward.end(1))
    expect(ends[0] == ends[1], f"exit code {ends[0]}, directly {ends[1]}")
    return "kubectl goes on" if ends[0] is None else "kubectl ends"
