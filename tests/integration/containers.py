"""Containers of Tower's image, run by runc: read-only, without rights, with the network of this machine."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.integration.programs import Program, run

#: Packages of Debian that build and run images, by command.
PACKAGES = {"buildah": "buildah", "mmdebstrap": "mmdebstrap", "runc": "runc"}

#: Directory that the programs write to, and its owner.
STATE, USER = "/var/lib/tower", 65532


def missing() -> list[str]:
    """Return the packages that are not installed."""
    return [package for command, package in PACKAGES.items() if shutil.which(command) is None]


class UnpackedImage:
    """An image in a folder.

    :param archive: with one image.
    :ivar root: its root directory.
    :ivar settings: user, environment and directory of its programs.
    """

    def __init__(self, archive: Path, folder: Path) -> None:
        self.root = folder / "rootfs"
        with tarfile.open(archive) as whole:

            def blob(digest: str) -> bytes:
                file = whole.extractfile("blobs/" + digest.replace(":", "/"))
                assert file is not None
                return file.read()

            index = whole.extractfile("index.json")
            assert index is not None
            (about,) = json.load(index)["manifests"]
            manifest = json.loads(blob(about["digest"]))
            self.settings: dict[str, Any] = json.loads(blob(manifest["config"]["digest"]))["config"]
            for layer in manifest["layers"]:
                with tarfile.open(fileobj=io.BytesIO(blob(layer["digest"]))) as files:
                    files.extractall(self.root, filter="fully_trusted")


class Container:
    """A container.

    :ivar state: directory of this machine that is `STATE` in the container.
    """

    def __init__(self, name: str, image: UnpackedImage, folder: Path, argv: Sequence[str]) -> None:
        self.state = folder / f"{name}-state"
        self.state.mkdir(exist_ok=True)
        shutil.chown(self.state, USER, USER)
        bundle = folder / f"{name}-bundle"
        bundle.mkdir(exist_ok=True)
        (bundle / "config.json").write_text(json.dumps(self._spec(image, argv)))
        self._runc = ["runc", "--root", str(folder / "runc")]
        self._name = f"{folder.name}-{name}"
        program = [*self._runc, "run", "--bundle", str(bundle), self._name]
        self.program = Program(name, program, folder)

    def give(self, name: str, data: bytes) -> str:
        """Write a file for the container's user; return its path in the container."""
        path = self.state / name
        path.touch(0o600)
        path.write_bytes(data)
        shutil.chown(path, USER, USER)
        return f"{STATE}/{name}"

    def execute(self, *argv: str) -> str:
        """Run another program in the container; return its output."""
        done = run([*self._runc, "exec", self._name, *argv])
        if done.returncode:
            raise AssertionError((done.stdout + done.stderr).decode(errors="replace"))
        return done.stdout.decode()

    def stop(self) -> bool:
        """Stop it; return whether it ran and ended properly."""
        ended = self.program.stop()
        run([*self._runc, "delete", "--force", self._name])
        return ended

    def _spec(self, image: UnpackedImage, argv: Sequence[str]) -> dict[str, Any]:
        none: dict[str, list[str]] = {
            kind: [] for kind in ("bounding", "effective", "inheritable", "permitted")
        }
        user = int(image.settings["User"].partition(":")[0])
        return {
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": user, "gid": user},
                "args": list(argv),
                "env": image.settings["Env"],
                "cwd": image.settings["WorkingDir"],
                "capabilities": none,
                "noNewPrivileges": True,
                "rlimits": [{"type": "RLIMIT_NOFILE", "soft": 4096, "hard": 4096}],
            },
            "root": {"path": str(image.root), "readonly": True},
            "mounts": [
                _mount("/proc", "proc"),
                _mount("/dev", "tmpfs", options=("nosuid", "mode=755")),
                _mount(STATE, "bind", str(self.state), ("bind", "rw")),
            ],
            "linux": {"namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")]},
        }


def _mount(destination: str, kind: str, source: str = "none", options: Sequence[str] = ()) -> dict[str, Any]:
    return {"destination": destination, "type": kind, "source": source, "options": list(options)}
