"""What a conversation does, event by event."""

from typing import Literal

import msgspec
import pytest

from tidegate.flows import (
    Button,
    Flow,
    FlowBuilder,
    FlowError,
    Poll,
    State,
    Transition,
    flow_of,
    plain_of,
    read_session,
    step,
    upkeep,
)
from tidegate.flows.effects import (
    AnswerPress,
    ClearTimer,
    EndSession,
    RunWork,
    SayText,
    SetTimer,
    Subscribe,
    Unsubscribe,
)
from tidegate.flows.events import (
    Begin,
    ButtonPress,
    Command,
    Content,
    Expired,
    Polled,
    Signal,
    Text,
    TimedOut,
)
from tidegate.flows.model import MAX_PRESS_DATA
from unit.flows.talk import NOW, Talk, only, shop, words

Kind = Literal["met", "gone", "reversed"]
STALE = "That button is no longer in use."


@pytest.fixture
def talk() -> Talk:
    return Talk()


def test_a_whole_order(talk: Talk) -> None:
    said = [
        words(effects)
        for effects in (
            talk.begin(name="Ann"),
            talk.press("Tea"),
            talk.write("ann@example.org"),
            talk.finish_work({"order_id": 7, "secret": "x"}),
            talk.polled("7"),
        )
    ]

    assert said == [
        ["Hello Ann, what would you like?"],
        ["Your e-mail for the tea?"],
        ["Thank you."],
        ["Please pay order 7."],
        ["Order 7 is paid."],
    ]
    assert talk.live.data == {"name": "Ann", "item": "tea", "email": "ann@example.org", "order_id": 7}
    assert talk.live.ended


def test_buttons_stand_in_rows_and_a_link_has_its_field_filled_in(talk: Talk) -> None:
    (first,) = only(talk.begin(name="Ann"), SayText)
    assert [[button.text for button in row] for row in first.buttons] == [["Tea", "Coffee"], ["Help"]]
    assert all(len((button.data or "").encode()) <= 64 for row in first.buttons for button in row)

    talk.press("Tea")
    talk.write("a@b")
    (pay,) = only(talk.finish_work({"order_id": 7}), SayText)
    assert pay.buttons[0][0].url == "https://pay.example/7"


def test_a_command_that_leads_to_the_initial_state_begins_where_there_is_no_session(talk: Talk) -> None:
    assert talk.write("hello?") == ()
    assert talk.session is None
    talk.command("/start")
    assert talk.live.state == "start"


def test_other_commands_mean_nothing_where_there_is_no_session(talk: Talk) -> None:
    assert talk.command("/cancel") == ()
    assert talk.session is None


def test_a_flows_commands_work_in_every_state_and_its_own_come_first() -> None:
    flow = shop()
    flow.command("/skip", to="sorry")
    talk = Talk(flow.build())
    talk.begin(name="Ann")
    talk.press("Tea")

    talk.command("/skip")
    assert talk.live.state == "ordering"
    talk.command("/cancel")
    assert talk.live.state == "cancelled"


def test_a_press_is_always_answered(talk: Talk) -> None:
    talk.begin(name="Ann")
    assert talk.press("Tea")[0] == AnswerPress("q", "")


def test_a_way_without_a_target_speaks_and_stays(talk: Talk) -> None:
    talk.begin(name="Ann")
    visit = talk.live.visit

    assert words(talk.press("Help")) == ["Tea is hot."]
    assert (talk.live.state, talk.live.visit) == ("start", visit)


def test_a_button_whose_guard_does_not_hold_is_answered_and_does_nothing(talk: Talk) -> None:
    talk.begin(name="Nightowl")
    assert talk.press("Coffee") == (AnswerPress("q", "Please use the buttons."),)
    assert talk.live.state == "start"


def test_a_second_click_is_told_that_the_button_is_no_longer_in_use(talk: Talk) -> None:
    talk.begin(name="Ann")
    talk.press("Tea")
    before = talk.live.state, talk.live.visit, talk.live.data

    assert talk.press("Tea") == (AnswerPress("q", STALE),)
    assert (talk.live.state, talk.live.visit, talk.live.data) == before


