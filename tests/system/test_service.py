"""The commands of the service as processes: what they do, for whom, and what their logs hold."""

import json
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
import uvicorn  # noqa: F401  (the server imports it in its loop, where a test may not block)

import fork_server
from system.operators import PATIENCE, TIDEGATE, TOKEN, Desk, environment, nothing_set, run_here, telegram
from system.service_process import ServiceProcess, new_token, serving, wait_until
from tidegate.cli.up import is_untouched
from tidegate.client import TidegateClient
from tidegate.clock import Clock
from tidegate.errors import TidegateError
from tidegate.inbound.webhook_app import webhook_secret
from tidegate.settings import Settings

TEXT = "the-private-text-of-a-message"
SECRETS = (TOKEN, TEXT, "wrong-token-that-somebody-tried")


@pytest.mark.usefixtures("real_interpreters")
def test_the_whole_service_sends_records_counts_and_keeps_secrets(tmp_path: Path) -> None:
    """One process, so that it is started once: a day of an operator."""
    admin = new_token(tmp_path, "admin")
    viewer = new_token(tmp_path, "viewer")
    with telegram() as simulated, serving("up", "--store", "bot.db", folder=tmp_path) as service:
        # Whoever has a token already is told where the dashboard is.
        wait_until(lambda: any(line.startswith(f"Dashboard  {service.url}/ ") for line in service.lines))

        # A bot is registered, and a message is sent by the client.
        service.told("POST", "/api/v1/bots", admin, body={"token": TOKEN, "api_url": simulated})
        with TidegateClient(service.url, admin) as client:
            ticket = client.send(1001, TEXT, idempotency_key="one")
            assert client.send(1001, TEXT, idempotency_key="one") == ticket
            summary = client.send_many({"chat_id": 2000 + number, "text": TEXT} for number in range(40))
            assert summary.accepted == 40
            wait_until(lambda: (found := client.get(ticket)) is not None and found.state == "delivered")
            wait_until(lambda: client.stats().total_queued == 0)

        # It is in the history, for operators with its text and for viewers without.
        wait_until(lambda: bool(service.told("GET", "/api/v1/history?chat_id=1001", admin)["items"]))
        [recorded] = service.told("GET", "/api/v1/history?chat_id=1001", admin)["items"]
        assert recorded["text"] == TEXT
        assert TEXT.encode() not in service.ask("GET", "/api/v1/history?chat_id=1001", viewer)[2]
        assert TEXT.encode() not in service.ask("GET", f"/api/v1/messages/{ticket}", viewer)[2]

        # What the documents ask for.
        stats = service.told("GET", "/queue/stats", viewer)
        assert set(stats["stats"]) >= {"high", "normal", "low", "retry", "dlq"}
        assert (stats["total_queued"], stats["total_failed"]) == (0, 0)
        metrics = service.ask("GET", "/metrics", viewer)[2].decode()
        assert re.search(r'tidegate_sends_total\{[^}]*outcome="delivered"[^}]*\} 41\.0', metrics)
        flat = service.told("GET", "/metrics", viewer, headers={"Accept": "application/json"})
        assert flat["telegram_429_count"] == 0

        # What is no HTTP is a problem, too.
        with socket.create_connection(("127.0.0.1", int(service.url.rpartition(":")[2])), PATIENCE) as line:
            line.sendall(b"HELLO\r\n\r\n")
            head, _, body = line.makefile("rb").read().partition(b"\r\n\r\n")
        assert b"content-type: application/problem+json\r\n" in head
        assert json.loads(body)["detail"] == "the request is no valid HTTP"

        # Nobody without a token, nobody with a wrong one.
        assert service.ask("GET", "/queue/stats")[0] == 401
        assert service.ask("GET", "/queue/stats", SECRETS[-1])[0] == 401
        assert service.ask("POST", "/api/v1/messages", viewer, body={"chat_id": 1, "text": TEXT})[0] == 403
        assert service.ask("POST", "/api/v1/messages", admin, body={"chat_id": "no", "text": TEXT})[0] == 422
        assert service.ask("GET", f"/login?code={SECRETS[-1]}")[0] in {401, 403}
        assert service.ask("GET", "/healthz")[0] == service.ask("GET", "/readyz")[0] == 200
        audit = service.told("GET", "/api/v1/audit", admin)["items"]
        assert "bots.register" in {entry["action"] for entry in audit}

        assert service.stop() == 0
        check_secrets(service, admin, viewer)
        assert all(json.loads(line)["level"] in {"debug", "info", "warning"} for line in service.log)


