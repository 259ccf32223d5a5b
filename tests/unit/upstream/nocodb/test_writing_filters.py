"""The text of a filter: plain values in the grammar of every version, others quoted, or refused."""

import math
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import BadInputError
from tidegate.sim.nocodb.where_grammar import WhereCondition, WhereGroup, WherePart
from tidegate.sim.nocodb.where_grammar import parse_plain as read_old
from tidegate.sim.nocodb.where_grammar import parse_quoted as read_new
from tidegate.upstream.nocodb.where import (
    AllOf,
    AnyOf,
    Where,
    all_of,
    any_of,
    before,
    checked,
    eq,
    filter_text,
    gt,
    gte,
    is_blank,
    like,
    negate,
    neq,
    one_of,
    since,
)

EPOCH = "gte,exactDate,1970-01-01 00:00:00+00:00"
MARKS = st.text(alphabet="ab,()~'\"\\ @\nor%", max_size=6)
VALUES = st.one_of(
    MARKS, st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=9)
)
FIELDS = st.sampled_from(["Paid", "Order Id", "Sum (USD)", "it's", 'so "called"', "a,b"])
LEAVES = st.one_of(
    st.builds(eq, FIELDS, VALUES),
    st.builds(neq, FIELDS, VALUES),
    st.builds(one_of, FIELDS, st.lists(VALUES, min_size=1, max_size=4)),
    st.builds(checked, FIELDS),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: all_of(*parts)),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: any_of(*parts)),
        inner.map(negate),
    ),
    max_leaves=8,
)


def parts_of(where: Where, joint: str = "") -> WherePart:
    """Filters that the server must understand."""
    if isinstance(where, AllOf | AnyOf):
        word = "and" if isinstance(where, AllOf) else "or"
        first, *others = where.parts
        return WhereGroup(joint, (parts_of(first), *(parts_of(part, word) for part in others)))
    return WhereCondition(joint, where.field, where.operator, where.values or None)


@given(TREES)
def test_the_server_reads_what_was_meant_or_it_is_refused(where: Where) -> None:
    try:
        text = filter_text(where)
    except BadInputError:
        return
    understood = read_new(text[1:]) if text.startswith("@") else read_old(text)
    meant = parts_of(where)
    assert understood == (meant.parts if isinstance(meant, WhereGroup) else (meant,))


@given(st.text(alphabet="ab'\"\\, %", max_size=8))
def test_any_text_without_marks_can_be_asked_for_alone(value: str) -> None:
    assert filter_text(eq("OrderId", value)) == f"(OrderId,eq,{value})"


@pytest.mark.parametrize(
    ("where", "text"),
    [
        (checked("Paid"), "(Paid,checked)"),
        (negate(checked("Paid")), "(Paid,notchecked)"),
        (one_of("Id", [1, 2, 3]), "(Id,in,1,2,3)"),
        (one_of("OrderId", ["a,b", "c"]), "@(OrderId,in,'a,b','c')"),
        (eq("OrderId", "a (b)"), "@(OrderId,eq,'a (b)')"),
        (eq("Sum (USD)", 5), "@('Sum (USD)',eq,'5')"),
        (like("Note", "100%"), "(Note,like,100%)"),
        (is_blank("Note"), "(Note,blank)"),
        (since("Due", 1767603600.9), "(Due,gte,exactDate,2026-01-05 09:00:00+00:00)"),
        (before("Due", 1767603600.1), "(Due,lt,exactDate,2026-01-05 09:00:01+00:00)"),
        (
            since("Due", datetime(2026, 1, 5, 12, tzinfo=timezone(timedelta(hours=3)))),
            "(Due,gte,exactDate,2026-01-05 09:00:00+00:00)",
        ),
        (
            all_of(any_of(since("U", 0), since("C", 0)), checked("Paid")),
            f"((U,{EPOCH})~or(C,{EPOCH}))~and(Paid,checked)",
        ),
        (negate(gt("Amount", 5)), "(Amount,lte,5)~or(Amount,blank)"),
        (negate(one_of("Id", [1, 2])), "(Id,neq,1)~and(Id,neq,2)"),
        (negate(any_of(checked("A"), checked("B"))), "(A,notchecked)~and(B,notchecked)"),
        (
            any_of(all_of(checked("A"), checked("B")), all_of(checked("C"), checked("D"))),
            "@((A,checked)~and(B,checked))~or((C,checked)~and(D,checked))",
        ),
    ],
)
def test_filters_as_they_are_sent(where: Where, text: str) -> None:
    assert filter_text(where) == text


@given(TREES)
def test_a_group_never_holds_less_than_two(where: Where) -> None:
    if isinstance(where, AllOf | AnyOf):
        assert len(where.parts) > 1
        assert not any(isinstance(part, type(where)) for part in where.parts)


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: eq("Paid", value=True), "checked"),
        (lambda: eq("Amount", math.nan), "cannot be the value"),
        (lambda: eq("Amount", None), "NoneType"),  # type: ignore[arg-type]
        (lambda: eq("Due", datetime(2026, 1, 5)), "since"),  # type: ignore[arg-type]  # noqa: DTZ001
        (lambda: since("Due", datetime(2026, 1, 5)), "zone"),  # noqa: DTZ001
        (lambda: since("Due", -1.0), "not a time"),
        (lambda: since("Due", math.nan), "not a time"),
        (lambda: one_of("Id", []), "nothing to ask"),
        (lambda: like("Note", ""), "every row"),
        (all_of, "at least one"),
        (any_of, "at least one"),
        (lambda: filter_text(eq("", 1)), "name of a field"),
        (lambda: filter_text(eq("Note", "a\x00b")), "control"),
        (lambda: filter_text(eq("Note", "\ud800")), "control"),
        (lambda: filter_text(eq("Note", "(both ' and \")")), "both kinds"),
        (lambda: filter_text(one_of("Note", ["a,b", "c d\\"])), "backslash"),
    ],
)
def test_what_cannot_be_said_is_refused_with_a_reason(build: "object", says: str) -> None:
    assert callable(build)
    with pytest.raises(BadInputError, match=says):
        build()


@given(st.integers(), st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_are_said_in_full(whole: int, fraction: float) -> None:
    assert filter_text(gte("Amount", whole)) == f"(Amount,gte,{whole})"
    assert float(filter_text(gte("Amount", fraction))[len("(Amount,gte,") : -1]) == fraction
