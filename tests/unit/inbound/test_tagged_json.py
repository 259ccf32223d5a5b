"""Python data as JSON: whatever goes in comes out equal and of the same types, or is refused."""

import datetime as dt
import enum
import json
import sys
from collections import OrderedDict
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from math import inf, isnan, nan
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.inbound.tagged_json import TAG, UnknownTypeError, UnstorableError, from_json, to_json

NAME = __name__


class Size(enum.StrEnum):
    BIG = "big"


class Step(enum.Enum):
    FIRST = (1, "one")
    SECOND = dt.date(2026, 1, 1)


class Level(enum.IntEnum):
    LOW = 1


class Access(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()


class Point(NamedTuple):
    x: int
    y: Any


@dataclass(frozen=True, slots=True)
class Item:
    name: str
    price: Decimal


@dataclass
class Cart:
    items: list[Item]
    notes: Any = None
    made: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.made += 1

    @cached_property
    def total(self) -> Decimal:
        return sum((item.price for item in self.items), Decimal(0))


class Shop:
    @dataclass
    class Owner:
        name: str


BERLIN, KATHMANDU = ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Kathmandu")
ZONES = st.sampled_from([None, dt.UTC, dt.timezone(dt.timedelta(hours=-3, minutes=-30)), BERLIN, KATHMANDU])
TIMES = st.datetimes(timezones=ZONES, allow_imaginary=True)
NAMES = st.sampled_from(["", "a", "name", TAG, "value", "class", "привет", "\ud83d", "x.y"])
SCALARS: Any = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**80), 2**80),
    st.floats(allow_nan=False),
    st.text(),
    NAMES,
    TIMES,
    st.dates(),
    st.times(timezones=ZONES),
    st.timedeltas(),
    st.decimals(allow_nan=False),
    st.uuids(),
    st.binary(),
    st.sampled_from([Size.BIG, Step.FIRST, Step.SECOND, Level.LOW, Access.READ, Access.READ | Access.WRITE]),
    st.builds(Item, st.text(), st.decimals(allow_nan=False)),
)
HASHABLE: Any = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.tuples(inner, inner), st.frozensets(inner, max_size=3), st.builds(Point, st.integers(), inner)
    ),
    max_leaves=4,
)
VALUES: Any = st.recursive(
    HASHABLE,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner),
        st.sets(HASHABLE, max_size=4),
        st.dictionaries(NAMES, inner, max_size=4),
        st.dictionaries(HASHABLE, inner, max_size=3),
        st.builds(Cart, st.lists(st.builds(Item, st.text(), st.just(Decimal(1))), max_size=2), inner),
    ),
    max_leaves=15,
)
DATA = st.dictionaries(NAMES, VALUES, max_size=5)


def shape(value: object) -> object:
    """A value with the types of everything in it, comparable."""
    kind = type(value)
    if isinstance(value, dict):
        return kind, {repr(shape(key)): shape(one) for key, one in value.items()}
    if isinstance(value, set | frozenset):
        return kind, sorted(repr(shape(one)) for one in value)
    if isinstance(value, list | tuple):
        return kind, [shape(one) for one in value]
    if isinstance(value, Cart):
        return kind, shape(value.items), shape(value.notes), value.made
    if isinstance(value, dt.datetime | dt.time):
        return kind, value.replace(tzinfo=None).isoformat(), value.fold, repr(value.tzinfo)
    return kind, repr(value)  # which tells -0.0 from 0.0


@given(data=DATA, ascii_only=st.booleans())
def test_whatever_goes_in_comes_out_equal_and_of_the_same_types(
    *, data: dict[Any, Any], ascii_only: bool
) -> None:
    found = from_json(to_json(data, ascii_only=ascii_only))

    assert shape(found) == shape(data)
    assert found == data or "fold=1" in repr(data)  # which Python finds equal to no time of another zone


KEYS = st.text().filter(lambda key: key != "__tidegate__")  # the key of a tag is written in another way
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
)


@given(st.dictionaries(KEYS, PLAIN))
def test_what_json_has_is_written_as_plain_json_and_read_as_earlier_versions_wrote_it(
    data: dict[str, Any],
) -> None:
    written = json.dumps(data, ensure_ascii=False, separators=(",", ":"))

    assert to_json(data) == written
    assert json.loads(to_json(data, ascii_only=True)) == data
    assert from_json(written) == from_json(json.dumps(data)) == data


@pytest.mark.parametrize(
    "data", [{TAG: "datetime"}, {TAG: 5, "value": 1}, {TAG: "set", "value": [1], "more": 2}, {TAG: None}]
)
def test_data_of_earlier_versions_that_only_look_like_a_tag_are_read_as_they_are(
    data: dict[str, Any],
) -> None:
    assert from_json(json.dumps({"a": data})) == {"a": data}


def test_numbers_that_are_none_are_kept() -> None:
    assert isnan(from_json(to_json({"n": nan}))["n"])
    assert from_json(to_json([inf, -inf])) == [inf, -inf]


def test_subclasses_of_what_json_has_come_back_as_it_does() -> None:
    class Markup(str):
        __slots__ = ()

    found = from_json(to_json({"a": Markup("<b>"), Markup("b"): OrderedDict(c=1)}))

    assert found == {"a": "<b>", "b": {"c": 1}}
    assert [type(found["a"]), type(found["b"])] == [str, dict]


