"""Subscriptions on every store: stored until their news is settled, in order, each in one state."""

import asyncio
import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from contract.subscribers import KINDS, SHARED, Ground, everyone, keys, news, order
from tidegate.errors import BadInputError, NotTheSenderError
from tidegate.polling.subscriptions import AfterNews, News, Subscription, Subscriptions, pack_subscription
from tidegate.sim.virtual_time import VirtualClock


@pytest.fixture(params=KINDS)
def made(request: pytest.FixtureRequest, clock: VirtualClock) -> Ground:
    return KINDS[request.param](clock)


@pytest.fixture
async def ground(made: Ground) -> AsyncIterator[Ground]:
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def kept(ground: Ground) -> Subscriptions:
    return ground.of("orders")


shared = pytest.mark.parametrize("made", SHARED, indirect=True)


async def test_whoever_is_added_waits_with_his_data_in_the_order_of_adding(kept: Subscriptions) -> None:
    added = [order("b", chat=7, name="Ä"), order("a", nested={"x": [1, 2.5, None, True]}), order("c")]

    assert await kept.add(added) == [True, True, True]

    found = await kept.after(0)
    assert [one.subscription for one in found] == added
    assert [(one.met, one.news) for one in found] == [(False, None)] * 3
    numbers = [one.number for one in found]
    assert numbers == sorted(set(numbers))
    assert await kept.count() == 3


async def test_who_is_added_again_waits_anew_as_the_last_with_the_new_data(kept: Subscriptions) -> None:
    await kept.add([order("a", old=1), order("b"), order("w")])
    await kept.note_news(news("w"))
    await kept.settle_news(["w"], "watch")
    await kept.note_news(news("a"))
    last = (await kept.after(0))[-1].number

    assert await kept.add([order("a", new=2), order("w"), order("n")]) == [False, False, True]

    found = await kept.after(last)
    assert [one.subscription for one in found] == [order("a", new=2), order("w"), order("n")]
    assert await everyone(kept) == [(key, False, None) for key in "bawn"]
    assert await kept.count() == 4


async def test_who_is_added_twice_at_once_is_there_once_as_he_came_last(kept: Subscriptions) -> None:
    assert await kept.add([order("a", x=1), order("b"), order("a", x=2)]) == [True, True, False]

    assert [one.subscription for one in await kept.after(0)] == [order("b"), order("a", x=2)]


async def test_who_is_added_only_if_he_is_missing_replaces_nobody(kept: Subscriptions) -> None:
    await kept.add([order("waits", old=1), order("to be told"), order("watched")])
    await kept.note_news(news("to be told", "watched"))
    await kept.settle_news(["watched"], "watch")
    before = await kept.after(0)

    given = [order(key, new=2) for key in ("waits", "new", "to be told", "watched", "new")]
    assert await kept.add(given, replace=False) == [False, True, False, False, False]

    found = await kept.after(0)
    assert found[:3] == before
    assert [one.subscription for one in found[3:]] == [order("new", new=2)]


async def test_of_two_who_add_the_same_at_once_one_is_first(ground: Ground) -> None:
    one = ground.of("orders")

    added = await asyncio.gather(*(one.add([order("a", n=n)], replace=False) for n in (1, 2)))

    assert sorted(added) == [[False], [True]]
    assert await one.count() == 1


async def test_who_subscribed_anew_is_not_removed_as_the_one_who_was_there_before(
    kept: Subscriptions,
) -> None:
    await kept.add([order("a"), order("b")])
    before = await kept.after(0)
    await kept.add([order("a", again=True)])

    assert await kept.remove(before) == 1

    assert [one.subscription for one in await kept.after(0)] == [order("a", again=True)]


async def test_who_is_removed_is_gone_whatever_he_waited_for(kept: Subscriptions) -> None:
    await kept.add([order(key) for key in "abcd"])
    await kept.note_news(news("a", "b"))
    await kept.settle_news(["b"], "watch")

    assert await kept.remove(["a", "b", "c", "nobody"]) == 3

    assert keys(await kept.after(0)) == ["d"]
    await kept.add([order("a"), order("b")])
    assert await everyone(kept) == [(key, False, None) for key in "dab"]


async def test_a_number_is_never_given_twice(kept: Subscriptions) -> None:
    await kept.add([order("a"), order("b")])
    last = (await kept.after(0))[-1].number
    await kept.remove(["a", "b"])

    await kept.add([order("c")])

    assert keys(await kept.after(last)) == ["c"]


