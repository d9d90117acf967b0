"""A Prometheus server of the test's own, and promtool; Debian's package ``prometheus`` has both."""

from __future__ import annotations

import http.client
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import yaml

from tests.integration.ports import free_port
from tests.integration.programs import LOOPBACK, Program, is_ready, run, wait_for

#: Values of Grafana's variables in the queries of a dashboard.
VARIABLES = {"$cluster": ".*", "$__rate_interval": "10s"}


def require_prometheus() -> None:
    """Fail if a program is missing on this machine: a test that is skipped proves nothing."""
    for name in ("prometheus", "promtool"):
        if shutil.which(name) is None:
            raise AssertionError(f"{name} is not installed: run 'apt-get install prometheus'")


def promtool(*arguments: str, stdin: bytes = b"", folder: Path | None = None) -> str:
    """Run promtool, which must succeed; return its output."""
    done = run(["promtool", *arguments], stdin=stdin, folder=folder)
    output = (done.stdout + done.stderr).decode()
    if done.returncode:
        raise AssertionError(f"promtool {' '.join(arguments)}: {output}")
    return output


class Prometheus:
    """A server that scrapes programs on loopback each second.

    :param jobs: ports by the name of the job.
    :param rules: files with rules.
    """

    def __init__(self, folder: Path, jobs: Mapping[str, int], *rules: Path) -> None:
        self.port = free_port()
        place = folder / "prometheus"
        place.mkdir()
        config = place / "prometheus.yaml"
        config.write_text(
            yaml.safe_dump(
                {
                    "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                    "rule_files": [str(path) for path in rules],
                    "scrape_configs": [
                        {"job_name": name, "static_configs": [{"targets": [f"{LOOPBACK}:{port}"]}]}
                        for name, port in jobs.items()
                    ],
                }
            )
        )
        argv = [
            "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={place / 'data'}",
            f"--web.listen-address={LOOPBACK}:{self.port}",
        ]
        self.program = Program("prometheus", argv, folder)

    def start(self) -> None:
        """Start, and wait until it is ready."""
        self.program.start()
        wait_for("prometheus", lambda: is_ready(self.port, "/-/ready"))

    def stop(self) -> None:
        """End it."""
        self.program.stop()

    def get(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer of its API."""
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=30)
        try:
            connection.request("GET", f"/api/v1/{path}?{urlencode(parameters)}")
            answer = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        if answer["status"] != "success":
            raise AssertionError(f"{path} {parameters}: {answer['error']}")
        return answer["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the current samples of a query, which may have Grafana's variables."""
        for name, value in VARIABLES.items():
            expression = expression.replace(name, value)
        result: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return result


def panel_queries(dashboard: Path) -> dict[str, list[str]]:
    """Return the queries of a dashboard by the title of their panel."""
    panels = json.loads(dashboard.read_text())["panels"]
    return {
        panel["title"]: [target["expr"] for target in panel["targets"]]
        for panel in panels
        if panel["type"] != "row"
    }