def test_a_cached_property_of_a_dataclass_is_computed_anew() -> None:
    cart = Cart([Item("tea", Decimal(2))])
    assert cart.total == Decimal(2)

    found = from_json(to_json(cart))

    assert (found, found.made, "total" in vars(found)) == (cart, 1, False)
    assert from_json(to_json(Shop.Owner("Ada"))) == Shop.Owner("Ada")


class Anything:
    pass


class FakeZone(dt.tzinfo):
    def utcoffset(self, when: dt.datetime | None) -> dt.timedelta:  # noqa: ARG002
        return dt.timedelta(0)

    dst = utcoffset

    def tzname(self, when: dt.datetime | None) -> str:  # noqa: ARG002
        return "fake"


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


@dataclass
class Lost(dict[str, int]):
    """A dict with fields: what is in the dict is not in the fields."""

    name: str


def local_values() -> list[Any]:
    @dataclass
    class Local:
        n: int

    class Choice(enum.Enum):
        A = 1

    changed = Cart([])
    vars(changed)["more"] = 1
    return [Local(1), Choice.A, changed]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Anything(), r"'a\.b\[0\]' is of the type Anything"),
        (Anything, r"'a\.b\[0\]' is of the type type"),
        (Item, r"'a\.b\[0\]' is of the type type"),
        (dt.datetime(2026, 1, 1, tzinfo=FakeZone()), r"'a\.b\[0\]' has a time zone of the type FakeZone"),
        (CIRCLE, "nested more than 100 deep"),
        ([10**5000], "digits"),
        (Lost(name="x"), "not safe"),
        (local_values()[0], r"'a\.b\[0\]' is of the class local_values.<locals>.Local"),
        (local_values()[1], r"'a\.b\[0\]' is of the class local_values.<locals>.Choice"),
        (local_values()[2], r"'a\.b\[0\]' has an attribute 'more', which is no field of Cart"),
        ({Anything(): 1}, "is of the type Anything"),
        (bytearray(b"x"), "bytearray"),
    ],
)
def test_what_could_not_be_restored_is_refused_by_name(value: object, text: str) -> None:
    with pytest.raises(UnstorableError, match=text):
        to_json({"a": {"b": [value]}})


def stored(tag: str, value: object, name: str | None = None) -> str:
    return json.dumps({TAG: tag, "value": value, **({} if name is None else {"class": name})})


@pytest.mark.parametrize(
    "text",
    [
        stored("dataclass", {}, "antigravity:Nothing"),  # a module that would open a browser
        stored("dataclass", {"args": "id"}, "subprocess:Popen"),
        stored("dataclass", {}, "os:system"),
        stored("dataclass", {}, f"{NAME}:Anything"),
        stored("dataclass", {}, f"{NAME}:json.JSONDecoder"),
        stored("dataclass", {}, "tidegate:Tidegate"),  # which the package would import when asked for
        stored("dataclass", {}, NAME),
        stored("dataclass", {}, ""),
        stored("dataclass", [], f"{NAME}:Item"),
        stored("enum", "GONE", f"{NAME}:Size"),
        stored("enum", "x", f"{NAME}:Item"),
        stored("enum", "x", f"{NAME}:Access"),
        stored("namedtuple", [1], f"{NAME}:Point"),
        stored("namedtuple", [1], "builtins:tuple"),
        stored("eval", "1"),
        stored("dataclass", {}),
        stored("set", [[]]),
        stored("dict", [1]),
        stored("Decimal", "x"),
        stored("UUID", "x"),
        stored("UUID", 5),
        stored("bytes", "*"),
        stored("datetime", "yesterday"),
        stored("datetime", ["2026-01-01", 0, "../../etc/passwd"]),
        stored("datetime", ["2026-01-01", 7, None]),
        stored("timedelta", [10**20]),
    ],
)
def test_stored_data_import_and_call_nothing_and_are_refused(text: str) -> None:
    before = set(sys.modules)

    with pytest.raises(UnknownTypeError):
        from_json(f'{{"a": [{text}]}}')

    assert set(sys.modules) - before <= {"zoneinfo._common", "importlib.resources"}


def test_a_class_that_changed_meanwhile_is_read_if_it_can_be() -> None:
    """Fields that it has gained have their defaults, those that it has lost are left out."""
    found = from_json(stored("dataclass", {"items": [], "gone": 1}, f"{NAME}:Cart"))
    assert (found.items, found.notes, found.made) == ([], None, 0)

    with pytest.raises(UnknownTypeError, match="has a field 'price' by now, without a default"):
        from_json(stored("dataclass", {"name": "tea"}, f"{NAME}:Item"))


def test_the_types_are_named_as_they_are_documented() -> None:
    """Files of this version are read by later ones: these texts do not change."""
    data = {
        "at": dt.datetime(2026, 1, 5, 10, tzinfo=dt.UTC),
        "id": UUID(int=1),
        "tags": {1},
        "answers": {0: "a"},
        "size": Size.BIG,
        "item": Item("tea", Decimal("2.50")),
    }

    assert json.loads(to_json(data)) == {
        "at": {TAG: "datetime", "value": "2026-01-05T10:00:00+00:00"},
        "id": {TAG: "UUID", "value": "00000000-0000-0000-0000-000000000001"},
        "tags": {TAG: "set", "value": [1]},
        "answers": {TAG: "dict", "value": [[0, "a"]]},
        "size": {TAG: "enum", "class": f"{NAME}:Size", "value": "BIG"},
        "item": {
            TAG: "dataclass",
            "class": f"{NAME}:Item",
            "value": {"name": "tea", "price": {TAG: "Decimal", "value": "2.50"}},
        },
    }