async def test_nothing_is_a_step_too(kept: Subscriptions) -> None:
    assert await kept.add([]) == []
    assert await kept.remove([]) == 0
    assert await kept.note_news([]) == []
    await kept.settle_news([], "forget")
    assert await kept.after(0, 0) == []
    assert await kept.count() == 0


async def test_many_are_read_in_pages_by_number(kept: Subscriptions) -> None:
    everybody = [f"order {number}" for number in range(1_200)]
    assert await kept.add([order(key) for key in everybody]) == [True] * 1_200

    found = await kept.after(0, 700)
    assert await kept.remove(everybody[600:750]) == 150  # who goes meanwhile makes nobody else be passed over
    found += await kept.after(found[-1].number, 400)
    found += await kept.after(found[-1].number, 400)

    assert keys(found) == everybody[:700] + everybody[750:]
    assert await kept.after(found[-1].number) == []
    assert len(await kept.after(0)) == 1_000


async def test_a_thousand_are_told_at_once(kept: Subscriptions) -> None:
    everybody = [f"order {number}" for number in range(1_001)]
    await kept.add([order(key) for key in everybody])

    assert keys(await kept.note_news(news(*everybody))) == everybody
    await kept.settle_news(everybody[1:], "forget")

    assert await everyone(kept) == [("order 0", False, News("order 0", True))]  # noqa: FBT003  (a value)


@pytest.mark.parametrize(
    "key", ["a b", "Ж😀", "'; DROP TABLE x", "\0", "a\0b", "\n", "{0}", "1e3", "x" * 200]
)
async def test_a_key_is_any_text(kept: Subscriptions, key: str) -> None:
    await kept.add([order(key), order("a")])

    assert keys(await kept.note_news(news(key))) == [key]
    await kept.settle_news([key], "wait")
    assert keys(await kept.after(0)) == ["a", key]
    assert await kept.remove([key]) == 1


async def test_what_is_to_be_told_is_kept_until_it_was(kept: Subscriptions) -> None:
    await kept.add([order("a", chat=7), order("b")])

    [found] = await kept.note_news(news("nobody", "a", value={"Id": 1, "Paid": True}))

    told = News("a", {"Id": 1, "Paid": True})
    assert (found.subscription, found.met, found.news) == (order("a", chat=7), False, told)
    assert await everyone(kept) == [("a", False, told), ("b", False, None)]
    await kept.settle_news(["a"], "forget")
    assert keys(await kept.after(0)) == ["b"]


async def test_nobody_is_given_the_same_twice_though_two_found_it(ground: Ground) -> None:
    one = ground.of("orders")
    await one.add([order("a"), order("b")])

    given = await asyncio.gather(one.note_news(news("a", "b")), one.note_news(news("b", "a", kind="gone")))

    assert sorted(keys(given[0]) + keys(given[1])) == ["a", "b"]


async def test_only_the_first_of_several_news_is_told(kept: Subscriptions) -> None:
    await kept.add([order("a")])

    found = await kept.note_news(news("a", value=1) + news("a", value=2))

    assert [one.news for one in found] == news("a", value=1)
    assert await kept.note_news(news("a", value=3, kind="gone")) == []
    assert [one.news for one in await kept.after(0)] == news("a", value=1)


async def test_news_concern_those_who_wait_for_them(kept: Subscriptions) -> None:
    await kept.add([order("waits"), order("was told"), order("waits too"), order("was told too")])
    await kept.note_news(news("was told", "was told too"))
    await kept.settle_news(["was told", "was told too"], "watch")

    assert keys(await kept.note_news(news("was told", "waits"))) == ["waits"]
    assert keys(await kept.note_news(news("waits too", "was told", kind="reversed"))) == ["was told"]
    found = await kept.note_news(news("waits too", "was told too", "waits", "was told", kind="gone"))
    assert [(one.subscription.key, one.met) for one in found] == [
        ("waits too", False),
        ("was told too", True),
    ]


