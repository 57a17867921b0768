"""tarry grafana: dashboard, alerts."""

import json
import sys
from importlib.resources import files

from tarry.edges.cli.context import CommandSession, command


@command("grafana dashboard", "tarry grafana dashboard > tarry.json")
def dashboard(cli: CommandSession) -> None:
    """Print a Grafana dashboard as JSON; needs no database.

    It uses the metrics of brokers (/metrics) and workers. Import it in Grafana, or copy it to its provisioning directory.
    """
    text = _text("dashboard.json")
    if cli.printer.for_people:
        sys.stdout.write(text + "\n")
    else:
        cli.printer.record("tarry.grafana.dashboard/1", {"dashboard": json.loads(text)}, ())


@command("grafana alerts", "tarry grafana alerts > /etc/prometheus/rules/tarry.yml")
def alerts(cli: CommandSession) -> None:
    """Print alert rules for Prometheus; needs no database.

    For late queues, new dead letters, failing handlers, and a broker with errors, without connections or without metrics.
    """
    text = _text("alerts.yml")
    if cli.printer.for_people:
        sys.stdout.write(text + "\n")
    else:
        cli.printer.record("tarry.grafana.alerts/1", {"rules": text}, ())


def _text(file: str) -> str:
    return files("tarry.edges.grafana").joinpath(file).read_text(encoding="utf-8").rstrip("\n")
