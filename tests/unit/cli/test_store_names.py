"""A store is named by its file or its address; nothing that is printed holds a password."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate import Tidegate
from tidegate.cli.store import check_store_exists, file_of, is_redis, public_store_name, store_option
from tidegate.errors import BadInputError
from tidegate.stores.store_name import check_store_name


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("tidegate.db", "tidegate.db"),
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("rediss://user:hush@host:6379/0?password=hush", "rediss://host:6379/0"),
        ("unix://:hush@/run/redis.sock?db=1", "unix:///run/redis.sock"),
        ("redis:/:hush@host", "the address given"),
        ("redis://:hush@[host", "the address given"),
    ],
)
def test_a_place_is_shown_without_its_secrets(place: str, said: str) -> None:
    assert public_store_name(place) == said


@given(
    st.sampled_from(("redis://", "rediss://", "unix://", "redis:/", "redis:")),
    st.text("ab/?#@:%[]", max_size=5),
)
def test_no_password_shows_however_a_store_is_written(scheme: str, tail: str) -> None:
    place = f"{scheme}user:HUSH{tail}@host:6379/0"

    assert "HUSH" not in public_store_name(place)
    assert "HUSH" not in store_option(place)


def test_another_command_is_named_with_its_store() -> None:
    assert store_option(None) == ""
    assert store_option("my store.db") == " --store 'my store.db'"
    assert store_option("redis://host/0") == " --store redis://host/0"
    assert "hush" not in store_option("redis://host/0?password=hush")


def test_what_works_on_files_only_says_so_of_redis() -> None:
    with pytest.raises(BadInputError, match="a store in a file; Redis has its own means") as caught:
        file_of("redis://:hush@host/0")
    assert "hush" not in str(caught.value)


def test_a_file_is_no_redis_whatever_its_name() -> None:
    assert is_redis("redis://host/0")
    assert not is_redis("redis.db")
    assert not is_redis("memory://")


@pytest.mark.parametrize(
    ("store", "advice"),
    [
        ("redis", "write redis://localhost:6379/0"),
        ("Redis", "write redis://localhost:6379/0"),
        ("redis:", "write redis://localhost:6379/0"),
        ("redis:/host", "write redis://localhost:6379/0"),
        ("localhost:6379", "write redis://localhost:6379/0"),
        ("rediss:host", "rediss://host:6379/0"),
        ("memory", "write memory://"),
        (":memory:", "write memory://"),
        ("memory:", "write memory://"),
        ("sqlite:tidegate.db", "such as tidegate.db"),
        ("sqlite://tidegate.db", "such as tidegate.db"),
        ("sqlite", "such as tidegate.db"),
        ("file:tidegate.db", "such as tidegate.db"),
        ("postgres://user:HUSH@host/db", "in a file or in Redis"),
        ("postgresql+asyncpg://user:HUSH@host/db", "in a file or in Redis"),
        ("http://user:HUSH@host", "not a web address"),
        ("https://host", "not a web address"),
        ("mysql://user:HUSH@host", "of the kind 'mysql' is not known: give a file"),
    ],
)
def test_a_store_that_cannot_be_meant_is_refused_with_advice(
    store: str, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    for refusing in (Tidegate, check_store_exists):
        with pytest.raises(BadInputError) as caught:
            refusing(store)
        assert advice in str(caught.value)
        assert "HUSH" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "store",
    ["tidegate.db", "./redis", "/var/lib/sqlite", "sqlite:///a.db", "memory://", "redis://host", "C:\\a.db"],
)
def test_a_store_that_can_be_meant_is_taken(store: str) -> None:
    check_store_name(store)
