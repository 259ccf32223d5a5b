"""Errors and incidents arrive at Sentry by the SDK's own transport; tokens and personal texts do not."""

import asyncio
import json
import os
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fork_server
from system.operators import TIDEGATE, Desk
from system.sentry_member import PERSONAL, SECRET
from system.sentry_sink import SentrySink, sentry_sink
from tidegate.ops.sentry import FLUSH_SECONDS, REPORTED_LINES

TESTS = Path(__file__).parents[1]
PATIENCE = 40
MARGIN = 5  # seconds: a busy machine


@pytest.fixture
def sink() -> Iterator[SentrySink]:
    with sentry_sink() as sink:
        yield sink


def environment(dsn: str, **more: str) -> dict[str, str]:
    ours = ("SENTRY_", "TIDEGATE_", "TELEGRAM_", "REDIS_URL", "DATABASE_URL")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**clean, "SENTRY_DSN": dsn, "PYTHONPATH": str(TESTS), **more}


def play(scene: str, sink: SentrySink, **variables: str) -> dict[str, Any]:
    """Play a scene in a process of its own; return what it says. Its reports are at the sink when it ends."""
    port = sink.dsn.rpartition(":")[2].partition("/")[0]
    ran = fork_server.run(
        [sys.executable, "-m", "system.sentry_member", scene],
        env=environment(sink.dsn, HTTP_PORT=port, **variables),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    said: dict[str, Any] = {}
    for line in ran.stdout.splitlines():
        said |= json.loads(line)
    return said


def check_private(sink: SentrySink) -> None:
    assert SECRET.encode() not in sink.received
    assert PERSONAL.encode() not in sink.received


def the_exception(event: dict[str, Any]) -> tuple[str, str, str]:
    """Its kind, its text, and the function that raised it."""
    one = event["exception"]["values"][-1]
    return one["type"], one["value"], one["stacktrace"]["frames"][-1]["function"]


def test_error_lines_arrive_as_they_are_written_without_tokens_and_values(sink: SentrySink) -> None:
    play("lines", sink)

    spoilt, glued, template, raised = sink.of("event")
    assert template["logentry"] == {"message": "payment of %s failed"}
    assert template["logger"] == "shop"
    assert spoilt["logentry"]["message"].startswith("a log line at sentry_member.py:")
    assert glued["logentry"]["message"].startswith("a log line at sentry_member.py:")
    assert raised["logentry"] == {"message": "a step of the shop has failed"}
    assert the_exception(raised) == ("ValueError", "…", "fail_with")
    assert {event["level"] for event in sink.of("event")} == {"error"}
    check_private(sink)


def test_texts_arrive_if_they_are_asked_for_still_without_tokens(sink: SentrySink) -> None:
    play("lines", sink, TIDEGATE_SENTRY_TEXTS="1", SENTRY_ENVIRONMENT="staging", SENTRY_RELEASE="shop@7")

    *_, template, raised = sink.of("event")
    assert template["logentry"] == {"message": f"payment of {PERSONAL} failed"}
    assert the_exception(raised)[1] == f"{PERSONAL} https://api.example.org/bot42:…/getMe"
    assert (raised["environment"], raised["release"]) == ("staging", "shop@7")
    assert SECRET.encode() not in sink.received


@pytest.mark.parametrize("traces", ["0", "1"])
def test_calls_before_an_error_are_told_without_tokens_and_queries(sink: SentrySink, traces: str) -> None:
    play("breadcrumbs", sink, SENTRY_TRACES_SAMPLE_RATE=traces)

    [event] = sink.of("event")
    crumbs = event["breadcrumbs"]["values"]
    assert [crumb["category"] for crumb in crumbs] == ["httplib"] * (1 + int(traces))
    assert all("/bot42:…/" in crumb["data"]["url"] for crumb in crumbs)
    check_private(sink)


@pytest.mark.usefixtures("real_interpreters")
def test_an_incident_arrives_once_in_its_group_without_its_chat(sink: SentrySink) -> None:
    play("incident", sink)

    [event] = sink.of("event")
    assert event["level"] == "warning"
    assert event["fingerprint"] == ["tidegate", "loop_blocked pay.py:42"]
    assert event["tags"] == {"kind": "loop_blocked", "handler": "on_pay", "place": "pay.py:42"}
    assert event["extra"]["stack"] == ["bot.py:7 main", "pay.py:42 on_pay"]
    assert "loop blocked 0.4 s in pay.py:42" in event["message"]
    assert b"100100" not in sink.received
    check_private(sink)


@pytest.mark.parametrize("scene", ["bot", "durable_bot"])
def test_a_handler_of_an_attached_bot_that_raises_is_reported(sink: SentrySink, scene: str) -> None:
    play(scene, sink)

    # On a busy machine the watchdog may report an incident beside it.
    [event] = [one for one in sink.of("event") if "exception" in one]
    assert the_exception(event) == ("LookupError", "…", "on_order")
    check_private(sink)


def test_an_exception_of_a_fastapi_route_is_reported_with_its_route_only(sink: SentrySink) -> None:
    play("api", sink)

    [event] = sink.of("event")
    assert the_exception(event) == ("LookupError", "…", "order")
    assert event["transaction"] == "/orders/{number}"
    assert event["request"] == {"method": "POST"}
    assert sink.of("transaction") == []  # nothing is measured unless a share is asked for
    check_private(sink)


def test_measured_requests_follow_the_sample_rates(sink: SentrySink) -> None:
    play("api", sink, SENTRY_TRACES_SAMPLE_RATE="1", SENTRY_PROFILES_SAMPLE_RATE="1", REQUESTS="3")

    assert [one["transaction"] for one in sink.of("transaction")] == ["/orders/{number}"] * 3
    assert len(sink.of("profile")) == 3
    check_private(sink)


def test_an_application_with_its_own_sentry_keeps_it_and_gets_incidents_once(sink: SentrySink) -> None:
    play("own", sink)

    [event] = sink.of("event")
    assert event["environment"] == "theirs"
    assert event["tags"]["kind"] == "loop_blocked"
    check_private(sink)


def test_attaching_alone_reports_nothing(sink: SentrySink) -> None:
    assert play("only_attached", sink) == {"imported": False, "done": True}

    assert sink.items == []


def test_without_a_dsn_nothing_is_reported(sink: SentrySink) -> None:
    assert play("incident", sink, SENTRY_DSN="") == {"reports": False, "done": True}

    assert sink.items == []


def test_a_storm_of_errors_becomes_a_few_reports(sink: SentrySink) -> None:
    said = play("storm", sink)

    allowed = REPORTED_LINES.capacity + REPORTED_LINES.refill * said["seconds"]
    assert REPORTED_LINES.capacity <= len(sink.of("event")) <= allowed + 1


def closed_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://key@127.0.0.1:{free.getsockname()[1]}/1"


@pytest.mark.parametrize("away", ["closed", "hangs"])
def test_a_sentry_that_is_away_delays_the_end_by_the_flush_limit_at_most(away: str) -> None:
    with sentry_sink(hangs=True) as hanging:
        with fork_server.popen(
            [sys.executable, "-m", "system.sentry_member", "storm"],
            env=environment(closed_port() if away == "closed" else hanging.dsn),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process:
            assert process.stdout is not None
            *_, last = iter(process.stdout.readline, '{"done": true}\n')
            done_at = time.monotonic()  # noqa: TID251  (of another process)
            process.wait(PATIENCE)
            waited = time.monotonic() - done_at  # noqa: TID251
        assert process.returncode == 0
        assert json.loads(last)["seconds"] < MARGIN  # logging did not wait for it
        assert waited < FLUSH_SECONDS + MARGIN


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path, "http://127.0.0.1:1")
    desk.begin()
    return desk


def tidegate(desk: Desk, dsn: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return fork_server.run(
        [*TIDEGATE, *arguments],
        cwd=desk.folder,
        env=environment(dsn, **variables),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_a_worker_reports_by_its_environment_alone(sink: SentrySink, desk: Desk) -> None:
    desk.put(100100)
    with sqlite3.connect(desk.store) as file:
        file.execute("UPDATE messages SET body = x'c1'")
    file.close()

    ran = tidegate(desk, sink.dsn, "worker", "--drain", "--json")

    assert ran.returncode == 0, ran.stderr
    [event] = sink.of("event")
    assert event["logger"] == "tidegate.store"
    assert event["logentry"]["message"].startswith("message %s of bot %s to chat %s is dead")
    assert b"100100" not in sink.received


@pytest.mark.parametrize(
    ("command", "variable", "value", "line"),
    [
        ("worker", "SENTRY_DSN", "no-dsn-secret", "is not the address of a project"),
        ("scheduler", "SENTRY_TRACES_SAMPLE_RATE", "often", "is not a share"),
    ],
)
def test_a_bad_setting_is_named_in_one_line(
    sink: SentrySink, desk: Desk, command: str, variable: str, value: str, line: str
) -> None:
    ran = tidegate(desk, sink.dsn, command, **{variable: value})

    assert ran.returncode == 2
    [told] = ran.stderr.splitlines()
    assert told.startswith(f"tidegate: {variable} {line}")
    assert value not in told


def test_a_worker_without_the_sdk_says_so_and_delivers(sink: SentrySink, desk: Desk) -> None:
    (desk.folder / "hidden").mkdir()
    (desk.folder / "hidden" / "sentry_sdk.py").write_text(
        "raise ModuleNotFoundError('no', name='sentry_sdk')"
    )
    path = os.pathsep.join([str(desk.folder / "hidden"), str(TESTS)])

    ran = tidegate(desk, sink.dsn, "worker", "--drain", "--json", PYTHONPATH=path)

    assert ran.returncode == 0
    [warning] = [line for line in map(json.loads, ran.stderr.splitlines()) if line["level"] == "warning"]
    said = 'nothing is reported there: sentry-sdk is not installed: pip install "tidegate[sentry]"'
    assert said in warning["message"]


async def test_doctor_says_that_errors_are_reported(desk: Desk) -> None:
    ran = await asyncio.to_thread(tidegate, desk, closed_port(), "doctor", "--json")

    checks = {check["name"]: check for check in json.loads(ran.stdout)["checks"]}
    assert checks["sentry"]["state"] == "ok"
    assert "SENTRY_DSN is set, sentry-sdk" in checks["sentry"]["found"]
    assert "key@" not in ran.stdout