async def test_who_was_told_is_forgotten_watched_or_waits_again(kept: Subscriptions) -> None:
    await kept.add([order(key) for key in "abc"])
    before = [one.number for one in await kept.after(0)]
    await kept.note_news(news("a", "b", "c"))

    await kept.settle_news(["a"], "forget")
    await kept.settle_news(["b"], "watch")
    await kept.settle_news(["c"], "wait")

    assert await everyone(kept) == [("b", True, None), ("c", False, None)]
    numbers = [one.number for one in await kept.after(0)]
    assert numbers[0] == before[1]
    assert numbers[1] > before[2], "what he is told next is something else"
    await kept.note_news(news("b", kind="reversed"))
    await kept.settle_news(["b"], "wait")
    assert keys(await kept.note_news(news("b", "c"))) == ["b", "c"]


async def test_who_has_no_news_was_not_told(kept: Subscriptions) -> None:
    """A key subscribed again while its callback ran, or without news, is not settled."""
    await kept.add([order("again"), order("waits"), order("watched")])
    await kept.note_news(news("again", "watched"))
    await kept.settle_news(["watched"], "watch")
    await kept.add([order("again")])

    await kept.settle_news(["again", "waits", "nobody"], "forget")
    await kept.settle_news(["again", "waits", "nobody"], "watch")
    await kept.settle_news(["watched"], "wait")

    assert await everyone(kept) == [("waits", False, None), ("watched", True, None), ("again", False, None)]


@pytest.mark.parametrize("then", ["forget", "watch", "wait"])
async def test_who_subscribed_anew_and_has_news_was_not_told_them_with_the_old_ones(
    kept: Subscriptions, then: AfterNews
) -> None:
    await kept.add([order("a"), order("b")])
    told = await kept.note_news(news("a", "b"))
    await kept.add([order("a", again=True)])
    await kept.note_news(news("a", value=2))

    await kept.settle_news(told, then)

    found = {one.subscription.key: one.news for one in await kept.after(0)}
    assert found.pop("a") == News("a", 2)
    assert found == ({} if then == "forget" else {"b": None})


async def test_what_is_kept_does_not_change_with_what_was_given_or_got(kept: Subscriptions) -> None:
    data, row = {"items": [1]}, {"tags": ["paid"]}
    await kept.add([Subscription("a", data)])
    await kept.note_news(news("a", value=row))
    data["items"].append(2)
    row["tags"].append("late")
    [found] = await kept.after(0)
    found.subscription.data["items"].append(3)

    [found] = await kept.after(0)

    assert found.subscription.data == {"items": [1]}
    assert found.news == News("a", {"tags": ["paid"]})


async def test_a_value_is_told_as_json_has_it_from_the_first_time_on(kept: Subscriptions) -> None:
    await kept.add([order("a")])
    value = {"at": datetime(2026, 1, 5, 9, tzinfo=UTC), "pair": (1, 2)}

    [found] = await kept.note_news(news("a", value=value))

    assert found.news == News("a", {"at": "2026-01-05T09:00:00Z", "pair": [1, 2]})
    assert (await kept.after(0))[0].news == found.news


_LOOP: list[Any] = []
_LOOP.append(_LOOP)


@pytest.mark.parametrize(
    ("key", "data", "text"),
    [
        ("", {}, "the key of a subscription is empty"),
        (7, {}, "is 7, not a text: write str"),
        ("k" * 201, {}, r"has 201 characters, of 200 allowed: 'k{40}'…"),
        ("\ud800", {}, "is not valid Unicode"),
        ("a1", {"x": object()}, "data of 'a1' cannot be stored as JSON: .*object"),
        ("a1", {"x": "\ud800"}, "data of 'a1' cannot be stored as JSON"),
        ("a1", {"x": _LOOP}, "data of 'a1' cannot be stored as JSON"),
        ("a1", [1], "data of 'a1' cannot be stored as JSON"),
        ("a1", {"x": datetime(2026, 1, 5, tzinfo=UTC)}, "data of 'a1' would come back changed"),
        ("a1", {"x": float("nan")}, "data of 'a1' would come back changed"),
        ("a1", {5: "x"}, "data of 'a1' would come back changed: .*keys are texts"),
        ("a1", {"x": "y" * 16_384}, "data of 'a1' is 16,392 bytes of JSON, of 16,384 allowed"),
    ],
)
async def test_what_cannot_be_kept_is_refused_by_name_and_nobody_is_added(
    kept: Subscriptions,
    key: Any,  # noqa: ANN401  (whatever somebody gives)
    data: Any,  # noqa: ANN401  (likewise)
    text: str,
) -> None:
    with pytest.raises(BadInputError, match=text):
        await kept.add([order("good"), Subscription(key, data)])

    assert await kept.count() == 0


