"""A file is uploaded once for all callers, and none waits for an upload that will not come."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.delivery.bot_api import FileIdCache, FileKey, file_id_in
from tidegate.sim.virtual_time import VirtualClock


class Uploads:
    """Callers that look for ids and upload what is missing, one second each."""

    def __init__(self, clock: VirtualClock, ids: FileIdCache) -> None:
        self.clock, self.ids = clock, ids
        self.uploaded: list[str] = []

    async def send(self, *keys: str, file_id: str | None = "id", fail: bool = False) -> dict[FileKey, str]:
        async with self.ids.claim(keys) as known:
            missing = [key for key in keys if key not in known]
            if missing:
                self.uploaded += missing
                await self.clock.sleep(1)
                if fail:
                    raise ConnectionError
                for key in missing:
                    self.ids.learn(key, file_id and f"{file_id} of {key}")
            return dict(known)


@pytest.fixture
async def uploads(clock: VirtualClock) -> Uploads:
    return Uploads(clock, FileIdCache())


async def test_those_who_come_during_an_upload_wait_and_reuse_it(
    clock: VirtualClock, uploads: Uploads
) -> None:
    found = await asyncio.gather(*(uploads.send("cat") for _ in range(50)))
    assert uploads.uploaded == ["cat"]
    assert found == [{}] + [{"cat": "id of cat"}] * 49
    assert clock.monotonic() == 1


async def test_when_an_upload_fails_the_next_in_line_does_it(uploads: Uploads) -> None:
    found = await asyncio.gather(
        uploads.send("cat", fail=True), uploads.send("cat"), uploads.send("cat"), return_exceptions=True
    )
    assert uploads.uploaded == ["cat", "cat"]
    assert isinstance(found[0], ConnectionError)
    assert found[2] == {"cat": "id of cat"}


async def test_when_an_upload_is_cancelled_the_next_in_line_does_it(
    clock: VirtualClock, uploads: Uploads
) -> None:
    first = asyncio.create_task(uploads.send("cat"))
    second = asyncio.create_task(uploads.send("cat"))
    await clock.sleep(0.5)
    first.cancel()
    await second
    assert uploads.uploaded == ["cat", "cat"]
    assert clock.monotonic() == 1.5


async def test_one_who_gives_up_waiting_does_not_disturb_the_upload(
    clock: VirtualClock, uploads: Uploads
) -> None:
    first, second, third = (asyncio.create_task(uploads.send("cat")) for _ in range(3))
    await clock.sleep(0.5)
    second.cancel()
    await asyncio.gather(first, third)
    assert uploads.uploaded == ["cat"]


async def test_a_file_without_an_id_is_uploaded_side_by_side_from_then_on(
    clock: VirtualClock, uploads: Uploads
) -> None:
    await uploads.send("gif", file_id=None)
    await asyncio.gather(*(uploads.send("gif", file_id=None) for _ in range(3)))
    assert uploads.uploaded == ["gif"] * 4
    assert clock.monotonic() == 2


async def test_albums_that_share_files_in_other_orders_do_not_block_each_other(uploads: Uploads) -> None:
    await asyncio.gather(
        uploads.send("a", "b"), uploads.send("b", "c"), uploads.send("c", "a"), uploads.send("d")
    )
    assert sorted(uploads.uploaded) == ["a", "b", "c", "d"]


async def test_a_rejected_id_is_forgotten_but_not_a_newer_one(uploads: Uploads) -> None:
    uploads.ids.learn("cat", "old")
    uploads.ids.forget("cat", "old")
    uploads.ids.learn("cat", "new")
    uploads.ids.forget("cat", "old")
    assert await uploads.send("cat") == {"cat": "new"}


async def test_the_least_recently_used_make_room(clock: VirtualClock) -> None:
    uploads = Uploads(clock, FileIdCache(most=2))
    for key in ("a", "b", "a", "c"):
        await uploads.send(key)
    assert len(uploads.ids) == 2
    assert await uploads.send("a") == {"a": "id of a"}
    assert await uploads.send("b") == {}


def test_the_largest_size_of_a_photo_is_taken() -> None:
    sizes = [
        {"file_id": "m", "width": 320, "height": 200},
        {"file_id": "l", "width": 1280, "height": 800},
        {"file_id": "s", "width": 90, "height": 60},
    ]
    assert file_id_in({"photo": sizes}, "photo", 0) == "l"


def test_each_item_of_an_album_has_its_own() -> None:
    album = [{"photo": [{"file_id": "a"}]}, {"document": {"file_id": "b"}}]
    assert file_id_in(album, "document", 1) == "b"
    assert file_id_in(album, "document", 0) is None
    assert file_id_in(album, "document", 2) is None


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["photo", "file_id", "width", "height"]), inner, max_size=4)
        ),
        max_leaves=10,
    )
)
def test_whatever_the_result_looking_for_an_id_never_fails(result: object) -> None:
    assert isinstance(file_id_in(result, "photo", 0), str | None)