def test_a_button_of_an_earlier_session_is_stale_also_if_that_session_was_forgotten(talk: Talk) -> None:
    talk.begin(name="Ann")
    talk.command("/cancel")
    talk.session = None
    old = talk.buttons[0].data or ""
    talk.begin(name="Ann")

    assert talk.take(ButtonPress(old, **talk.cause())) == (AnswerPress("", STALE),)
    assert talk.live.state == "start"


@pytest.mark.parametrize(
    "data", ["", "f", "f:shop:1:x", "f:other:{visit}:x", "f:shop:{visit}:x", "f:shop:٣:x", "buy"]
)
def test_a_press_that_is_not_of_this_state_is_stale(talk: Talk, data: str) -> None:
    talk.begin(name="Ann")
    press = ButtonPress(data.format(visit=talk.live.visit), **talk.cause())
    assert talk.take(press) == (AnswerPress("", STALE),)


def test_a_press_without_a_session_is_answered(talk: Talk) -> None:
    assert talk.take(ButtonPress("f:shop:1:x", query="q", **talk.cause())) == (AnswerPress("q", STALE),)
    assert talk.session is None


def test_what_is_out_of_place_is_told_so_in_the_states_words_or_the_flows(talk: Talk) -> None:
    talk.begin(name="Ann")
    assert words(talk.write("tea please")) == ["Please use the buttons."]
    talk.press("Tea")
    assert words(talk.write("no address")) == ["That is no e-mail address."]
    assert words(talk.command("/nonsense")) == ["That is no e-mail address."]
    assert words(talk.take(Content("photo", **talk.cause()))) == ["That is no e-mail address."]
    assert talk.live.state == "email"


def test_an_empty_otherwise_is_silence() -> None:
    states = (State("a", "Hi", on=(Transition("/end", "b"),), otherwise=""), State("b", final=True))
    talk = Talk(Flow(name="quiet", initial="a", states=states))
    talk.begin()
    assert talk.write("hello") == ()


def test_content_brings_fields_that_are_kept(talk: Talk) -> None:
    talk.begin(name="Ann")
    talk.take(Content("contact", {"item": "card", "phone": 1}, **talk.cause()))
    assert (talk.live.state, talk.live.data["item"]) == ("email", "card")


def test_what_is_saved_is_as_json_has_it(talk: Talk) -> None:
    talk.begin(name=("Ann", 1))
    assert talk.live.data == {"name": ["Ann", 1]}
    assert read_session(talk.live.to_json()) == talk.live


def test_work_is_run_once_a_visit_and_a_late_outcome_changes_nothing(talk: Talk) -> None:
    talk.begin(name="Ann")
    talk.press("Tea")
    effects = talk.command("/skip")
    assert only(effects, RunWork) == [RunWork("create_order", talk.live.visit)]
    old = talk.live.visit

    talk.command("/start")
    talk.press("Coffee")
    talk.command("/skip")
    before = talk.live
    assert talk.finish_work({"order_id": 7}, visit=old) == ()
    assert talk.live is before
    talk.finish_work({"order_id": 8})
    assert (talk.live.state, talk.live.data["order_id"]) == ("waiting", 8)


def test_work_that_fails_takes_the_other_way(talk: Talk) -> None:
    talk.begin(name="Ann")
    talk.press("Tea")
    talk.command("/skip")
    talk.fail_work("no tea left")
    assert talk.live.state == "sorry"


def test_work_without_the_field_to_be_kept_is_an_error_that_names_it(talk: Talk) -> None:
    talk.begin(name="Ann")
    talk.press("Tea")
    talk.command("/skip")
    with pytest.raises(FlowError, match=r"flow shop, state ordering: order_id is to be saved.*: id"):
        talk.finish_work({"id": 7})
    with pytest.raises(FlowError, match="not NoneType"):
        talk.finish_work(None)
    assert talk.live.state == "ordering"


