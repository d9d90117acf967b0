"""A user at a machine with the ``tower`` command, a browser, and an own kubeconfig."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlencode, urljoin

from tests.integration.programs import reset_signals, script

#: Longest time of a command on a busy machine, s.
PATIENCE = 90.0

#: Headless browsers of Debian's packages.
BROWSERS = ("chromium-headless-shell", "chromium")


def chromium(folder: Path) -> str:
    """Return the value of $BROWSER for a headless Chromium, which shows the last page in a file.

    :raise AssertionError: the machine has none.
    """
    program = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if program is None:
        raise AssertionError(
            f"install one of {', '.join(BROWSERS)} (apt-get install chromium-headless-shell)"
        )
    path = folder / "browser"
    options = (
        "--headless --no-sandbox --disable-gpu --ignore-certificate-errors --disable-dev-shm-usage "
        f"--user-data-dir={folder / 'browser-data'} --virtual-time-budget=20000 --dump-dom"
    )
    path.write_text(
        f'#!/bin/sh\nexec {program} {options} "$1" >{folder / "page.html"} 2>{folder / "browser.log"}\n'
    )
    path.chmod(0o700)
    return f"{path} %s"


def follower() -> str:
    """Return the value of $BROWSER for a browser that only follows redirects."""
    return f"{sys.executable} -m tests.integration.person_login %s"


def form_browser(user: str) -> str:
    """Return the value of $BROWSER for a browser that also fills in forms, with the name of a user."""
    return f"{follower()} {user}"


class PersonAtMachine:
    """The user.

    :param folder: the home directory is below it.
    :param browser: value of $BROWSER; empty: the machine has none.
    :param more: other variables of the environment.
    :ivar kubeconfig: the default one.
    """

    def __init__(self, folder: Path, browser: str = "", more: Mapping[str, str] | None = None) -> None:
        self.home = folder / "home"
        self.home.mkdir()
        self.kubeconfig = self.home / ".kube" / "config"
        commands = folder / "bin"
        commands.mkdir()
        (commands / "tower").symlink_to(script("tower"))
        kept = {name: value for name, value in os.environ.items() if name not in _UNWANTED}
        self.environ: Mapping[str, str] = {
            **kept,
            "HOME": str(self.home),
            "PATH": f"{commands}:{kept['PATH']}",
            **({"BROWSER": browser} if browser else {}),
            **(more or {}),
        }

    @property
    def plugin_environment(self) -> Mapping[str, str]:
        """Variables with which a kubectl with another home directory can use the contexts."""
        return {"XDG_CONFIG_HOME": str(self.home / ".config"), "PATH": self.environ["PATH"]}

    def try_tower(self, *words: str) -> tuple[int, str, str]:
        """Run the command; return exit code and outputs."""
        done = self._run([script("tower"), *words])
        return done.returncode, done.stdout, done.stderr

    def tower(self, *words: str) -> str:
        """Run the command, which must succeed; return its output."""
        code, out, error = self.try_tower(*words)
        if code:
            raise AssertionError(f"tower {' '.join(words)}: exit code {code}: {error}")
        return out

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Start the command."""
        return subprocess.Popen(
            [script("tower"), *words],
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=reset_signals,  # noqa: PLW1509 (two system calls)
        )

    def try_kubectl(self, program: Path, *words: str) -> tuple[int, str, str]:
        """Run a kubectl; return exit code and outputs."""
        done = self._run([str(program), *words])
        return done.returncode, done.stdout, done.stderr

    def kubectl(self, program: Path, *words: str) -> str:
        """Run a kubectl, which must succeed; return its output."""
        code, out, error = self.try_kubectl(program, *words)
        if code:
            raise AssertionError(f"{program} {' '.join(words)}: exit code {code}: {error}")
        return out

    def begin_kubectl(self, program: Path, *words: str) -> subprocess.Popen[str]:
        """Start a kubectl."""
        return subprocess.Popen(
            [str(program), *words],
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _run(self, argv: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            argv, env=self.environ, capture_output=True, text=True, timeout=PATIENCE, check=False
        )


_UNWANTED = ("KUBECONFIG", "XDG_CONFIG_HOME", "DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION", "SSH_TTY")


class _Form(HTMLParser):
    """The first form of a page.

    :ivar action: None: there is none.
    :ivar fields: its values, by name.
    """

    def __init__(self, page: str) -> None:
        super().__init__()
        self.action: str | None = None
        self.fields: dict[str, str] = {}
        self._is_done = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take the form and its fields."""
        values = {name: value or "" for name, value in attrs}
        if tag == "form" and self.action is None:
            self.action = values.get("action", "")
        elif tag == "input" and self.action is not None and not self._is_done and "name" in values:
            self.fields[values["name"]] = values.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        """End the form."""
        self._is_done = self._is_done or tag == "form"


def browse(address: str, user: str = "") -> None:
    """Open a page and follow redirects; with a user, also fill in forms until a page has none."""
    context = ssl._create_unverified_context()
    browser = urllib.request.build_opener(
        urllib.request.HTTPSHandler(context=context), urllib.request.HTTPCookieProcessor()
    )
    data = None
    for _ in range(10):
        with browser.open(address, data, timeout=60) as answer:
            form, address = _Form(answer.read().decode()), answer.url
        if form.action is None or not user:
            return
        address = urljoin(address, form.action)
        data = urlencode({name: value or user for name, value in form.fields.items()}).encode()
    raise AssertionError(f"{address}: one form after the other")


if __name__ == "__main__":
    browse(*sys.argv[1:])
