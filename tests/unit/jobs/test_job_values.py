"""Values of jobs: what is taken comes back as it was, and all else is refused with its place."""

import datetime as dt
import decimal
import math
from collections import OrderedDict
from contextlib import suppress
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import BadInputError
from tidegate.jobs.values import DEEPEST, check_storable, pack_values, unpack_values
from tidegate.model import File

files = st.one_of(
    st.builds(File, content=st.binary(), name=st.none() | st.text()),
    st.builds(File, path=st.sampled_from(["/srv/label.pdf", "/srv/ä b.png"])),
)
good = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(),
        st.binary(),
        files,
    ),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


class Colour(StrEnum):
    RED = "red"


class Size(IntEnum):
    BIG = 3


class Plain(Enum):
    ONE = "one"


class Text(str):
    __slots__ = ()


class Number(float):
    __slots__ = ()


class Point(NamedTuple):
    x: int
    y: int


bad = st.one_of(
    st.sets(st.integers(), min_size=1),
    st.datetimes(),
    st.decimals(),
    st.fractions(),
    st.complex_numbers(),
    st.integers(2**63),
    st.integers(max_value=-(2**63) - 1),
    st.sampled_from(
        [
            math.nan,
            math.inf,
            -math.inf,
            "\ud800",
            bytearray(b"a"),
            memoryview(b"a"),
            object(),
            len,
            int,
            {1: 2},
            {None: 1},
            {b"a": 1},
            {"\udfff": 1},
            {(): 1},
            Plain.ONE,
            Text("a"),
            Number(1.5),
            ValueError("no"),
            Path("/srv"),
            File(),
            File(path=7),  # type: ignore[arg-type]
            File(path="\udc80"),
            File(content="text"),  # type: ignore[arg-type]
            File(content=bytearray(b"a")),  # type: ignore[arg-type]
            File(content=b"a", name=7),  # type: ignore[arg-type]
            File(content=b"a", name="\ud800"),
        ]
    ),
)


def with_lists(value: Any) -> Any:  # noqa: ANN401
    """The value with lists in place of tuples."""
    if isinstance(value, list | tuple):
        return [with_lists(item) for item in value]
    return {name: with_lists(item) for name, item in value.items()} if isinstance(value, dict) else value


@given(good)
def test_what_is_taken_comes_back_as_it_was(value: object) -> None:
    check_storable(value, "argument 1")
    assert unpack_values(pack_values(value)) == with_lists(value)


@given(good | bad | st.lists(good | bad) | st.dictionaries(st.text(), good | bad))
def test_whatever_passes_the_check_can_be_packed_and_unpacked(value: object) -> None:
    with suppress(BadInputError):
        check_storable(value, "argument 1")
        assert unpack_values(pack_values(value)) == with_lists(value)


@given(bad)
def test_all_else_is_refused_wherever_it_is(value: object) -> None:
    for within, place in (
        (value, "argument 1"),
        ([0, value], "argument 1[1]"),
        ({"a": ({"b": value},)}, "argument 1['a'][0]['b']"),
    ):
        with pytest.raises(BadInputError, match="argument 1") as refused:
            check_storable(within, "argument 1")
        assert place in str(refused.value)


def test_values_that_come_back_as_plainer_ones() -> None:
    value = {"colour": Colour.RED, "size": Size.BIG, "at": Point(1, 2), "more": OrderedDict(a=1)}
    check_storable(value, "the result")
    assert unpack_values(pack_values(value)) == {"colour": "red", "size": 3, "at": [1, 2], "more": {"a": 1}}


def test_the_path_of_a_file_is_absolute_as_a_job_runs_elsewhere() -> None:
    file = File(path="label.pdf")
    check_storable(file, "the result")
    assert unpack_values(pack_values(file)) == File(path=str(Path.cwd() / "label.pdf"))


def test_a_key_with_half_a_character_is_refused() -> None:
    """The check passed it, and packing failed with an error of Python's."""
    with pytest.raises(BadInputError, match=r"a key of argument 1\['a'\] holds half a character"):
        check_storable({"a": {"\ud800": 1}}, "argument 1")


def test_a_number_of_a_class_of_its_own_is_refused() -> None:
    """NumPy's float64 is a float: the check passed it, and packing failed with a TypeError."""
    with pytest.raises(BadInputError, match="argument 1 is of type Number, which cannot be stored"):
        check_storable(Number(1.5), "argument 1")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (dt.date(2026, 1, 1), "is of type date, which cannot be stored: give texts, numbers, bytes"),
        (decimal.Decimal(1), "is of type Decimal"),
        (Fraction(1, 2), "is of type Fraction"),
        (Point(1, object()), r"\[1\] is of type object"),  # type: ignore[arg-type]
        (2**64, "is a number of more than 64 bits: give it as a text"),
        (math.nan, "is nan, which is not a finite number"),
        ({1: 2}, "has the key 1: give texts as keys"),
    ],
)
def test_a_refusal_says_what_to_give_instead(value: object, text: str) -> None:
    with pytest.raises(BadInputError, match=text):
        check_storable(value, "argument 1")


def test_what_holds_itself_is_refused() -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(BadInputError, match="is nested too deeply"):
        check_storable(endless, "argument 1")

    deep: object = "at the bottom"
    for _ in range(DEEPEST):
        deep = [deep]
    check_storable(deep, "argument 1")
    assert unpack_values(pack_values(deep)) == deep


def test_a_refusal_is_short_however_long_the_key_is() -> None:
    with pytest.raises(BadInputError) as refused:
        check_storable({"x" * 100_000: object()}, "argument 1")
    assert len(str(refused.value)) < 300
