"""The choice between Tower's modules in Python and their compiled versions.

`MODULES` can be compiled by mypyc (see ``setup.py``).  The result is one library for all of them, whose name
contains the digest of their sources, and for each module a small extension next to its ``.py``.  All of them
are used, or none: if any is missing, damaged, or compiled from other sources, the modules in Python are
imported.  Damage that keeps a file's size is only found in an installed wheel, whose ``RECORD`` has digests.

All other modules come from their ``.py`` files, even if extensions of another build are next to them.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import struct
import sys
from base64 import urlsafe_b64encode
from collections.abc import Collection, Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

#: The modules that can be compiled: those that handle each packet or request.
MODULES = (
    "tower.conch.connection.channel",
    "tower.conch.connection.channel_open",
    "tower.conch.connection.fairness",
    "tower.conch.connection.messages",
    "tower.conch.connection.mux",
    "tower.conch.connection.receive_queue",
    "tower.conch.connection.traffic",
    "tower.conch.connection.window",
    "tower.conch.transport.ciphers",
    "tower.conch.transport.packets",
    "tower.conch.tunnel.framing",
    "tower.conch.tunnel.inlet",
    "tower.conch.tunnel.outlet",
    "tower.http.bodies",
    "tower.http.requests",
    "tower.http.responses",
    "tower.kube.head_policy",
    "tower.member.apiserver_relay",
    "tower.net.budget",
    "tower.net.buffers",
    "tower.net.connection",
    "tower.net.pipes",
    "tower.net.send_queue",
    "tower.net.tls.connection",
    "tower.net.tls.session",
    "tower.reactor.poller",
    "tower.reactor.turn",
    "tower.web.access.admission_cache",
    "tower.web.access.audit.audit",
    "tower.web.access.audit.formats",
    "tower.web.access.audit.known_entry",
    "tower.web.access.audit.request_entry",
    "tower.web.gateway.exchange",
    "tower.web.gateway.http_channel",
    "tower.web.gateway.inflight",
    "tower.web.gateway.measurements",
    "tower.web.gateway.proxy_client",
    "tower.web.gateway.received_request",
    "tower.web.gateway.relay",
    "tower.web.gateway.request",
    "tower.web.gateway.upstream.channel_pool",
    "tower.web.gateway.upstream.cluster_upstream",
    "tower.web.gateway.user_session",
    "tower.web.limits.active_users",
    "tower.web.limits.admissions",
    "tower.web.limits.caps",
    "tower.web.limits.door_limits",
    "tower.web.limits.seat_pool",
    "tower.web.ports.cluster_router",
    "tower.web.request_id",
    "tower.web.request_kind",
    "tower.websocket.frames",
    "tower.websocket.masks",
)

#: Environment variable: ``0`` selects the modules in Python, ``1`` the compiled ones, and it is an error if
#: they cannot be used.  By default, the compiled ones are used if they can be.
VARIABLE = "TOWER_NATIVE"


#: The reason for the modules in Python if no compiled ones are installed.
NOT_INSTALLED = "Tower was installed without compiled modules"

#: The ends of errors: of damage, and of missing modules that were required.
_CURE = "install Tower again, or set TOWER_NATIVE=0"
_INSTALL = f"install it again with {VARIABLE}=1 pip install ., or unset {VARIABLE}"


class NotNative(ImportError):
    """The compiled modules cannot be used."""


class PythonFinder:
    """Finds the ``.py`` files of Tower's modules, even if extensions are next to them.

    :param compiled: modules that it leaves to Python's own finder.
    """

    def __init__(self, compiled: Collection[str] = ()) -> None:
        self._compiled = frozenset(compiled)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module; see `importlib.abc.MetaPathFinder`."""
        if path is None or not fullname.startswith("tower.") or fullname in self._compiled:
            return None
        name = fullname.rpartition(".")[2]
        for folder in path:
            for end in ("/__init__.py", ".py"):
                file = f"{folder}/{name}{end}"
                if os.path.isfile(file):
                    return spec_from_file_location(fullname, file)
        return None


def source_of(root: Path, module: str) -> Path:
    """Return the path of a module's ``.py`` file; *root* is the directory that contains ``tower``."""
    return root.joinpath(*module.split(".")).with_suffix(".py")


def group_of(root: Path) -> str:
    """Return the name of the group of modules that is compiled from these sources."""
    digest = hashlib.sha256()
    for module in MODULES:
        digest.update(source_of(root, module).read_bytes())
    return f"tower_{digest.hexdigest()[:16]}"


def library_of(root: Path) -> str:
    """Return the name of the module that contains the code of all compiled modules."""
    return f"{group_of(root)}__mypyc"