def test_entering_subscribes_and_leaving_unsubscribes(talk: Talk) -> None:
    talk.begin(name="Ann")
    talk.press("Tea")
    talk.command("/skip")
    assert only(talk.finish_work({"order_id": 7}), Subscribe) == [Subscribe("payment", "7")]

    left = talk.press("Cancel")
    assert left[1:] == (
        Unsubscribe("payment", "7"),
        ClearTimer(),
        SayText("Cancelled."),
        EndSession("cancelled"),
    )


@pytest.mark.parametrize(("kind", "state"), [("met", "paid"), ("gone", "sorry"), ("reversed", "waiting")])
def test_what_polling_says_takes_it_on(talk: Talk, kind: Kind, state: str) -> None:
    talk.wait_for_payment()
    talk.polled("7", kind)
    assert talk.live.state == state


def test_news_of_another_order_means_nothing(talk: Talk) -> None:
    talk.wait_for_payment()
    before = talk.live
    assert talk.polled("8") == ()
    assert talk.live is before


def test_a_signal_of_the_application_takes_it_on_where_it_is_waited_for(talk: Talk) -> None:
    talk.begin(name="Ann")
    assert talk.take(Signal("refused", "No money.", **talk.cause())) == ()
    talk = Talk()
    talk.wait_for_payment()
    assert words(talk.take(Signal("refused", "No money.", **talk.cause()))) == ["Sorry. No money."]


def test_it_nudges_so_many_times_and_then_moves(talk: Talk) -> None:
    talk.wait_for_payment()
    entered = talk.now

    first = talk.time_out(after=900)
    assert first == (SayText("Still there?"), SetTimer(entered + 1_800, talk.live.visit))
    assert words(talk.time_out(after=900)) == ["Still there?"]
    assert words(talk.time_out(after=900)) == ["Cancelled."]


def test_a_nudge_without_a_way_is_the_last_word_of_the_timeout() -> None:
    flow = shop()
    flow.state("later", say="Later.").timeout(60, say="Now?").on("/end", to="cancelled")
    flow.command("/later", to="later")
    talk = Talk(flow.build())
    talk.begin(name="Ann")
    talk.command("/later")

    expires = talk.live.expires_at
    assert talk.time_out(after=60) == (SayText("Now?"), SetTimer(expires or 0, talk.live.visit))
    assert talk.live.due is None


def test_a_timer_that_rings_early_is_set_again_and_one_of_an_earlier_visit_means_nothing(talk: Talk) -> None:
    talk.wait_for_payment()
    due = talk.live.due or 0
    assert talk.time_out(after=10) == (SetTimer(due, talk.live.visit),)

    before = talk.live
    old = TimedOut(talk.live.visit - 1, **talk.cause(after=900))
    assert talk.take(old) == ()
    assert talk.live is before


def test_a_timeout_whose_guard_does_not_hold_rings_once() -> None:
    flow = shop()
    flow.state("later", say="Later.").timeout(60).on("timeout", to="paid", guard="has_at")
    flow.command("/later", to="later")
    talk = Talk(flow.build())
    talk.begin(name="Ann")
    talk.command("/later")
    talk.time_out(after=60)
    assert (talk.live.state, talk.live.due) == ("later", None)


def test_a_timer_of_a_state_that_has_no_timeout_any_more_rings_once(talk: Talk) -> None:
    talk.begin(name="Ann")
    talk.session = msgspec.structs.replace(talk.live, due=talk.now + 60)
    expires = talk.live.expires_at or 0
    assert talk.time_out(after=60) == (SetTimer(expires, talk.live.visit),)
    assert talk.live.due is None


def test_a_session_expires_after_its_lifetime_at_whatever_comes_next(talk: Talk) -> None:
    talk.wait_for_payment()
    effects = talk.write("hello?", after=86_400)

    said = "This conversation has expired. Please start again."
    assert effects == (
        Unsubscribe("payment", "7"),
        ClearTimer(),
        SayText(said),
        EndSession("waiting", expired=True),
    )
    assert talk.write("hello??") == ()
    talk.command("/start")
    assert (talk.live.state, talk.live.data) == ("start", {})


def test_who_comes_back_with_start_after_the_lifetime_is_not_scolded(talk: Talk) -> None:
    talk.wait_for_payment()
    effects = talk.command("/start", after=86_400)
    assert words(effects) == ["Hello , what would you like?"]
    assert Unsubscribe("payment", "7") in effects


