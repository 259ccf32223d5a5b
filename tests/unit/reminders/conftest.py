import pytest

from tidegate.reminders.occurrences import next_occurrence


@pytest.fixture(autouse=True)
def nothing_remembered() -> None:
    """Occurrences are computed in each test, not remembered from another one."""
    next_occurrence.cache_clear()