async def test_the_most_data_is_kept(kept: Subscriptions) -> None:
    assert await kept.add([Subscription("k" * 200, {"x": "y" * 16_376})]) == [True]


async def test_a_value_that_is_no_json_is_refused_by_name_and_nothing_is_noted(kept: Subscriptions) -> None:
    await kept.add([order("a"), order("b")])

    with pytest.raises(BadInputError, match="found for 'b' cannot be stored as JSON"):
        await kept.note_news(news("a") + news("b", value=object()))

    assert await everyone(kept) == [("a", False, None), ("b", False, None)]


async def test_a_key_that_cannot_be_is_not_removed(kept: Subscriptions) -> None:
    with pytest.raises(BadInputError, match="is 7, not a text"):
        await kept.remove([7])  # type: ignore[list-item]


async def test_the_watermark_that_was_kept_last_is_there(kept: Subscriptions) -> None:
    assert await kept.watermark() is None
    await kept.save_watermark("2026-01-05 09:00:00+00:00")
    await kept.save_watermark("später")
    assert await kept.watermark() == "später"


@shared
async def test_each_poller_has_its_own(ground: Ground) -> None:
    one, other = ground.of("one"), ground.of("other")
    await one.add([order("a", x=1)])
    await one.save_watermark("1")
    assert await one.leases.lease(one.name, 10)

    assert await other.add([order("a", x=2), order("b")]) == [True, True]
    assert await other.leases.lease(other.name, 10)
    await other.note_news(news("a"))
    await other.settle_news(["a"], "forget")
    await other.remove(["b"])

    assert await everyone(one) == [("a", False, None)]
    assert (await other.count(), await other.watermark(), await one.watermark()) == (0, None, "1")


@pytest.mark.parametrize("name", ["", "n" * 201])
@shared
async def test_a_poller_needs_a_name(ground: Ground, name: str) -> None:
    with pytest.raises(BadInputError, match="the name of a poller"):
        ground.of(name)


@shared
async def test_what_one_process_adds_another_reads(ground: Ground) -> None:
    here, there = ground.of("orders"), ground.of("orders")
    await here.add([order("a")])
    seen = (await there.after(0))[-1].number

    await here.add([order("b")])

    assert keys(await there.after(seen)) == ["b"]
    assert keys(await there.note_news(news("a"))) == ["a"]
    assert await here.note_news(news("a")) == []


async def test_who_is_alone_polls(kept: Subscriptions) -> None:
    assert await kept.leases.lease(kept.name, 10)
    assert await kept.leases.lease(kept.name, 10)
    await kept.leases.give_back(kept.name)
    assert await kept.leases.lease(kept.name, 10)


@shared
async def test_one_of_two_polls_until_its_lease_is_over(ground: Ground, clock: VirtualClock) -> None:
    one, other = ground.of("orders"), ground.of("orders")
    assert await one.leases.lease(one.name, 10)
    await clock.sleep(9)
    assert not await other.leases.lease(other.name, 10)

    assert await one.leases.lease(one.name, 10)  # once more
    await clock.sleep(9.9)
    assert not await other.leases.lease(other.name, 10)
    await clock.sleep(0.2)
    assert await other.leases.lease(other.name, 10)

    assert not await one.leases.lease(one.name, 10)


@shared
async def test_a_lease_that_is_given_back_is_free_at_once(ground: Ground) -> None:
    one, other = ground.of("orders"), ground.of("orders")
    await one.save_watermark("1")
    assert await one.leases.lease(one.name, 10)
    await other.leases.give_back(other.name)  # which it has not
    assert not await other.leases.lease(other.name, 10)

    await one.leases.give_back(one.name)

    assert await other.leases.lease(other.name, 10)
    assert await other.watermark() == "1"


@shared
async def test_a_clock_that_is_set_back_does_not_make_a_lease_last(
    ground: Ground, clock: VirtualClock
) -> None:
    one, other = ground.of("orders"), ground.of("orders")
    assert await one.leases.lease(one.name, 10)
    clock.epoch -= 3_600

    assert not await other.leases.lease(other.name, 10)
    await clock.sleep(10.1)

    assert await other.leases.lease(other.name, 10)


