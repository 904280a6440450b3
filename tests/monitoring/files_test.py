"""What config/prometheus and config/grafana hold, by itself: the rules are sound and tested, every metric is on the dashboard, every alert has its runbook line and its
place in docs/monitoring.md."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = ROOT / "config/prometheus"
ALERTS = (CONFIG / "alert_rules.yml").read_text()


def alerts():
    return re.findall(r"^ *- alert: (\w+)", ALERTS, re.M)


def documented_metrics():
    return set(re.findall(r"^\| `(tierd_[a-z_]+)` \|", (ROOT / "docs/metrics.md").read_text(), re.M))


def used_metrics(text):
    """Families that expressions name; a histogram's are named by their parts."""
    names = set(re.findall(r"\btierd_[a-z_]+\b", text))
    return {re.sub(r"_(bucket|sum|count)$", "", n) for n in names}


class Files(unittest.TestCase):
    @unittest.skipUnless(shutil.which("promtool"), "no promtool here")
    def test_promtool_finds_nothing(self):
        for arguments in (["check", "config", CONFIG / "prometheus.yml"], ["check", "rules", CONFIG / "recording_rules.yml", CONFIG / "alert_rules.yml"],
                          ["test", "rules", ROOT / "tests/monitoring/alert_rules_test.yml"]):
            ran = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, check=False)
            self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)

    def test_every_alert_has_a_unit_test_a_runbook_and_a_place_in_the_docs(self):
        tests = (ROOT / "tests/monitoring/alert_rules_test.yml").read_text()
        docs = (ROOT / "docs/monitoring.md").read_text()
        self.assertGreater(len(alerts()), 10)
        self.assertEqual(len(alerts()), len(re.findall(r"^ *runbook: \".{20,}\"$", ALERTS, re.M)))
        for alert in alerts():
            self.assertRegex(tests, rf'ALERTS{{alertname="{alert}"[^\n]*exp_samples|alertname: {alert}\n *exp_alerts')
            self.assertIn(f"| `{alert}` |", docs)
        self.assertEqual(set(re.findall(r"^\| `(Tierd\w+)` \|", docs, re.M)), set(alerts()))

    def test_the_dashboard_shows_every_metric_and_is_what_its_program_writes(self):
        written = subprocess.run([sys.executable, ROOT / "config/grafana/make_dashboard.py"], capture_output=True, text=True, check=True).stdout
        committed = (ROOT / "config/grafana/tierd.json").read_text()
        self.assertEqual(written, committed, "run config/grafana/make_dashboard.py")
        board = json.loads(committed)
        panels = [p for p in board["panels"] if p["type"] != "row"]
        expressions = "\n".join(t["expr"] for p in panels for t in p["targets"])
        self.assertEqual(documented_metrics() - used_metrics(expressions), set(), "metrics without a panel")
        self.assertEqual(used_metrics(expressions) - documented_metrics(), set(), "panels of no metric")
        for panel in panels:
            self.assertEqual(panel["datasource"]["uid"], "${datasource}")
            self.assertTrue(panel["description"], panel["title"])
            for target in panel["targets"]:
                for selector in re.findall(r"\btierd_\w+\{([^}]*)\}", target["expr"]):
                    self.assertTrue(selector.startswith('job=~"$job",instance=~"$instance",slot=~"$slot"'), target["expr"])
                self.assertEqual(len(re.findall(r"\btierd_\w+", target["expr"])), len(re.findall(r"\btierd_\w+\{", target["expr"])), "a metric without a selector")
        self.assertEqual([v["name"] for v in board["templating"]["list"]], ["datasource", "job", "instance", "slot"])
        for variable in board["templating"]["list"][1:]:
            self.assertEqual(variable["allValue"], ".*", "series without the label, too")
        self.assertEqual([p["title"] for p in board["panels"][:7]], ["At a glance", "Bytes saved", "Hit share", "Source load", "Source requests", "Degraded nodes", "Daemons"])
        self.assertEqual(len({p["id"] for p in board["panels"]}), len(board["panels"]))

    def test_rules_add_up_no_daemons(self):
        """Those of one node whose pages come by textfiles have one job and one instance."""
        for file in ("recording_rules.yml", "alert_rules.yml"):
            for labels in re.findall(r"\b(?:sum|min|max|count|avg) by \(([^)]*)\)", (CONFIG / file).read_text()):
                self.assertTrue(labels.startswith("job, instance, slot"), f"{file}: by ({labels})")
        for labels in re.findall(r"\bby \(([^)]*)\)", (ROOT / "config/grafana/tierd.json").read_text()):
            self.assertTrue(labels.startswith("job, instance, slot") or labels == "instance", f"by ({labels})")

    def test_rules_use_metrics_that_there_are(self):
        rules = ALERTS + (CONFIG / "recording_rules.yml").read_text()
        rules = re.sub(r"tierd@\w+|tierd-\w+", "", rules)
        self.assertEqual(used_metrics(rules) - documented_metrics(), set())


if __name__ == "__main__":
    unittest.main(verbosity=2)