GATE = """
import os
from tidegate import Tidegate

gate = Tidegate("bot.db")
gate.add_bot(os.environ["TELEGRAM_BOT_TOKEN"], api_url=os.environ["SIMULATOR"])

@gate.on_update
async def repeat(bot, update):
    await gate.send(chat_id=update["message"]["chat"]["id"], text=update["message"]["text"], bot=bot)
"""


@pytest.mark.usefixtures("real_interpreters")
def test_a_gate_of_ones_own_gets_updates_at_the_address_that_it_gave_its_bot(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(GATE)
    admin = new_token(tmp_path, "admin")
    update = {"update_id": 1, "message": {"message_id": 1, "date": 1, "chat": {"id": 7}, "text": TEXT}}
    with (
        telegram() as simulated,
        serving("up", "shop:gate", folder=tmp_path, TELEGRAM_BOT_TOKEN=TOKEN, SIMULATOR=simulated) as service,
    ):
        bots = service.told("GET", "/api/v1/bots", admin)["items"]
        assert [(bot["bot"], bot["api_url"]) for bot in bots] == [(42, simulated)]
        for secret, status in ((SECRETS[-1], 401), (webhook_secret(TOKEN), 200)):
            header = {"X-Telegram-Bot-Api-Secret-Token": secret}
            answer = service.ask("POST", "/webhook/telegram/42", body=update, headers=header)
            assert answer[0] == status
        wait_until(lambda: service.told("GET", "/queue/stats", admin)["delivered"] == 1)
        assert service.stop() == 0
        assert not any("sample" in line for line in service.lines)
        check_secrets(service, admin, webhook_secret(TOKEN))


@pytest.mark.usefixtures("real_interpreters")
def test_parts_that_run_apart_do_the_work_of_one_and_their_logs_hold_no_secret(tmp_path: Path) -> None:
    """An API, a worker and a scheduler on one file, and everything that they may log."""
    admin = new_token(tmp_path, "admin")
    worker = ("worker", "--no-reminders", "--store", "bot.db", "--json")
    with (
        telegram() as simulated,
        serving("api", "--store", "bot.db", folder=tmp_path) as service,
        logged(*worker, folder=tmp_path, ready="Delivering") as worker_log,
        logged("scheduler", "--store", "bot.db", folder=tmp_path, ready="Scheduling") as scheduler_log,
    ):
        service.told("POST", "/api/v1/bots", admin, body={"token": TOKEN, "api_url": simulated})

        def counts() -> tuple[int, int]:
            stats = service.told("GET", "/queue/stats", admin)
            return stats["delivered"], stats["dead"]

        # One message is delivered, and one is dead.
        service.told("POST", "/api/v1/messages", admin, body={"chat_id": 1001, "text": TEXT})
        wait_until(lambda: counts() == (1, 0))
        Desk(tmp_path, simulated).say_to_telegram("block", bot=42, user=1002)
        service.told("POST", "/api/v1/messages", admin, body={"chat_id": 1002, "text": TEXT})
        soon = f"{datetime.fromtimestamp(Clock().now() + 2, UTC):%Y-%m-%d %H:%M:%S}"
        reminder = {"chat_id": 1003, "text": TEXT, "at": soon, "zone": "UTC"}
        service.told("POST", "/api/v1/reminders", admin, body=reminder)
        broadcast = {"name": "news", "audience": [1002, 1004, 1005], "text": TEXT}
        service.told("POST", "/api/v1/broadcasts", admin, body=broadcast)

        # What nobody should do.
        for path in (f"/bot{TOKEN}/sendMessage?text={TEXT}", f"/login?code={SECRETS[-1]}", f"/{admin}"):
            assert service.ask("GET", path)[0] == 401
        cut_off = f'{{"chat_id": 1, "text": "{TEXT}'
        json_type = {"Content-Type": "application/json"}
        broken = service.ask("POST", "/api/v1/messages", admin, body=cut_off, headers=json_type)
        assert broken[0] == 400

        wait_until(lambda: counts() == (4, 2))
        wait_until(lambda: service.told("GET", "/api/v1/reminders/counts", admin)["ended"] == 1)
        assert service.stop() == 0
    service.log += worker_log + scheduler_log
    assert any("dead: message" in line and "1002" in line for line in worker_log), "it is at INFO"
    check_secrets(service, admin)


def check_secrets(service: ServiceProcess, *more: str) -> None:
    """Nothing that was said or logged holds a secret; a token of a bot is not even told in part."""
    said = "\n".join((*service.lines, *service.log))
    assert [secret for secret in (*SECRETS, TOKEN.partition(":")[2], *more) if secret in said] == []


@contextmanager
def logged(*arguments: str, folder: Path, ready: str) -> Iterator[list[str]]:
    """Yield what a command says while the body runs; it is all there afterwards."""
    said: list[str] = []
    command = [*TIDEGATE, *arguments]
    variables = environment() | {"TIDEGATE_LOG_FORMAT": "json"}
    with fork_server.popen(
        command, cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        reader = threading.Thread(target=said.extend, args=(process.stdout,))
        reader.start()
        try:
            wait_until(lambda: any(ready in line for line in said))
            yield said
            process.terminate()
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()
            reader.join(PATIENCE)


@pytest.mark.parametrize(
    ("variables", "is_sample"),
    [
        ({}, True),
        ({"TELEGRAM_BOT_TOKEN": TOKEN}, False),
        ({"TIDEGATE_STORE": "other.db"}, False),
        ({"REDIS_URL": "redis://localhost"}, False),
    ],
)
def test_the_sample_is_for_those_who_have_set_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], *, is_sample: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    with nothing_set(**variables):
        assert is_untouched(None, None, Settings.read()) is is_sample
        assert not is_untouched("mybot:gate", None, Settings.read())
        assert not is_untouched(None, "bot.db", Settings.read())
        (tmp_path / "tidegate.db").touch()
        assert not is_untouched(None, None, Settings.read())


def test_without_a_bot_it_starts_on_simulators_and_the_link_logs_in_once(tmp_path: Path) -> None:
    with serving("up", folder=tmp_path) as service:
        assert any("sample traffic" in line for line in service.lines)
        # It keeps nothing, so that it does not know tokens of a database in this folder.
        assert any(line.startswith("A token for the API is made on the dashboard") for line in service.lines)
        link = service.link()
        status, headers, _ = service.ask("GET", link)
        assert status == 303
        cookie = {name.lower(): value for name, value in headers.items()}["set-cookie"].partition(";")[0]
        assert service.ask("GET", link)[0] in {401, 403}

        def delivered() -> int:
            stats = json.loads(service.ask("GET", "/queue/stats", headers={"Cookie": cookie})[2])
            return int(stats["delivered"])

        wait_until(lambda: delivered() > 20)
        # A cookie alone changes nothing.
        assert service.ask("POST", "/api/v1/bots/42/pause", headers={"Cookie": cookie})[0] == 403
        assert service.stop() == 0
    assert list(tmp_path.iterdir()) == []


def test_api_processes_share_an_address_and_are_replaced_without_a_refused_request(tmp_path: Path) -> None:
    admin = new_token(tmp_path, "admin")
    with serving("api", "--processes", "2", "--store", "bot.db", folder=tmp_path) as service:
        told = service.told("POST", "/api/v1/bots", admin, body={"token": TOKEN})
        assert told["bot"] == 42
        for number in range(6):  # also those that another process answers
            body = {"chat_id": number + 1, "text": TEXT}
            assert service.ask("POST", "/api/v1/messages", admin, body=body)[0] == 202
        service.process.send_signal(signal.SIGHUP)
        while not any("all processes are replaced" in line for line in service.log):
            assert service.ask("GET", "/healthz")[0] == 200
            assert service.ask("GET", "/queue/stats", admin)[0] == 200
        for number in range(20):
            body = {"chat_id": number + 1, "text": TEXT}
            assert service.ask("POST", "/api/v1/messages", admin, body=body)[0] == 202

        def accepted() -> float:
            text = service.ask("GET", "/metrics", admin)[2].decode()
            return sum(
                map(float, re.findall(r"^tidegate_messages_accepted_total\{.*\} (\S+)$", text, re.MULTILINE))
            )

        wait_until(lambda: accepted() == 26)  # they share what they count each second
        assert {accepted() for _ in range(5)} == {26.0}, "each process answers for all"
        assert service.stop() == 0


@pytest.mark.parametrize("command", ["up", "api"])
def test_beyond_this_machine_it_listens_only_once_somebody_has_access(tmp_path: Path, command: str) -> None:
    code, _, err = run_here(command, "--host", "0.0.0.0", "--store", "bot.db", folder=tmp_path)  # noqa: S104
    assert code == 2, err
    assert "nobody has access yet" in err
    assert "tidegate token create" in err
    assert list(tmp_path.iterdir()) == []  # whoever was refused leaves nothing behind


def test_the_sample_is_shown_on_this_machine_only(tmp_path: Path) -> None:
    code, out, err = run_here("up", "--host", "0.0.0.0", folder=tmp_path)  # noqa: S104
    assert (code, out) == (2, "")
    assert "leave --host out" in err
    assert "TELEGRAM_BOT_TOKEN" in err


@pytest.mark.parametrize("command", [("up", "--store", "bot.db"), ("api",)])
def test_a_port_in_use_is_told_before_anything_is_started(tmp_path: Path, command: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, err = run_here(*command, "--port", str(port), folder=tmp_path)
    assert code == 2, err
    [line] = err.splitlines()
    assert line.endswith(f"port {port}: address already in use: choose another place with --host and --port")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["up", "api"])
def test_a_database_that_cannot_be_meant_is_one_line_at_the_start(tmp_path: Path, command: str) -> None:
    strange = {"DATABASE_URL": "mysql://me@host/data"}
    code, out, err = run_here(command, "--store", "bot.db", folder=tmp_path, variables=strange)
    assert (code, out) == (2, "")
    [line] = err.splitlines()
    assert "DATABASE_URL" in line
    assert "MySQL is none of them" in line


@pytest.mark.parametrize("command", ["up", "api"])
def test_a_store_that_cannot_be_made_is_one_line(tmp_path: Path, command: str) -> None:
    (tmp_path / "file").touch()
    code, out, err = run_here(command, "--store", "file/bot.db", "--port", "0", folder=tmp_path)
    assert (code, out) == (1, "")
    [line] = err.splitlines()
    assert "cannot be made: not a directory: give a path in a folder that can be written to" in line


@pytest.mark.parametrize("command", ["up", "api"])
def test_a_damaged_database_keeps_nobody_from_sending(tmp_path: Path, command: str) -> None:
    """`tidegate up` ended after its start, as it could not make its link."""
    (tmp_path / "bot-data.db").write_text("this is no database")
    with serving(command, "--store", "bot.db", folder=tmp_path) as service:
        wait_until(
            lambda: any("no link to log in: bot-data.db is not a SQLite file" in x for x in service.log)
        )
        wait_until(lambda: service.ask("GET", "/healthz")[0] == 200)
        assert service.stop() == 0
    assert [line for line in service.log if json.loads(line)["level"] == "error"] == []


def test_a_client_hears_in_words_that_nobody_answers() -> None:
    with pytest.raises(TidegateError, match="cannot be reached"):
        TidegateClient("http://127.0.0.1:9", "tg_none").stats()
