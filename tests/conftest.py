"""What every test gets, beside the time limit and strict warnings of pyproject.toml."""

import gc
import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, chdir
from pathlib import Path

import pytest
from blockbuster import BlockBuster
from hypothesis import Phase, settings

import fork_server
from blocking import BlockingCalls
from servers import postgres_server
from tidegate.frozen_heap import frozen_heap

gc.disable()  # while everything is imported, aiogram's thousand models above all: a fifth of the time

settings.register_profile("default", deadline=None, max_examples=40, print_blob=True)
settings.register_profile("proof", deadline=None, max_examples=2_000, print_blob=True)
# A mutant is judged by whether an example fails, not by the smallest one; the same examples every time.
settings.register_profile(
    "mutants", deadline=None, max_examples=40, phases=[Phase.generate], derandomize=True, database=None
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


# Ten seconds and more, in folders within folders: one worker would still run them when the others have ended.
LONG_FILES = {"test_habit_simulation.py", "test_gate_reminders.py"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the long runs to `make proof`, which asks for them by `-m`.

    Folders within folders hold the short files: they come last, so that all workers end at the same time.
    """
    if not config.getoption("-m"):
        items[:] = [item for item in items if item.get_closest_marker("proof") is None]
    items.sort(key=lambda item: 0 if item.path.name in LONG_FILES else len(item.path.parts))


def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Processes of tests that run side by side come from one server (`fork_server.py`)."""
    stack = ExitStack()
    stack.enter_context(fork_server.serving())
    config.add_cleanup(stack.close)


def pytest_collection_finish() -> None:
    """What was imported stays: it is not looked through again and again."""
    gc.collect()
    gc.freeze()
    gc.enable()


HANDLERS_OF_IMPORTS = {"push_response", "sentry_sdk.errors"}  # redis-py and Sentry add them when imported


@pytest.fixture(scope="session", autouse=True)
def an_empty_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Where the tests run: the stores that `make run` has left in the checkout shall not be found."""
    with chdir(tmp_path_factory.mktemp("empty")):
        yield


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left_to_the_next_file() -> Iterator[None]:
    """Which files share a process is chance: what one leaves would fail another that is not to blame."""
    before = loggers_that_write()
    yield
    assert frozen_heap._holders == 0, "a gate or server of this file was not stopped"  # noqa: SLF001
    left = loggers_that_write() - before - HANDLERS_OF_IMPORTS
    assert not left, f"loggers have handlers since this file: {left}"
    written = [path.name for path in Path.cwd().iterdir()]
    assert not written, f"this file wrote into the working directory: {written}"


def loggers_that_write() -> set[str]:
    """Return the loggers below the root that have handlers of their own, beside those of pytest."""
    return {
        name
        for name, logger in logging.root.manager.loggerDict.items()
        if isinstance(logger, logging.Logger)
        for handler in logger.handlers
        if not isinstance(handler, logging.NullHandler) and type(handler).__module__ != "_pytest.logging"
    }


@pytest.fixture
def unfrozen_heap() -> Iterator[None]:
    """For tests that count frozen objects: those of `pytest_collection_finish` come back afterwards."""
    gc.unfreeze()
    yield
    gc.freeze()


@pytest.fixture(autouse=True)
def no_hidden_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets of one test do not hide texts of another."""
    monkeypatch.setattr("tidegate.scrubber._values", ())


@pytest.fixture(autouse=True)
def no_blocking_calls() -> Iterator[BlockBuster]:
    """A blocking call inside a coroutine raises `BlockingError`."""
    with BlockingCalls() as guard:
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
