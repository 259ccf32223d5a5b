"""Pages of the dashboard, each with the access that it needs: without one, a page cannot be declared."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec
from starlette.routing import compile_path

from tidegate.errors import BadInputError
from tidegate.ops.access import Role
from tidegate.ops.api.api_call import ApiCall
from tidegate.ops.api.routes import RouteAccess

Context = dict[str, Any]
View = Callable[["PageRequest"], Awaitable[Context]]

MOST_FIELDS: Final = 50  # of a query
LONGEST_PATH: Final = 500  # characters
MOST_DIGITS: Final = 18  # of a number: an integer of a database has room for it


class PageMovedError(Exception):
    """The page that was asked for is at another address."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class PageRequest:
    """A request for a page: who asks, the parts of its path, and its query. Raises BadInputError."""

    def __init__(self, call: ApiCall, parts: Mapping[str, Any], query: str) -> None:
        self.call = call
        self.parts = parts
        try:
            self.fields = parse_qsl(query, keep_blank_values=False, max_num_fields=MOST_FIELDS)
        except ValueError:
            raise BadInputError(f"the address has more than {MOST_FIELDS} fields") from None

    def one(self, name: str) -> str | None:
        """Return a field of the query without blanks around it; None if it is not given or empty."""
        found = next((value.strip() for field, value in self.fields if field == name), "")
        return found or None

    def all(self, name: str) -> list[str]:
        return [value for field, value in self.fields if field == name]

    def number(self, name: str) -> int | None:
        """Return a field as a number; None if it is not given. Raises BadInputError."""
        found = self.one(name)
        if found is None:
            return None
        if not found.isascii() or not found.removeprefix("-").isdecimal() or len(found) > MOST_DIGITS:
            raise BadInputError(f"{name} is a number, not {found[:MOST_DIGITS]}")
        return int(found)

    def can(self, role: str) -> bool:
        return self.call.principal.role.includes(Role(role))


class DashboardPage(msgspec.Struct, frozen=True, kw_only=True):
    """`every`: seconds between two renderings of its live part, while somebody looks at it; None: never.

    A view that returns an `every` of its own has that instead, say None for what takes long to find.

    Two who look at the same address with the same role and scope see the same live part, so `view` may not
    depend on anything else about them.
    """

    path: str
    template: str
    title: str
    access: RouteAccess
    view: View
    every: float | None = None


class PageTable:
    """Declared pages of one area, in order."""

    def __init__(self) -> None:
        self._pages: list[DashboardPage] = []

    def __iter__(self) -> Iterator[DashboardPage]:
        return iter(self._pages)

    def page(
        self, path: str, template: str, title: str, access: RouteAccess, *, every: float | None = None
    ) -> Callable[[View], View]:
        def declare(view: View) -> View:
            self._pages.append(
                DashboardPage(
                    path=path, template=template, title=title, access=access, view=view, every=every
                )
            )
            return view

        return declare


class PageIndex:
    """Finds the page of a path. Of several that match, the first one counts."""

    def __init__(self, pages: list[DashboardPage]) -> None:
        self._pages = [(page, *compile_path(page.path)) for page in pages]

    def find(self, path: str) -> tuple[DashboardPage, dict[str, Any]] | None:
        for page, pattern, _, convertors in self._pages:
            found = pattern.match(path)
            if found is not None and len(path) <= LONGEST_PATH:  # a number without end is none
                parts = {name: convertors[name].convert(value) for name, value in found.groupdict().items()}
                return page, parts
        return None