def test_the_timer_ends_a_session_whose_state_has_no_timeout(talk: Talk) -> None:
    (timer,) = only(talk.begin(name="Ann"), SetTimer)
    assert timer.at == talk.now + 86_400
    assert EndSession("start", expired=True) in talk.time_out(after=86_400)


def test_somebody_who_looks_too_early_expires_nothing(talk: Talk) -> None:
    talk.begin(name="Ann")
    assert talk.take(Expired(**talk.cause())) == ()
    assert EndSession("start", expired=True) in talk.take(Expired(**talk.cause(after=86_400)))


def test_a_session_in_a_state_that_the_flow_no_longer_has_ends(talk: Talk) -> None:
    talk.begin(name="Ann")
    talk.session = msgspec.structs.replace(talk.live, state="removed")
    assert only(talk.write("hi"), EndSession) == [EndSession("removed", expired=True)]


def test_a_session_whose_state_has_got_a_poll_meanwhile_can_still_be_left(talk: Talk) -> None:
    talk.begin(name="Ann")
    talk.session = msgspec.structs.replace(talk.live, state="waiting")
    with pytest.raises(FlowError, match="order_id is not in the data"):
        upkeep(talk.flow, talk.live)
    assert words(talk.command("/cancel")) == ["Cancelled."]


def test_beginning_anew_forgets_the_data_and_lets_go_of_everything(talk: Talk) -> None:
    talk.wait_for_payment()
    effects = talk.begin(name="Bob")
    assert effects[0] == Unsubscribe("payment", "7")
    assert talk.live.data == {"name": "Bob"}


def test_pending_effects_are_named_by_event_and_place_until_they_are_done(talk: Talk) -> None:
    first = step(talk.flow, None, Begin({"name": "Ann"}, id="u1", at=NOW)).session
    second = step(talk.flow, first, Command("/cancel", id="u2", at=NOW)).session
    assert second is not None
    named = [(pending.event, pending.place, type(pending.effect).__name__) for pending in second.pending]
    assert named == [
        ("u1", 0, "SayText"),
        ("u1", 1, "SetTimer"),
        ("u2", 0, "ClearTimer"),
        ("u2", 1, "SayText"),
        ("u2", 2, "EndSession"),
    ]
    assert second.done().pending == ()


def test_an_event_that_comes_again_after_others_is_known_again(talk: Talk) -> None:
    """An update handled before a crash may be handed out after a timer that rang meanwhile."""
    talk.begin(name="Ann")
    update = ButtonPress(talk.buttons[0].data or "", **talk.cause())
    talk.take(update)
    talk.write("no address")
    before = talk.live
    assert talk.take(update) == ()
    assert talk.live is before


def test_after_a_restart_upkeep_says_what_a_session_needs(talk: Talk) -> None:
    talk.wait_for_payment()
    visit, due = talk.live.visit, talk.live.due or 0
    assert upkeep(talk.flow, talk.live) == [Subscribe("payment", "7"), SetTimer(due, visit)]
    talk.polled("7")
    assert upkeep(talk.flow, talk.live) == []


def test_a_guard_that_raises_is_an_error_that_names_it_and_nothing_moves() -> None:
    flow = shop()

    @flow.guard
    def is_open(data: object, event: object) -> bool:  # noqa: ARG001  (a guard)
        raise KeyError("hours")

    talk = Talk(flow.build())
    talk.begin(name="Ann")
    before = talk.live
    with pytest.raises(FlowError, match="flow shop, state start: the guard is_open raised KeyError") as told:
        talk.press("Coffee")
    assert (told.value.flow, told.value.state) == ("shop", "start")
    assert talk.live is before


def test_a_guard_cannot_change_the_data() -> None:
    flow = shop()

    @flow.guard
    def is_open(data: dict[str, object], event: object) -> bool:  # noqa: ARG001  (a guard)
        data["name"] = "Mallory"
        return True

    talk = Talk(flow.build())
    talk.begin(name="Ann")
    with pytest.raises(FlowError, match="TypeError"):
        talk.press("Coffee")