def load(root: Path) -> None:
    """Load the compiled modules' library, so that importing the modules uses it.

    :raise NotNative: the library or an extension is missing, truncated, damaged, compiled for another Python
        or from other sources, or cannot be read or loaded.  Then no extension has been imported.
    """
    extensions = [source_of(root, module).with_suffix(EXTENSION_SUFFIXES[0]) for module in MODULES]
    if not any(extension.exists() for extension in extensions):
        source = source_of(root, MODULES[0])
        for foreign in source.parent.glob(f"{source.stem}.*.so"):
            raise NotNative(f"{foreign} was compiled for another Python; {_CURE}")
        raise NotNative(NOT_INSTALLED)
    name = library_of(root)
    library = root / f"{name}{EXTENSION_SUFFIXES[0]}"
    recorded = _recorded(root)
    for path in (*extensions, library):
        data = _read(path)
        if recorded and _entry(path.relative_to(root), data) not in recorded:
            raise NotNative(f"{path} is damaged (its digest is not in RECORD); {_CURE}")
        if path != library and name.encode() not in data:
            raise NotNative(f"{path} was compiled from other sources; {_CURE}")
    for extension in extensions:
        try:
            ctypes.CDLL(str(extension))
        except OSError as e:
            raise NotNative(f"{extension} cannot be loaded ({e}); {_CURE}") from e
    _load_library(name, library)


def _recorded(root: Path) -> set[bytes]:
    """Return path and digest of each file of an installed wheel, from its ``RECORD``; empty in a checkout.

    :raise NotNative: the ``RECORD`` is truncated or cannot be read.
    """
    records = root.glob("kubesphere_tower-*.dist-info/RECORD")
    return {line.rpartition(b",")[0] for record in records for line in _read(record).splitlines()}


def _entry(path: Path, data: bytes) -> bytes:
    """Return path and digest of a file with *data*, as in a ``RECORD``; the path is relative."""
    digest = urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
    return path.as_posix().encode() + b",sha256=" + digest


def _read(path: Path) -> bytes:
    """Read an installed file.

    :raise NotNative: it is missing, truncated, or cannot be read.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise NotNative(f"{path} is missing; {_CURE}") from None
    except OSError as e:
        raise NotNative(f"{path} cannot be read ({e.strerror}); {_CURE}") from e
    if _is_truncated(data):
        raise NotNative(f"{path} is truncated; {_CURE}")
    return data


def _load_library(name: str, path: Path) -> None:
    """Load the library, which the extensions import by its name.

    :raise NotNative: it cannot be loaded.
    """
    try:
        spec = spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        library = module_from_spec(spec)
        spec.loader.exec_module(library)
    except (ImportError, OSError, SystemError) as e:
        raise NotNative(f"{path} cannot be loaded ({e}); {_CURE}") from e
    sys.modules[name] = library


def _is_truncated(data: bytes) -> bool:
    """Return whether a file ends before its ELF section headers do; loading it would crash the process.

    Of files as long as an ELF header, only 64-bit ELF files are checked.
    """
    if len(data) < 64:
        return True
    if data[:5] != b"\x7fELF\x02":
        return False
    order = "<" if data[5] == 1 else ">"
    (table,) = struct.unpack_from(f"{order}Q", data, 0x28)
    entry, count = struct.unpack_from(f"{order}HH", data, 0x3A)
    return bool(table + entry * count > len(data))


def choose(wanted: str, root: Path) -> str:
    """Choose the versions of `MODULES`; call this before any of them is imported.

    :param wanted: the value of `VARIABLE`.
    :return: why the modules in Python are used; empty if the compiled ones are.
    :raise SystemExit: *wanted* is ``1`` and the compiled ones cannot be used, or *wanted* is not valid.
    """
    if wanted not in ("", "0", "1"):
        raise SystemExit(f"{VARIABLE}={wanted}: must be 0, 1 or empty")
    why = f"{VARIABLE}=0"
    if wanted != "0":
        try:
            load(root)
        except NotNative as e:
            why = str(e)
            if wanted == "1":
                cure = f"; {_INSTALL}" if why == NOT_INSTALLED else ""
                raise SystemExit(f"{VARIABLE}=1: {why}{cure}") from None
        else:
            why = ""
    sys.meta_path.insert(0, PythonFinder(() if why else MODULES))
    return why


def warnings_of(why: str) -> list[str]:
    """Return a warning for the log if compiled modules are installed but cannot be used.

    :param why: the result of `choose`.
    """
    if why in ("", NOT_INSTALLED, f"{VARIABLE}=0"):
        return []
    return [f"running without compiled modules: {why}"]
