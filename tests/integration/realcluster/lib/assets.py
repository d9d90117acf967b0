"""The binaries: building them once, and finding installed kubectls."""

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent
CONTROLLERS = ("kube-controller-manager", "kube-scheduler", "enter")  # for `up --controllers` alone
BINARIES = ("etcd", "kube-apiserver", "kubelet-standin", "kubectl", *CONTROLLERS)
SHARED = {"kubelet-standin": ("entry",), "enter": ("entry",)}  # packages of ours that a command imports
CONVENTION = ("etcd", "kube-apiserver", "kubectl")  # contents of KUBEBUILDER_ASSETS


class BuildError(Exception):
    """A binary could not be built; the message has the reason."""


def base() -> Path:
    """Return the directory of all versions' binaries."""
    if given := os.environ.get("REALCLUSTER_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "realcluster"


def sources(name: str) -> list[Path]:
    """Return the files here from which a command is built."""
    folders = [f"cmd/{name}", *SHARED.get(name, ())]
    return [
        HOME / "go.mod",
        HOME / "go.sum",
        *(path for each in folders for path in HOME.glob(f"{each}/*.go")),
    ]


def digest(paths: Iterable[Path]) -> str:
    """Return a name for the content of files."""
    summed = hashlib.sha256()
    for path in sorted(set(paths)):
        summed.update(path.relative_to(HOME).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return summed.hexdigest()[:12]


def cache() -> Path:
    """Return the directory of the binaries that this version of the module builds."""
    return base() / digest(path for name in BINARIES for path in sources(name))


def kubernetes_version() -> str:
    """Return the release of Kubernetes in go.mod, such as v1.36.3."""
    return re.search(r"k8s\.io/kubernetes (v\S+)", (HOME / "go.mod").read_text())[1]


def build(*, bare: bool = False, controllers: bool = False) -> tuple[Path, Path | None]:
    """Build what is missing; return the directory of CONVENTION's binaries and the path of the stand-in.

    With `bare` there is no stand-in, so that nothing is built where KUBEBUILDER_ASSETS is complete.  With
    `controllers`, the binaries of CONTROLLERS are next to the stand-in.
    """
    directory = cache()
    directory.mkdir(parents=True, exist_ok=True)
    given = Path(os.environ.get("KUBEBUILDER_ASSETS") or os.devnull)
    complete = all(os.access(given / name, os.X_OK) for name in CONVENTION)
    wanted = [name for name in BINARIES if not (complete and name in CONVENTION)]
    if bare:
        wanted.remove("kubelet-standin")
    if not controllers:
        wanted = [name for name in wanted if name not in CONTROLLERS]
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = [name for name in wanted if not (directory / name).exists()]
        for number, name in enumerate(missing, 1):
            provide(directory, name, f"[{number}/{len(missing)}]")
    return (given if complete else directory), None if bare else directory / "kubelet-standin"


def provide(directory: Path, name: str, progress: str) -> None:
    """Link a command into `directory`; it is built if no other version has the same sources."""
    built = base() / "commands" / f"{name}-{digest(sources(name))}"
    if not built.exists():
        built.parent.mkdir(exist_ok=True)
        build_one(built, name, progress)
    os.link(built, directory / name)


def build_one(path: Path, name: str, progress: str) -> None:
    """Build one command."""
    go = shutil.which("go")
    if not go:
        raise BuildError("there is no go on PATH; building needs Go 1.26 or newer")
    print(f"{progress} building {name} ...", end=" ", file=sys.stderr, flush=True)
    version = kubernetes_version()
    major, minor, _ = version[1:].split(".", 2)
    stamps = {
        "gitVersion": version,
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
    }
    flags = " ".join(f"-X k8s.io/component-base/version.{key}={value}" for key, value in stamps.items())
    unfinished = path.with_name(f".{path.name}")
    command = [
        go,
        "build",
        "-trimpath",
        "-ldflags",
        f"-s -w {flags}",
        "-o",
        str(unfinished),
        f"./cmd/{name}",
    ]
    began = time.monotonic()
    if subprocess.run(command, check=False, cwd=HOME).returncode:
        raise BuildError(f"{name} was not built")
    unfinished.rename(path)
    size = path.stat().st_size / 2**20
    print(f"{time.monotonic() - began:.0f} s, {size:.0f} MiB", file=sys.stderr)


def kubectls() -> list[tuple[str, Path]]:
    """Return the (version, path) of every kubectl: built, on PATH, or next to one; the oldest first."""
    folders = [cache(), *map(Path, os.environ.get("PATH", "").split(os.pathsep))]
    if os.environ.get("KUBEBUILDER_ASSETS"):
        folders.append(Path(os.environ["KUBEBUILDER_ASSETS"]))
    if first := shutil.which("kubectl"):
        folders.append(Path(first).resolve().parent)
    found: dict[Path, str] = {}
    for folder in folders:
        for path in (folder / "kubectl", *sorted(folder.glob("kubectl[.-][0-9]*"))):
            real = path.resolve()
            if real not in found and os.access(real, os.X_OK) and (version := kubectl_version(real)):
                found[real] = version
    return sorted(((version, path) for path, version in found.items()), key=sort_key)


def newest_kubectl() -> Path:
    """Return the newest kubectl of those found that is a release."""
    releases = [path for version, path in kubectls() if "-" not in version]
    if not releases:
        raise BuildError("there is no kubectl on PATH; build one with: realcluster build")
    return releases[-1]


def kubectl_version(path: Path) -> str:
    """Return a kubectl's own version without the leading v, or "" if it is not known."""
    answer = subprocess.run(
        [path, "version", "--client", "-o", "json"], check=False, capture_output=True, timeout=30
    )
    try:
        return json.loads(answer.stdout)["clientVersion"]["gitVersion"].removeprefix("v")
    except (ValueError, KeyError):
        return ""


def sort_key(entry: tuple[str, Path]) -> tuple[list[int], str]:
    """Order versions by their numbers."""
    return [int(number) for number in re.findall(r"\d+", entry[0])[:3]], entry[0]
