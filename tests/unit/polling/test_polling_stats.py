"""The statistics of a poller."""

import json

from tidegate.polling.stats import PollingStats, PollingTotals

TOTALS = PollingTotals(cycles=120, batches=1_800, requests=1_800, asked=36_000, alone=36_000)


def stats_of(totals: PollingTotals) -> PollingStats:
    return PollingStats.of(totals, title="Batch Polling Manager Stats", active=300, telling=0, untold=0)


def test_the_table_is_the_one_that_people_know() -> None:
    assert (
        stats_of(TOTALS).table()
        == """\
============================================================
📊 Batch Polling Manager Stats
============================================================
Active Subscriptions: 300
Total Poll Cycles: 120
Total Batches Processed: 1800
Total API Requests: 1800
Average Batch Size: 20.0

💡 Efficiency:
   API Request Reduction: 95.0%
   Requests Avoided: 34200
============================================================"""
    )


def test_before_the_first_cycle_nothing_is_divided_by_zero() -> None:
    stats = stats_of(PollingTotals())
    assert (stats.reduction, stats.average_batch_size) == (0.0, 0.0)


def test_it_is_exported_as_json() -> None:
    exported = json.loads(json.dumps(stats_of(TOTALS).as_dict()))
    assert exported["requests_avoided"] == 34_200
    assert exported["reduction"] == 95.0
