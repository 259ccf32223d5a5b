"""Real servers, one of each for the whole run, started when the first test asks."""

import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from blockbuster import BlockBuster
from redis import Redis

import fork_server
from databases import emptied_database
from servers import ServerMissing, redis_server
from tidegate.database.database import Database

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from system.dashboard_service import DashboardService


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that hangs ends its worker: uvloop swallows what the signal of the time limit raises."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            limit = item.get_closest_marker("timeout")
            item.add_marker(pytest.mark.timeout(*limit.args if limit else (), method="thread"), append=False)


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """Shared by all tests: each keeps to keys of its own."""
    with redis_server() as server:
        yield server.url


@pytest.fixture
def empty_redis_url(redis_url: str) -> Iterator[str]:
    """A database of this test alone, for what the keys of another would disturb."""
    url = redis_url.removesuffix("/0") + "/9"
    with Redis.from_url(url) as redis:
        redis.flushdb()
        yield url
        redis.flushdb()


@pytest.fixture(params=["sqlite", "postgres"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def database(kind: str, postgres_url: str, tmp_path: Path) -> AsyncIterator[Database]:
    """A SQL database of either kind, open, with empty tables."""
    sqlite = f"sqlite:///{tmp_path}/data.db"
    made = Database(sqlite if kind == "sqlite" else await emptied_database(postgres_url))
    await made.open()
    yield made
    await made.close()


@pytest.fixture(autouse=True)
def ctrl_c_is_heard() -> None:
    """A command inherits that Ctrl-C is ignored, as it is where tests run side by side."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def blocking_calls_of_the_drivers(no_blocking_calls: BlockBuster) -> None:
    """redis-py looks at a few files when it opens a connection, which is not ours to mend."""
    for function in no_blocking_calls.functions.values():
        function.can_block_in("redis/utils.py", "get_lib_version")
        # A loop that closes waits for its threads; uvloop does so in compiled code, which has no frame.
        function.can_block_in("asyncio/runners.py", "close")


@pytest.fixture
def a_command_may_block(no_blocking_calls: BlockBuster) -> None:
    """A command that runs in the tests' process may wait for a file in its loop, where nobody else waits."""
    no_blocking_calls.deactivate()


@pytest.fixture
def real_interpreters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start programs as users do, not by the fork server. One test of each program asks for this."""
    monkeypatch.delenv(fork_server.SOCKET_VARIABLE, raising=False)


@pytest.fixture(scope="module")
def chromium() -> Iterator["Browser"]:
    """One browser for a file: tests in it are plain functions, as Playwright runs a loop beneath them."""
    import browser  # noqa: PLC0415  (no other file needs it)

    try:
        with browser.chromium() as found:
            yield found
    except ServerMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def dashboard(chromium: "Browser", tmp_path_factory: pytest.TempPathFactory) -> Iterator["DashboardService"]:
    """One service for a file: a test leaves it as it was, but for more messages."""
    from system.dashboard_service import dashboard_service  # noqa: PLC0415  (likewise)

    with dashboard_service(tmp_path_factory.mktemp("dashboard"), chromium) as service:
        yield service
