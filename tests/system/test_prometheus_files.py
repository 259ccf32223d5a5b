"""The files of deploy/prometheus and deploy/grafana: promtool accepts them, and they ask for what exists."""

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp.test_utils import TestClient, TestServer

from servers import PROMTOOL, ServerMissing, find
from tidegate import Tidegate
from tidegate.events import Accepted, Attempted, CyclePolled, Ended, JobEnded, LimitChange, LimitChanged
from tidegate.model import BotId, Claim, Delivered, Message, Rate, Record, State, TicketId
from tidegate.ops.metric_families import FAMILIES, OLD_NAMES, Family
from tidegate.ops.metrics import Metrics
from tidegate.ops.metrics_text import render_metrics

ROOT = Path(__file__).parents[2]
PROMETHEUS, GRAFANA = ROOT / "deploy" / "prometheus", ROOT / "deploy" / "grafana"
HOWTO = (ROOT / "docs" / "howto" / "watch-with-prometheus.md").read_text()
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((PROMETHEUS / "rules.yml").read_text())["groups"]
    for rule in group["rules"]
]
DASHBOARD: dict[str, Any] = json.loads((GRAFANA / "tidegate.json").read_text())
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
BY_SAMPLE: dict[str, Family] = {name: family for family in FAMILIES for name in family.sample_names()}

# Words of PromQL that are no metrics.
WORDS = {"and", "or", "unless", "absent", "count", "histogram_quantile", "increase", "max", "min", "rate"}
WORDS |= {"sum", "time", "vector"}
OF_PROMETHEUS = {"up", "ALERTS"}
ANY_METRIC_HAS = {"job", "instance", "le"}
_TEXT = re.compile(r'"[^"]*"')
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")
_SELECTOR = re.compile(r"([A-Za-z_:][\w:]*)\s*\{([^}]*)\}")
_NAME = re.compile(r"(?<![\w.$])[A-Za-z_:][\w:]*")


def panel_expressions() -> list[str]:
    found = [target["expr"] for panel in PANELS for target in panel["targets"]]
    return found + [annotation["expr"] for annotation in DASHBOARD["annotations"]["list"]]


def expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in RULES)
    yield from panel_expressions()
    for block in re.findall(r"```promql\n(.*?)```", HOWTO, re.DOTALL):
        yield from (line.partition("#")[0].strip() for line in block.splitlines())


@pytest.fixture(scope="module")
def promtool() -> str:
    try:
        return str(find(PROMTOOL).path)
    except ServerMissing as missing:
        pytest.skip(str(missing))


def run(promtool: str, *words: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([promtool, *words], input=given, capture_output=True, check=False)  # noqa: S603


def test_promtool_accepts_the_configuration_and_the_rules_and_the_alerts_pass_their_tests(
    promtool: str, tmp_path: Path
) -> None:
    folder = shutil.copytree(PROMETHEUS, tmp_path / "prometheus")
    (folder / "tidegate-token").write_text("secret")
    for words in (("check", "config", "prometheus.yml"), ("test", "rules", "rules_test.yml")):
        done = run(promtool, *words[:2], str(folder / words[2]))
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_expression_of_the_dashboard_can_be_parsed(promtool: str, tmp_path: Path) -> None:
    plain = [text.replace("$__rate_interval", "5m").replace("$bot", ".*") for text in panel_expressions()]
    rules = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(plain)]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = run(promtool, "check", "rules", str(file))
    assert done.returncode == 0, done.stdout + done.stderr


async def test_promtool_finds_nothing_wrong_with_the_metrics_but_the_names_of_before(promtool: str) -> None:
    message = Message(id=TicketId("t"), bot=BotId(1), chat_id=1, method="sendMessage", params={})
    gate = Tidegate("memory://")
    metrics = Metrics(gate)
    for event in (
        Accepted([message]),
        Attempted(Claim(message, 1, 1), Delivered(None), 0.1),
        Ended(Record(message=message, state=State.DELIVERED, created_at=0.0, settled_at=1.0)),
        LimitChanged(BotId(1), None, LimitChange(Rate(30, 1), Rate(30, 1), Rate(20, 1))),
        CyclePolled('a "poller"\n', 1, 1, 0.1),
        JobEnded("label", "done", 1.0),
    ):
        gate.core.events.publish(event)
    async with gate:
        text = (await render_metrics(metrics))[1]
    done = await asyncio.to_thread(run, promtool, "check", "metrics", given=text)
    complaints = done.stderr.decode().splitlines()
    old = {name.name for name in OLD_NAMES}
    assert [line for line in complaints if line.split()[0] not in old] == []
    assert {line.split()[0] for line in complaints} == old  # it did read them


