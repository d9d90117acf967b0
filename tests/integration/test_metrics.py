"""The metrics of a real proxy and agent, scraped by a real Prometheus; the alert rules and the dashboard."""

from __future__ import annotations

import http.client
import json
import re
import ssl
import sys
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeAlias
from xml.etree import ElementTree

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from twisted.trial.unittest import SynchronousTestCase

from tests.integration import harness
from tests.integration.member import member
from tests.integration.ports import free_port
from tests.integration.programs import LOOPBACK, run, wait_for
from tests.integration.prometheus import Prometheus, panel_queries, promtool, require_prometheus
from tower import BUILD

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHARTS = ROOT / "tools" / "monitoring-charts"
RULES = DEPLOY / "prometheus" / "tower-alerts.yaml"
DASHBOARD = DEPLOY / "grafana" / "tower.json"

Labels: TypeAlias = Mapping[str, tuple[str, ...]]

#: The metrics that must have samples with one agent, no cluster of type ssh and no audit log: their labels,
#: and all values of those that have few.
CLUSTER: Labels = {"cluster": ("alpha",)}
WITH_TOWER: Labels = {"cluster": ("", "alpha")}  # "": Tower's own API
DIRECTIONS: Labels = {"direction": ("from_member", "to_member")}
KINDS = ("exec", "logs", "portforward", "raw", "short", "watch")
TARGET: Labels = {"target": ("kubernetes",)}
PROXY: dict[str, Labels] = {
    "tower_cluster_available": CLUSTER,
    "tower_cluster_member_reachable": CLUSTER,
    "tower_cluster_last_seen_timestamp_seconds": CLUSTER,
    "tower_tunnels": {**CLUSTER, "protocol": ("kubesphere-v1", "tower-v2")},
    "tower_tunnel_rtt_seconds": CLUSTER,
    "tower_tunnel_disconnects_total": {**CLUSTER, "reason": ()},
    "tower_agent_rejections_total": {"reason": ()},
    "tower_requests_total": {
        **WITH_TOWER,
        "verb": ("read", "stream", "write"),
        "code_class": (),
        "source": ("member", "tower"),
    },
    "tower_request_duration_seconds": WITH_TOWER,
    "tower_first_byte_seconds": WITH_TOWER,
    "tower_requests_inflight": {**WITH_TOWER, "kind": KINDS},
    "tower_streams": CLUSTER,
    "tower_stream_bytes_total": {**CLUSTER, **DIRECTIONS},
    "tower_stream_open_failures_total": {**CLUSTER, "reason": ()},
    "tower_stream_stall_seconds_total": CLUSTER,
    "tower_auth_failures_total": {"reason": ()},
    "tower_policy_refusals_total": {"reason": ()},
    "tower_throttled_total": {"scope": ("connections", "memory", "requests", "tunnels")},
    "tower_request_seats": {"kind": ("mutating", "read-only")},
    "tower_request_seats_limit": {"kind": ("mutating", "read-only")},
    "tower_requests_waiting": {"kind": ("mutating", "read-only")},
    "tower_requests_limited_total": {"reason": ()},
    "tower_certificate_expiry_timestamp_seconds": {"name": ("serving", "serving-ca", "users-ca")},
    "tower_member_credential_expiry_timestamp_seconds": CLUSTER,
    "tower_event_loop_lag_seconds": {},
    "tower_buffer_bytes": {},
    "tower_build_info": {"build": (BUILD,), "program": ("proxy",), "python": (), "version": ()},
    "tower_store_write_seconds": {},
    "process_cpu_seconds_total": {},
    "process_open_fds": {},
    "process_resident_memory_bytes": {},
    "process_start_time_seconds": {},
}
AGENT: dict[str, Labels] = {
    "tower_agent_connected": {},
    "tower_agent_cluster_disabled": {},
    "tower_agent_reconnects_total": {"reason": ()},
    "tower_agent_rtt_seconds": {},
    "tower_agent_apiserver_reachable": {},
    "tower_agent_impersonation_allowed": {},
    "tower_agent_credential_expiry_timestamp_seconds": {},
    "tower_agent_streams": TARGET,
    "tower_agent_stream_bytes_total": DIRECTIONS,
    "tower_agent_dial_seconds": TARGET,
    "tower_agent_dial_failures_total": {**TARGET, "reason": ()},
    "tower_agent_refusals_total": {"reason": ()},
    "tower_event_loop_lag_seconds": {},
    "tower_build_info": {"build": (BUILD,), "program": ("agent",), "python": (), "version": ()},
    "process_cpu_seconds_total": {},
}
#: Metrics of a proxy with a host cluster; see `tests.integration.test_host_faults` and `test_leader`.
HOSTED = re.compile(r"tower_host_|workqueue_|leader_election_|tower_leader_")

#: Number of buckets of a histogram, with the one of all values.
BUCKETS = 8

#: Series of one cluster are fewer.
UPSTREAM = "authentication_attempts"  # a counter without _total: kube-apiserver's own name
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


