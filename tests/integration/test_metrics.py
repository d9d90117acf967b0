"""The metrics of a real proxy and agent, scraped by a real Prometheus; the alert rules and the dashboard."""

from __future__ import annotations

import http.client
import json
import re
import ssl
import sys
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

from twisted.trial.unittest import SynchronousTestCase

from tests.integration import harness
from tests.integration.member import member
from tests.integration.ports import free_port
from tests.integration.programs import LOOPBACK, run, wait_for
from tests.integration.prometheus import Prometheus, missing, panel_queries, promtool

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHARTS = ROOT / "tools" / "monitoring-charts"
RULES = DEPLOY / "prometheus" / "tower-alerts.yaml"
DASHBOARD = DEPLOY / "grafana" / "tower.json"

#: Metrics that must have samples with one agent, no cluster of type ssh and no audit log.
PROXY = [
    "tower_cluster_available",
    "tower_cluster_member_reachable",
    "tower_cluster_last_seen_timestamp_seconds",
    "tower_tunnels",
    "tower_tunnel_rtt_seconds",
    "tower_tunnel_disconnects_total",
    "tower_agent_rejections_total",
    "tower_requests_total",
    "tower_request_duration_seconds_bucket",
    "tower_first_byte_seconds_bucket",
    "tower_requests_inflight",
    "tower_streams",
    "tower_stream_bytes_total",
    "tower_stream_open_failures_total",
    "tower_stream_stall_seconds_total",
    "tower_auth_failures_total",
    "tower_policy_refusals_total",
    "tower_throttled_total",
    "tower_certificate_expiry_timestamp_seconds",
    "tower_member_credential_expiry_timestamp_seconds",
    "tower_event_loop_lag_seconds_bucket",
    "tower_buffer_bytes",
    "tower_build_info",
    "tower_store_write_seconds_bucket",
    "process_cpu_seconds_total",
    "process_open_fds",
]
AGENT = [
    "tower_agent_connected",
    "tower_agent_reconnects_total",
    "tower_agent_rtt_seconds",
    "tower_agent_apiserver_reachable",
    "tower_agent_impersonation_allowed",
    "tower_agent_credential_expiry_timestamp_seconds",
    "tower_agent_streams",
    "tower_agent_stream_bytes_total",
    "tower_agent_dial_seconds_bucket",
    "tower_agent_dial_failures_total",
    "tower_agent_refusals_total",
    "tower_event_loop_lag_seconds_bucket",
    "tower_build_info",
    "process_cpu_seconds_total",
]

#: Series of one cluster are fewer.
MOST_SERIES = 100

PODS = "/api/v1/namespaces/default/pods"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"

#: A label that names a user, path, pod or address would have one of these.
FORBIDDEN = re.compile(r"jane|stranger|/|default|:[0-9]+|127\.0\.0\.1")


