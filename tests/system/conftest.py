"""Real servers, one of each for the whole run, started when the first test asks."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from blockbuster import BlockBuster

from servers import redis_server


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


@pytest.fixture(autouse=True)
def ctrl_c_is_heard() -> None:
    """A command inherits that Ctrl-C is ignored, as it is where tests run side by side."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def blocking_calls_of_the_drivers(no_blocking_calls: BlockBuster) -> None:
    """redis-py looks at a few files when it opens a connection, which is not ours to mend."""
    for function in no_blocking_calls.functions.values():
        function.can_block_in("redis/utils.py", "get_lib_version")


@pytest.fixture
def a_command_may_block(no_blocking_calls: BlockBuster) -> None:
    """A command that runs in the tests' process may wait for a file in its loop, where nobody else waits."""
    no_blocking_calls.deactivate()