def test_expressions_ask_for_metrics_and_labels_that_exist() -> None:
    for expression in expressions():
        text = _TEXT.sub('""', expression)
        groups = {label.strip() for group in _GROUPING.findall(text) for label in group.split(",")}
        plain = re.sub(r"\{[^}]*\}|\[[^]]*\]", "", _GROUPING.sub("", text))
        names = set(_NAME.findall(plain)) - WORDS - OF_PROMETHEUS
        assert names <= set(BY_SAMPLE), expression
        for name in names:
            assert groups <= {*BY_SAMPLE[name].labels, *ANY_METRIC_HAS}, expression
        for name, selector in _SELECTOR.findall(text):
            labels = set(re.findall(r"(\w+)\s*(?:=|!)", selector))
            if name not in OF_PROMETHEUS:
                assert labels <= {*BY_SAMPLE[name].labels, *ANY_METRIC_HAS}, expression


def test_what_every_process_reports_alike_is_never_added_up() -> None:
    shared = [family.name for family in FAMILIES if family.kind == "gauge" and family.across != "sum"]
    for expression in expressions():
        for name in shared:
            # A sum over what `max by` has made of them is right.
            assert not re.search(rf"\bsum\b(?:\s*by\s*\([^)]*\))?\s*\(\s*{name}\b", expression), expression


RUNBOOK_ANCHORS = {
    *("backlog", "429s", "dead-letters", "errors", "slow-transactions", "loop-blocked", "worker-silent"),
    *("redis-away", "database-away", "reminders-late", "history-dropped"),
}


def test_alerts_say_how_bad_it_is_what_to_do_and_where_more_is_said() -> None:
    for rule in RULES:
        notes = rule["annotations"]
        page, _, anchor = notes["runbook_url"].partition("#")
        assert (page, anchor in RUNBOOK_ANCHORS) == ("docs/howto/runbook.md", True), rule["alert"]
        assert rule["labels"]["severity"] in {"warning", "critical"}, rule["alert"]
        assert notes["summary"], rule["alert"]
        assert len(notes["description"]) > 80, rule["alert"]


def test_each_part_of_the_runbook_has_an_alert() -> None:
    assert {rule["annotations"]["runbook_url"].partition("#")[2] for rule in RULES} == RUNBOOK_ANCHORS


def test_panels_have_units_places_of_their_own_and_the_chosen_source() -> None:
    for panel in PANELS:
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        sources = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
        assert {source["uid"] for source in sources} == {"${datasource}"}, panel["title"]
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        others = [one["gridPos"] for one in DASHBOARD["panels"] if one is not panel]
        assert not [other for other in others if overlap(place, other)], panel["title"]


def overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
    below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
    return not (beside or below)


def test_the_dashboard_lets_choose_the_source_and_the_bot() -> None:
    assert [variable["name"] for variable in DASHBOARD["templating"]["list"]] == ["datasource", "bot"]
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))


def test_grafana_is_given_the_source_and_the_dashboard() -> None:
    sources = yaml.safe_load((GRAFANA / "provisioning" / "datasources" / "prometheus.yml").read_text())
    assert [source["type"] for source in sources["datasources"]] == ["prometheus"]
    boards = yaml.safe_load((GRAFANA / "provisioning" / "dashboards" / "tidegate.yml").read_text())
    assert [provider["type"] for provider in boards["providers"]] == ["file"]


def test_the_page_names_every_alert() -> None:
    assert set(re.findall(r"`(Tidegate\w+)`", HOWTO)) == {rule["alert"] for rule in RULES}


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names of the program on the page."""
    monkeypatch.chdir(tmp_path)
    [program] = re.findall(r"```python\n(.*?)```", HOWTO, re.DOTALL)
    names: dict[str, Any] = {}
    exec(program, names)  # noqa: S102  (our own docs)
    return names


async def test_the_server_that_the_page_shows_serves_metrics(shown: dict[str, Any]) -> None:
    async with shown["gate"], TestClient(TestServer(shown["app"])) as client:
        answer = await client.get("/metrics", headers={"Accept": "application/json"})
        assert (await answer.json())["telegram_429_count"] == 0
