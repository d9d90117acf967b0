"""The time of day of another process, in any language, changed while the process runs.

Programs read clocks in the vDSO, code that the kernel maps into each process.  This replaces the start of its
functions by the system call and an addition.  Monotonic time and other processes are not changed.
"""

from __future__ import annotations

import os
import platform
import signal
import struct
from collections.abc import Callable
from pathlib import Path
from unittest import SkipTest

from tests.integration.programs import wait_for

_DYNAMIC_SYMBOLS = 11  # section type SHT_DYNSYM
_SYMBOL = 24  # B


def _clock_gettime(seconds: bytes) -> bytes:
    """Return code for ``clock_gettime(clock, time)`` that adds *seconds* to CLOCK_REALTIME."""
    # mov eax, 228; syscall; test eax, eax; jnz end; test edi, edi; jnz end
    # add qword [rsi], seconds; end: ret
    return bytes.fromhex("b8e4000000 0f05 85c0 750b 85ff 7507 488106") + seconds + b"\xc3"


def _gettimeofday(seconds: bytes) -> bytes:
    """Return code for ``gettimeofday(time, zone)`` that adds *seconds*."""
    # mov eax, 96; syscall; test rdi, rdi; jz end; add qword [rdi], seconds; end: ret
    return bytes.fromhex("b860000000 0f05 4885ff 7407 488107") + seconds + b"\xc3"


def _time(seconds: bytes) -> bytes:
    """Return code for ``time(time)`` that adds *seconds*."""
    # mov eax, 201; syscall; add rax, seconds; test rdi, rdi; jz end; mov [rdi], rax; end: ret
    code = bytes.fromhex("b8c9000000 0f05 4805")
    return code + seconds + bytes.fromhex("4885ff 7403 488907 c3")


_CODES: dict[str, Callable[[bytes], bytes]] = {
    "__vdso_clock_gettime": _clock_gettime,
    "__vdso_gettimeofday": _gettimeofday,
    "__vdso_time": _time,
}


class ProcessClock:
    """The clock of a running process of this user, which must be a descendant unless we are root.

    :raise SkipTest: not on this processor.
    """

    def __init__(self, pid: int) -> None:
        if platform.machine() != "x86_64":
            raise SkipTest("clocks of processes can be changed on x86-64 only")
        self._pid = pid
        self._start, self._image = self._vdso()
        self._functions = _functions(self._image)

    def set(self, seconds: int) -> None:
        """Set the clock *seconds* ahead of this machine's; 0 repairs it."""
        changes = {}
        for name, code in _CODES.items():
            at = self._functions[name]
            new = code(struct.pack("<i", seconds))
            changes[at] = new if seconds else self._image[at : at + len(new)]
        wait_for("a moment without a call of the clock", lambda: self._write(changes))

    def _write(self, changes: dict[int, bytes]) -> bool:
        """Write code while the process is stopped; return False if a thread runs in this code."""
        os.kill(self._pid, signal.SIGSTOP)
        try:
            wait_for("the stop", lambda: all(map(_is_stopped, self._tasks())), every=0.001)
            counters = [_program_counter(task) for task in self._tasks()]
            for at, code in changes.items():
                first = self._start + at
                if any(first < counter < first + len(code) for counter in counters):
                    return False
            with open(f"/proc/{self._pid}/mem", "r+b", buffering=0) as memory:
                for at, code in changes.items():
                    memory.seek(self._start + at)
                    memory.write(code)
            return True
        finally:
            os.kill(self._pid, signal.SIGCONT)

    def _tasks(self) -> list[Path]:
        return list(Path(f"/proc/{self._pid}/task").iterdir())

    def _vdso(self) -> tuple[int, bytes]:
        """Return the address and the content of the vDSO."""
        for line in Path(f"/proc/{self._pid}/maps").read_text().splitlines():
            if line.endswith("[vdso]"):
                first, last = (int(part, 16) for part in line.split()[0].split("-"))
                with open(f"/proc/{self._pid}/mem", "rb", buffering=0) as memory:
                    memory.seek(first)
                    return first, memory.read(last - first)
        raise AssertionError(f"process {self._pid} has no vDSO")


def _is_stopped(task: Path) -> bool:
    return (task / "stat").read_text().rpartition(")")[2].split()[0] in "TtZX"


def _program_counter(task: Path) -> int:
    return int((task / "syscall").read_text().split()[-1], 16)


def _functions(image: bytes) -> dict[str, int]:
    """Return the offsets of the functions in an ELF image by name."""
    (table,) = struct.unpack_from("<Q", image, 0x28)
    size, count = struct.unpack_from("<HH", image, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", image, table + size * number) for number in range(count)]
    found = {}
    for section in sections:
        if section[1] != _DYNAMIC_SYMBOLS:
            continue
        names = sections[section[6]][4]
        for at in range(section[4], section[4] + section[5], _SYMBOL):
            name, *_, value, _ = struct.unpack_from("<IBBHQQ", image, at)
            text = image[names + name : image.index(b"\0", names + name)]
            found[text.decode()] = value
    return found
