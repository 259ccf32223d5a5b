"""What every test gets, beside the time limit and strict warnings of pyproject.toml."""

import gc
import os
from collections.abc import Iterator

import pytest
from blockbuster import BlockBuster, blockbuster_ctx
from hypothesis import Phase, settings

from servers import postgres_server

gc.disable()  # while everything is imported, aiogram's thousand models above all: a fifth of the time

settings.register_profile("default", deadline=None, max_examples=40, print_blob=True)
settings.register_profile("proof", deadline=None, max_examples=2_000, print_blob=True)
# A mutant is judged by whether an example fails, not by the smallest one; the same examples every time.
settings.register_profile(
    "mutants", deadline=None, max_examples=40, phases=[Phase.generate], derandomize=True, database=None
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the long runs to `make proof`, which asks for them by `-m`.

    Folders within folders hold the short files: they come last, so that all workers end at the same time.
    """
    if not config.getoption("-m"):
        items[:] = [item for item in items if item.get_closest_marker("proof") is None]
    items.sort(key=lambda item: len(item.path.parts))


def pytest_collection_finish() -> None:
    """What was imported stays: it is not looked through again and again."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def no_hidden_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets of one test do not hide texts of another."""
    monkeypatch.setattr("tidegate.scrubber._values", ())


@pytest.fixture(autouse=True)
def no_blocking_calls() -> Iterator[BlockBuster]:
    """A blocking call inside a coroutine raises `BlockingError`."""
    with blockbuster_ctx() as guard:
        for call in guard.functions.values():
            call.can_block_in("tidegate/sim/virtual_time.py", "run_in_executor")  # elsewhere that is a thread
            call.can_block_in("contract/stores.py", {"sqlite", "redis_url"})  # make a folder, start a server
            call.can_block_in("tempfile.py", "cleanup")  # removes it
            # It looks at a few files when it opens a connection, which is not ours to mend.
            call.can_block_in("asyncpg/connect_utils.py", "_parse_connect_dsn_and_args")
        yield guard


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """One PostgreSQL for the whole run, started when the first test asks.

    Shared by all tests: each keeps to a schema or a database of its own (`databases.py`).
    """
    with postgres_server() as server:
        yield server.url