def page(port: int) -> str:
    """Return the page of a metrics port."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=30)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()
    finally:
        connection.close()


class MetricsTests(harness.TowerTestCase):
    """One agent in front of a real API server."""

    def setUp(self) -> None:
        """Start the programs and Prometheus."""
        if missing():
            self.skipTest(f"{missing()} is not installed: apt-get install prometheus")
        super().setUp()
        self.member = member()
        self.agent_metrics = free_port()
        self.agent = self.tower.add("alpha", self.member.agent, f"--metrics-port={self.agent_metrics}")
        jobs = {"tower-proxy": self.metrics, "tower-agent": self.agent_metrics}
        self.prometheus = Prometheus(self.folder, jobs, RULES)
        self.addCleanup(self.prometheus.stop)
        self.prometheus.start()

    def new_tower(self) -> harness.Tower:
        """Return a Tower with a metrics port."""
        tower = super().new_tower()
        self.metrics = free_port()
        tower.proxy = tower.proxy_program(f"--metrics-port={self.metrics}")
        return tower

    def work(self) -> None:
        """Make requests of each kind, and a watch that stays."""
        jane = self.tower.person("alpha", "jane", "--group", "dev")
        stranger = self.tower.person("alpha", "stranger", "--auth", "token")
        metadata = {"generateName": "metrics-", "labels": {"part-of": "metrics"}}
        body = json.dumps({"metadata": metadata, "data": {"x": "y" * 100_000}}).encode()
        delete = ("-n", "default", "delete", "configmaps", "-l", "part-of=metrics")
        self.addCleanup(self.member.kubectl, *delete)
        for _ in range(5):
            self.assertEqual(jane.get(PODS).status, 200)
            jane.request("POST", jane.prefix + CONFIG_MAPS, body=body)
        jane.get("/metrics")
        jane.request("GET", jane.prefix + PODS, headers={"Impersonate-User": "admin"})
        stranger.token = "tower-wrong"
        self.assertEqual(stranger.get(PODS).status, 401)
        watch = jane.connect()
        self.addCleanup(watch.close)
        self.assertEqual(jane.ask(watch, f"{jane.prefix}{PODS}?watch=true").status, 200)

    def found(self, expression: str) -> bool:
        """Return whether a query has data."""
        return bool(self.prometheus.query(expression))

    def test_scraped(self) -> None:
        """Each metric has samples, each panel's query has data, and the rules are evaluated."""
        self.work()
        for name in PROXY:
            wait_for(name, partial(self.found, f'{name}{{job="tower-proxy"}}'))
        for name in AGENT:
            wait_for(name, partial(self.found, f'{name}{{job="tower-agent"}}'))
        for title, queries in panel_queries(DASHBOARD).items():
            for query in queries:
                wait_for(f"panel {title}: {query}", partial(self.found, query))
        self.check_values()
        self.check_rules()
        self.check_pages()
        self.check_charts()
        self.check_removed()

    def check_values(self) -> None:
        """The values are those of the requests that were made."""
        for expression in (
            'tower_cluster_available{cluster="alpha"} == 1',
            'tower_cluster_member_reachable{cluster="alpha"} == 1',
            'tower_requests_total{cluster="alpha",verb="read",code_class="2xx",source="member"} >= 5',
            'tower_requests_inflight{cluster="alpha",kind="watch"} == 1',
            'tower_auth_failures_total{reason="unknown"} == 1',
            'tower_policy_refusals_total{reason="impersonation"} == 1',
            'tower_stream_bytes_total{cluster="alpha",direction="to_member"} > 500000',
            'tower_agent_stream_bytes_total{direction="to_member"} > 500000',
            'tower_agent_streams{target="kubernetes"} > 0',
            "tower_agent_connected == 1",
            "tower_agent_impersonation_allowed == 1",
            "tower_member_credential_expiry_timestamp_seconds - time() > 23 * 3600",
        ):
            wait_for(expression, partial(self.found, expression))

    def check_rules(self) -> None:
        """Prometheus evaluates all rules without errors; nothing is wrong, so nothing fires."""
        groups = self.prometheus.get("rules")["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        self.assertGreater(len(rules), 15)
        self.assertEqual([rule["name"] for rule in rules if rule["health"] == "err"], [])
        self.assertEqual(self.prometheus.query('ALERTS{alertstate="firing"}'), [])

    def check_pages(self) -> None:
        """Promtool finds no fault in the pages; a cluster has few series, without names and addresses."""
        for port in (self.metrics, self.agent_metrics):
            text = page(port)
            promtool("check", "metrics", stdin=text.encode())
            labels = re.findall(r'="([^"]*)"', text)
            self.assertEqual([label for label in labels if FORBIDDEN.search(label)], [])
        series = [line for line in page(self.metrics).splitlines() if 'cluster="alpha"' in line]
        self.assertGreater(len(series), 60)
        self.assertLess(len(series), MOST_SERIES)

    def check_charts(self) -> None:
        """The tool that made the charts of the documentation draws these data."""
        url = f"http://{LOOPBACK}:{self.prometheus.port}"
        done = run([sys.executable, str(CHARTS), url, str(self.folder), "--minutes=0.5"])
        files = [Path(line) for line in done.stdout.decode().splitlines()]
        self.assertGreater(len(files), 3, done.stderr.decode())
        for file in files:
            self.assertGreater(len(list(ElementTree.parse(file).iter())), 10)

    def check_removed(self) -> None:
        """The series of a removed cluster disappear."""
        self.tower.tower("cluster", "remove", "alpha", "--yes")
        self.assertNotIn('"alpha"', page(self.metrics))

    def test_front_door(self) -> None:
        """Administrators get the page at the front door; users get the one of their cluster, others none."""
        admin = self.tower.admin()
        answer = admin.get("/metrics")
        self.assertEqual(answer.status, 200)
        self.assertIn(b"tower_build_info{", answer.body)
        self.assertEqual(answer.headers["Content-Type"], "text/plain; version=0.0.4; charset=utf-8")
        jane = self.tower.person("alpha", "jane")
        self.assertNotIn(b"tower_build_info", jane.request("GET", "/metrics").body)
        context = ssl.create_default_context(cadata=admin.ca)
        connection = http.client.HTTPSConnection(
            self.tower.host, self.tower.secure_port, context=context, timeout=30
        )
        self.addCleanup(connection.close)
        connection.request("GET", "/metrics")
        self.assertEqual(connection.getresponse().status, 401)


class RulesTests(SynchronousTestCase):
    """The files of ``deploy/``, without Tower's programs."""

    def setUp(self) -> None:
        """Skip without promtool."""
        if missing():
            self.skipTest(f"{missing()} is not installed: apt-get install prometheus")

    def test_rules(self) -> None:
        """Promtool accepts the rules, and their own tests pass."""
        self.assertIn("SUCCESS", promtool("check", "rules", str(RULES)))
        self.assertIn("SUCCESS", promtool("test", "rules", "tower-alerts-test.yaml", folder=RULES.parent))

    def test_tested(self) -> None:
        """Each alert is in a test."""
        alerts = re.findall(r"- alert: (\w+)", RULES.read_text())
        tests = (RULES.parent / "tower-alerts-test.yaml").read_text()
        self.assertGreater(len(alerts), 15)
        self.assertEqual([alert for alert in alerts if f'alertname="{alert}"' not in tests], [])
