"""``distlock metrics``: the runs of this host for Prometheus."""

from __future__ import annotations

import sys

from .opening import journal_of_this_user


def metrics() -> None:
    """Print the metrics of this user's runs on this host as Prometheus text.

    For node_exporter set [metrics] textfile in the configuration: it is then written after each run.
    """
    from distlock.metrics import metrics_text

    sys.stdout.buffer.write(metrics_text(journal_of_this_user()))
