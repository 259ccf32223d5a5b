"""What NocoDB answers, read with suspicion."""

from typing import Any

import msgspec

Row = dict[str, Any]


class Page(msgspec.Struct, frozen=True):
    """`total`: all rows that match. There may be fewer rows than asked for: `is_last` tells the end."""

    rows: list[Row]
    total: int
    is_last: bool


class PageInfo(msgspec.Struct, rename="camel"):
    total_rows: int
    is_last_page: bool


class Listing(msgspec.Struct):
    list: list[Row]
    page_info: PageInfo = msgspec.field(name="pageInfo")


class Counted(msgspec.Struct):
    count: int