@shared
async def test_a_leader_that_comes_late_notes_nothing_and_settles_nothing(
    ground: Ground, clock: VirtualClock
) -> None:
    late, leader = ground.of("orders"), ground.of("orders")
    await late.add([order("a"), order("b")])
    assert await late.leases.lease(late.name, 10)
    told = await late.note_news(news("a"))
    await clock.sleep(10.1)
    assert keys(await late.note_news(news("b"))) == ["b"], "nobody else polls: whoever will reads it first"
    assert await leader.leases.lease(leader.name, 10)
    before = await everyone(leader)

    with pytest.raises(NotTheSenderError, match="another process polls for orders"):
        await late.settle_news(told, "forget")
    await leader.add([order("c")])
    with pytest.raises(NotTheSenderError):
        await late.note_news(news("c"))

    assert await everyone(leader) == [*before, ("c", False, None)]
    assert keys(await leader.note_news(news("c"))) == ["c"]
    await leader.settle_news(told, "forget")
    await clock.sleep(10.1)
    await late.settle_news(["b"], "forget")
    assert keys(await late.after(0)) == ["c"]


async def test_one_unreadable_subscription_is_skipped_and_told_once(
    ground: Ground, kept: Subscriptions, caplog: pytest.LogCaptureFixture
) -> None:
    await kept.add([order(key) for key in ("a", "b", "c")])
    await ground.damage(kept, "b", b"{")

    assert [keys(await kept.after(0)) for _ in range(2)] == [["a", "c"]] * 2

    assert len(kept.unreadable) == 1
    [record] = caplog.records
    assert f"'b' of {kept.name} is unreadable" in record.getMessage()
    assert keys(await kept.note_news(news("a", "b", "c"))) == ["a", "c"]
    assert await kept.count() == 3


async def test_a_page_with_unreadable_subscriptions_is_not_the_last_one(
    ground: Ground, kept: Subscriptions
) -> None:
    names = [f"k{number:04}" for number in range(600)]
    await kept.add([order(key) for key in names])
    for key in names[:500]:
        await ground.damage(kept, key, b"no JSON")

    assert keys(await kept.after(0, 50)) == names[500:550]
    assert len(kept.unreadable) == 500


async def test_an_unreadable_subscription_is_removed_or_replaced_by_its_key(
    ground: Ground, kept: Subscriptions
) -> None:
    await kept.add([order(key) for key in ("a", "b", "c")])
    for key in ("a", "b", "c"):
        await ground.damage(kept, key, b"{}")
    assert await kept.after(0) == []

    assert await kept.remove(["a"]) == 1
    await kept.add([order("b", n=1)])
    assert await kept.add([order("c", n=2)], replace=False) == [True]

    assert [one.subscription for one in await kept.after(0)] == [order("b", n=1), order("c", n=2)]
    assert len(kept.unreadable) == 0


@pytest.mark.parametrize("seed", range(5))
async def test_whatever_bytes_are_flipped_every_other_subscription_is_read(
    ground: Ground, kept: Subscriptions, seed: int
) -> None:
    chance = random.Random(seed)
    names = [f"k{number}" for number in range(40)]
    await kept.add([order(key, chat=7) for key in names])
    damaged = chance.sample(names, 15)
    for key in damaged:
        body = bytearray(pack_subscription(order(key, chat=7)))
        body[chance.randrange(len(body))] ^= chance.randint(1, 255)
        await ground.damage(kept, key, bytes(body))

    read = keys(await kept.after(0))

    assert set(names) - set(damaged) <= set(read)
    assert len(read) + len(kept.unreadable) == len(names)


@pytest.mark.parametrize("made", ["redis"], indirect=True)
@pytest.mark.parametrize("damaged", [b"", b"\xff", b"soon somebody", b"12", b"9e99 another"])
async def test_a_lease_that_cannot_be_read_has_ended(
    ground: Ground, kept: Subscriptions, damaged: bytes, clock: VirtualClock
) -> None:
    await ground.redis.command("SET", ground.redis.key("polling:orders:lease"), damaged)

    if not await kept.leases.lease(kept.name, 10):  # it was readable, and too long: that is mended
        await clock.sleep(11)
        assert await kept.leases.lease(kept.name, 10)
    assert await kept.note_news(news("a")) == []
