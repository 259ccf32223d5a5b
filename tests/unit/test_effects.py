"""What a handler puts is put once, however often its update is handled."""

import asyncio

from tidegate.outbox.effect_keys import effect_key, effect_keys_for, in_handler

ONE = "bot:42:7"
OTHER = "bot:42:8"


def keys(cause: str, *contents: object) -> list[str | None]:
    with effect_keys_for(cause):
        return [effect_key(content) for content in contents]


def test_the_same_update_gives_the_same_keys() -> None:
    assert keys(ONE, "a", "b") == keys(ONE, "a", "b")


def test_whatever_differs_has_a_key_of_its_own() -> None:
    found = [*keys(ONE, "a", "a", "b"), *keys(OTHER, "a")]

    assert len(set(found)) == 4


def test_another_order_or_another_path_through_the_handler_changes_no_key() -> None:
    assert set(keys(ONE, "b", "a")) == set(keys(ONE, "a", "b"))
    assert keys(ONE, "new", "a")[1] == keys(ONE, "a")[0]


def test_a_handler_that_runs_again_after_an_upgrade_has_the_keys_of_the_older_version() -> None:
    first, again = keys(ONE, {"chat_id": 1}, {"chat_id": 1})

    assert first == "bot:42:7:33b60f515bf4ba8c4d33994c:1"  # stored with messages: it must not change
    assert again == "bot:42:7:33b60f515bf4ba8c4d33994c:2"


def test_content_that_cannot_be_encoded_has_a_key_too() -> None:
    assert keys(ONE, {"reply_markup": range(3)}) == keys(ONE, {"reply_markup": range(3)})
    assert keys(ONE, {"reply_markup": range(3)}) != keys(ONE, {"reply_markup": range(4)})


def test_outside_of_a_handler_there_is_no_key() -> None:
    keys(ONE, "a")

    assert effect_key("a") is None


def test_it_is_known_whether_a_handler_runs() -> None:
    with effect_keys_for(ONE):
        assert in_handler()
    assert not in_handler()


async def test_a_task_that_outlives_its_handler_has_no_part_in_it() -> None:
    go_on = asyncio.Event()

    async def later() -> str | None:
        await go_on.wait()
        return effect_key("a")

    with effect_keys_for(ONE):
        inside = asyncio.create_task(asyncio.sleep(0, effect_key("a")))  # noqa: TID251  (yields once)
        outliving = asyncio.create_task(later())
        await inside
    go_on.set()

    assert inside.result() is not None
    assert await outliving is None
