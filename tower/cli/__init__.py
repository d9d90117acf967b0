"""The `tower` command: a client of Tower's API.

Start with `tower.cli.command`; `tower.cli.arguments` has all commands and options.  `access` saves a
kubeconfig; its content is made by the proxy (`tower.web.api.issuer`, `tower.kube.kubeconfig`).  May import
`tower.streamclient` and below.  Public: `main`.
"""

from __future__ import annotations

from tower.cli.command import main

__all__ = ["main"]