def test_a_flow_that_was_not_checked_fails_by_name() -> None:
    broken = Flow(name="f", initial="a", states=(State("a", on=(Transition("text", "b", guard="g"),)),))
    talk = Talk(broken)
    talk.begin()
    with pytest.raises(FlowError, match="no guard g"):
        talk.write("x")
    with pytest.raises(FlowError, match="no state z to go to"):
        Talk(Flow(name="f", initial="z", states=())).begin()


def test_a_session_of_another_flow_is_refused(talk: Talk) -> None:
    talk.begin(name="Ann")
    other = Flow(name="other", initial="a", states=(State("a", final=True),))
    with pytest.raises(FlowError, match="the session is of flow shop"):
        step(other, talk.session, Text("x", id="1", at=NOW))


def test_a_timer_that_rang_early_rings_again_under_the_same_name(talk: Talk) -> None:
    talk.wait_for_payment()
    early = TimedOut(talk.live.visit, id="t", at=talk.live.entered_at + 1)
    assert only(talk.take(early), SetTimer)
    due = TimedOut(talk.live.visit, id="t", at=talk.live.entered_at + 900)
    assert words(talk.take(due)) == ["Still there?"]
    assert talk.take(due) == ()


def test_what_a_button_sends_back_fits_for_the_longest_name() -> None:
    button = ((Button("Go", to="b"),),)
    states = (State("a", "Hi", buttons=button), State("b", final=True))
    talk = Talk(Flow(name="n" * 32, initial="a", states=states))
    assert talk.flow.validate() == []
    talk.begin()
    assert len((talk.buttons[0].data or "").encode()) <= MAX_PRESS_DATA
    assert isinstance(talk.press("Go")[-1], EndSession)


def test_a_session_that_begins_in_the_same_second_repeats_no_visit(talk: Talk) -> None:
    visits = set[int]()
    for _ in range(3):
        talk.session = None  # it has ended, and was forgotten
        talk.take(Begin({"name": "Ann"}, **talk.cause(0.1)))
        talk.press("Help")
        talk.command("/start", after=0.01)
        visits |= {talk.live.visit - 1, talk.live.visit}
    assert len(visits) == 6


def test_staying_with_another_key_lets_go_of_the_one_before() -> None:
    waiting = State("b", "B", poll=Poll("p", "key", "end"), on=(Transition("text", save="key"),))
    states = (State("a", "A", on=(Transition("text", "b", save="key"),)), waiting, State("end", final=True))
    talk = Talk(Flow(name="f", initial="a", states=states))
    talk.begin()
    assert Subscribe("p", "1") in talk.write("1")
    assert talk.write("2") == (Unsubscribe("p", "1"), Subscribe("p", "2"))
    assert talk.write("2") == ()
    assert words(talk.take(Polled("p", "1", **talk.cause()))) == []
    assert isinstance(talk.take(Polled("p", "2", **talk.cause()))[-1], EndSession)


def test_the_states_own_way_is_taken_before_that_of_its_poll() -> None:
    own = Transition("met:p", "other", save="amount")
    polling = State("a", "A", poll=Poll("p", "key", "end"), on=(own,))
    states = (polling, State("other", "{amount}", final=True))
    flow = Flow(name="f", initial="a", states=states, given=("key",))
    talk = Talk(flow)
    talk.begin(key="1")
    assert flow.validate() == []
    assert words(talk.take(Polled("p", "1", value=5, **talk.cause()))) == ["5"]


def test_what_stands_behind_a_command_is_kept() -> None:
    flow = FlowBuilder("f")
    flow.command("/start", to="a", save="promo").command("/use", to="b", save="code")
    flow.state("a", say="Promo {promo}.").on("text", to="b")
    flow.final("b", say="Code {code}, promo {promo}.")
    talk = Talk(flow_of(plain_of(flow.build())))
    assert words(talk.take(Command("/start", "promo7", **talk.cause()))) == ["Promo promo7."]
    assert words(talk.take(Command("/use", "x", **talk.cause()))) == ["Code x, promo promo7."]
