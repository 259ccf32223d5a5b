"""Orders to the control API: what they may hold."""

from typing import Annotated, Any

import msgspec

Seconds = Annotated[float, msgspec.Meta(ge=0, le=86_400)]
Skew = Annotated[float, msgspec.Meta(ge=-1e8, le=1e8)]
Title = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]


class NewTable(msgspec.Struct, forbid_unknown_fields=True):
    title: Title
    key: Title = "Id"
    columns: dict[Title, str] | None = None


class OfTable(msgspec.Struct, forbid_unknown_fields=True):
    table: str


class Rows(OfTable, forbid_unknown_fields=True):
    rows: list[dict[str, Any]]
    commit_after: Seconds = 0.0


class Pay(OfTable, forbid_unknown_fields=True):
    id: int
    commit_after: Seconds = 0.0


class Direct(OfTable, forbid_unknown_fields=True):
    id: int
    fields: dict[str, Any]


class Delete(OfTable, forbid_unknown_fields=True):
    ids: list[int]


class SetSkew(msgspec.Struct, forbid_unknown_fields=True):
    seconds: Skew
