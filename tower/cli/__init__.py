"""The `tower` command: a client of Tower's API.

Start with `tower.cli.command`; `tower.cli.arguments` has all commands and options.  `access` saves a
kubeconfig; its content is made by the proxy (`tower.web.api.issuer`, `tower.kube.kubeconfig`).  `login` has
the user's side of logins.  May import `tower.streamclient` and below.  Public: `main`.
"""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> int:
    """Run the command; return its exit code."""
    if sys.argv[1:3] == ["credential", "get"]:  # kubectl waits for it at each start, so it imports little
        from tower.cli.login.plugin import main as run_plugin

        return run_plugin(sys.argv[3:])
    from tower.cli.command import main as run_command

    return run_command()
