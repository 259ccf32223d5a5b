"""An uploaded file is read by the rules of audience files, however its bytes arrive."""

import itertools
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.broadcast.audience_file import MAX_LINE, BadLine, GoodLine
from tidegate.broadcast.audience_upload import LINES_AT_ONCE, file_lines, received_audience
from tidegate.errors import BadInputError
from tidegate.sim import virtual_time


async def stream(*blocks: bytes) -> AsyncIterator[bytes]:
    for block in blocks:
        yield block


async def read(
    *blocks: bytes, name: str = "people.csv", needed: tuple[str, ...] = ("chat_id",)
) -> list[object]:
    async with received_audience(stream(*blocks), name) as file:
        return [line async for line in file_lines(file, needed)]


PEOPLE = 'chat_id,name\n1001,"Ann, 😀\nof Rye"\n\n1002,x,y\n1003,Bob'.encode()


@given(st.lists(st.integers(0, len(PEOPLE)), max_size=8).map(sorted))
def test_lines_are_the_same_wherever_the_stream_is_cut(cuts: list[int]) -> None:
    ends = [0, *cuts, len(PEOPLE)]
    blocks = [PEOPLE[start:end] for start, end in itertools.pairwise(ends)]

    assert virtual_time.run(lambda _: read(*blocks)) == [
        GoodLine(2, {"chat_id": "1001", "name": "Ann, 😀\nof Rye"}),
        BadLine(5, "has 3 values for 2 columns: quote what holds a delimiter"),
        GoodLine(6, {"chat_id": "1003", "name": "Bob"}),
    ]


async def test_json_lines_are_read_one_by_one() -> None:
    found = await read(b'{"chat_id": 1}\n[1]\n{"chat', b'_id": 2}\nx\n', name="people.ndjson")

    assert found[:3] == [
        GoodLine(1, {"chat_id": 1}),
        BadLine(2, 'is no JSON object: write {"chat_id": …}'),
        GoodLine(3, {"chat_id": 2}),
    ]
    assert isinstance(found[3], BadLine)
    assert found[3].reason.startswith("is no JSON: ")


async def test_all_lines_of_a_long_file_are_read_in_order() -> None:
    count = 2 * LINES_AT_ONCE + 1
    found = await read(b"chat_id\n", *(b"%d\n" % number for number in range(1, count + 1)))
    assert found == [GoodLine(number + 1, {"chat_id": str(number)}) for number in range(1, count + 1)]


@pytest.mark.parametrize(
    ("content", "needed", "text"),
    [
        (b"", ("chat_id",), "people.csv is empty"),
        (
            b"chat_id,town\n1,Rye\n",
            ("chat_id", "name"),
            "there is no column 'name' but chat_id, town: the template",
        ),
        (b"id\n1\n", ("chat_id",), "the first line must name the columns, and one of them chat_id"),
        (b"PK\x03\x04...", ("chat_id",), "is a spreadsheet or an archive: save it as CSV"),
        (b"chat_id\n" + b"1" * (MAX_LINE + 1), ("chat_id",), r"line 2: has more than 2,097,152 bytes"),
    ],
)
async def test_a_file_that_is_useless_as_a_whole_is_refused(
    content: bytes, needed: tuple[str, ...], text: str
) -> None:
    with pytest.raises(BadInputError, match=text):
        await read(content, needed=needed)


async def test_an_upload_that_is_too_large_is_refused_before_it_is_complete() -> None:
    arrived = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal arrived
        while True:
            arrived += 1
            yield b"1\n" * 500_000

    with pytest.raises(BadInputError, match=r"people.csv has more than 5,000,000 bytes"):
        async with received_audience(endless(), "people.csv", most=5_000_000):
            pass
    assert arrived <= 7