def families_of(text: str) -> dict[str, list[Sample]]:
    """Return the samples of a page by the name of their metric."""
    families: dict[str, list[Sample]] = {}
    for metric in text_string_to_metric_families(text):
        for sample in metric.samples:
            name = metric.name if metric.type == "histogram" else sample.name
            families.setdefault(name, []).append(sample)
    return families


class MeteredTestCase(harness.TowerTestCase):
    """One agent in front of a real API server."""

    def setUp(self) -> None:
        """Start the programs."""
        super().setUp()
        self.member = member()
        self.agent_metrics = free_port()
        self.agent = self.tower.add("alpha", self.member.agent, f"--metrics-port={self.agent_metrics}")

    def new_tower(self) -> harness.Tower:
        """Return a Tower with a metrics port."""
        tower = super().new_tower()
        self.metrics = free_port()
        tower.proxy = tower.proxy_program(f"--metrics-port={self.metrics}")
        return tower


class NamesTests(MeteredTestCase):
    """No user has made a request, and no cluster of type ssh and no audit log exists."""

    def test_names(self) -> None:
        """Every metric has samples from the beginning, with exactly its labels."""
        for port, metrics in ((self.metrics, PROXY), (self.agent_metrics, AGENT)):
            wait_for("the first keepalives", partial(self.has_all, port, metrics))
            families = families_of(page(port))
            for name, labels in metrics.items():
                self.check_labels(name, labels, families)

    def has_all(self, port: int, metrics: Iterable[str]) -> bool:
        """Return whether a page has samples of all metrics."""
        return {*metrics} <= {*families_of(page(port))}

    def check_labels(self, name: str, labels: Labels, families: Mapping[str, list[Sample]]) -> None:
        """Check the labels of all samples of a metric."""
        samples = families[name]
        buckets = [sample.labels for sample in samples if sample.name == f"{name}_bucket"]
        others = [sample.labels for sample in samples if sample.name != f"{name}_bucket"]
        for found in others:
            self.assertEqual({*found}, {*labels}, name)
        for label, values in labels.items():
            if values:
                self.assertEqual({found[label] for found in others}, {*values}, (name, label))
        if buckets:
            self.assertEqual(len({found["le"] for found in buckets}), BUCKETS, name)
            self.assertEqual({label for found in buckets for label in found}, {"le", *labels}, name)


class MetricsTests(MeteredTestCase):
    """With requests of users, and a real Prometheus."""

    def setUp(self) -> None:
        """Start the programs and Prometheus."""
        require_prometheus()
        super().setUp()
        jobs = {"tower-proxy": self.metrics, "tower-agent": self.agent_metrics}
        self.prometheus = Prometheus(self.folder, jobs, RULES)
        self.addCleanup(self.prometheus.stop)
        self.prometheus.start()

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
        for job, metrics in (("tower-proxy", PROXY), ("tower-agent", AGENT)):
            for name in metrics:
                wait_for(name, partial(self.found, f'{{__name__=~"{name}(_bucket)?",job="{job}"}}'))
        panels = panel_queries(DASHBOARD)
        self.assertGreater(len(panels), 8)
        for title, queries in panels.items():
            self.assertTrue(queries, title)
            for query in queries:
                if HOSTED.search(query):
                    continue
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
        self.assertGreater(len(self.rule_healths()), 15)
        wait_for("the rules", lambda: "unknown" not in self.rule_healths().values())
        healths = self.rule_healths()
        self.assertEqual(healths, dict.fromkeys(healths, "ok"))
        self.assertEqual(self.prometheus.query('ALERTS{alertstate="firing"}'), [])

    def rule_healths(self) -> dict[str, str]:
        """Return the result of each rule's last evaluation, by name."""
        groups = self.prometheus.get("rules")["groups"]
        return {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}

    def check_pages(self) -> None:
        """Promtool finds no fault in the pages; a cluster has few series, without names and addresses."""
        for port in (self.metrics, self.agent_metrics):
            text = page(port)
            linted = [line for line in text.splitlines(True) if UPSTREAM not in line]
            promtool("check", "metrics", stdin="".join(linted).encode())
            labels = re.findall(r'="([^"]*)"', text)
            self.assertGreater(len(labels), 20)
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
        self.assertIn('cluster="alpha"', page(self.metrics))
        self.tower.tower("cluster", "remove", "alpha", "--yes")
        wait_for("the end of the series", lambda: '"alpha"' not in page(self.metrics))
        self.assertIn('cluster=""', page(self.metrics))

    def test_front_door(self) -> None:
        """Administrators get the page at the front door; users get the one of their cluster, others none."""
        admin = self.tower.admin()
        answer = admin.get("/metrics")
        self.assertEqual(answer.status, 200)
        self.assertIn(b"tower_build_info{", answer.body)
        self.assertEqual(answer.headers["Content-Type"], "text/plain; version=0.0.4; charset=utf-8")
        jane = self.tower.person("alpha", "jane", "--group", "dev")
        answer = jane.request("GET", "/metrics")
        self.assertEqual((answer.status, b"apiserver_request_total{" in answer.body), (200, True))
        self.assertNotIn(b"tower_build_info", answer.body)
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
        """Fail without promtool."""
        require_prometheus()

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
