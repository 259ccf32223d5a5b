"""Polls: sent by a bot, answered by people, told to the bot, stopped."""

import pytest

from simulated import Call
from tidegate.errors import BadInputError
from tidegate.sim.telegram import Person, SimulatedTelegram
from tidegate.sim.telegram.entities import SimulatedBot

TIDES = {"question": "Which tide?", "options": ["ebb", {"text": "flood"}]}


async def test_votes_are_counted_and_told(ann: Person, ok: Call) -> None:
    sent = await ok("sendPoll", chat_id=7, **TIDES, is_anonymous=False)
    ann.votes(1)
    answer, state = await ok("getUpdates")
    assert answer["poll_answer"]["option_ids"] == [1]
    assert answer["poll_answer"]["user"]["id"] == 7
    assert state["poll"]["id"] == sent["poll"]["id"]
    assert [option["voter_count"] for option in state["poll"]["options"]] == [0, 1]
    assert state["poll"]["total_voter_count"] == 1
    assert sent["poll"]["total_voter_count"] == 0  # what was answered before stays as it was


async def test_an_anonymous_poll_names_nobody(ann: Person, ok: Call) -> None:
    await ok("sendPoll", chat_id=7, **TIDES)
    ann.votes(0)
    assert [set(update) for update in await ok("getUpdates")] == [{"update_id", "poll"}]


async def test_a_vote_can_be_changed_and_taken_back(ann: Person, ok: Call) -> None:
    await ok("sendPoll", chat_id=7, **TIDES, allows_multiple_answers=True)
    assert ann.votes(0, 1)["total_voter_count"] == 1
    assert [option["voter_count"] for option in ann.votes(1)["options"]] == [0, 1]
    assert ann.votes()["total_voter_count"] == 0


async def test_a_quiz_is_answered_once(telegram: SimulatedTelegram, bot: SimulatedBot, ok: Call) -> None:
    quiz = await ok("sendPoll", chat_id=-5, **TIDES, type="quiz", correct_option_id=1, explanation="moon")
    assert (quiz["poll"]["correct_option_ids"], quiz["poll"]["explanation"]) == ([1], "moon")
    ann, bob = (Person(telegram, bot, user_id, chat=-5) for user_id in (7, 8))
    ann.votes(1)
    assert bob.votes(0)["total_voter_count"] == 2
    with pytest.raises(BadInputError, match="answered already"):
        ann.votes(0)


async def test_a_stopped_poll_takes_no_votes(ann: Person, ok: Call, fails: Call) -> None:
    at = {"chat_id": 7, "message_id": (await ok("sendPoll", chat_id=7, **TIDES))["message_id"]}
    stopped = await ok("stopPoll", **at)
    assert stopped["is_closed"] is True
    assert (await ok("getUpdates"))[0]["poll"] == stopped
    assert (await ann.hears())["poll"]["is_closed"] is False
    assert (await ann.hears())["poll"]["is_closed"] is True
    with pytest.raises(BadInputError, match="closed"):
        ann.votes(0)
    assert await fails("stopPoll", **at) == (400, "Bad Request: poll has already been closed")


async def test_only_its_own_polls_can_be_stopped(ann: Person, ok: Call, fails: Call) -> None:
    theirs, text = ann.says("hi"), await ok("sendMessage", chat_id=7, text="x")

    async def reason(message_id: int) -> str:
        return str((await fails("stopPoll", chat_id=7, message_id=message_id))[1])

    assert await reason(theirs["message_id"]) == "Bad Request: poll can't be stopped"
    assert await reason(text["message_id"]) == "Bad Request: message is not a poll"
    assert await reason(99) == "Bad Request: message with poll to stop not found"


@pytest.mark.parametrize("options", [(2,), (0, 1)])
async def test_a_person_chooses_only_what_is_offered(ann: Person, ok: Call, options: tuple[int, ...]) -> None:
    await ok("sendPoll", chat_id=7, **TIDES)
    with pytest.raises(BadInputError):
        ann.votes(*options)


async def test_nobody_votes_where_there_is_no_poll(ann: Person) -> None:
    with pytest.raises(BadInputError, match="no poll"):
        ann.votes(0)


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"question": " "}, "poll question must be non-empty"),
        ({"question": "x" * 301}, "poll question is too long"),
        ({"type": "exam"}, "unsupported poll type specified"),
        ({"options": 5}, "expected an Array of String as options"),
        ({"options": [5]}, "expected an option to be of type String"),
        ({"options": []}, "poll must have at least 1 option"),
        ({"options": ["x"] * 13}, "poll can't have more than 12 options"),
        ({"options": ["x" * 101]}, "poll options length must not exceed 100"),
        ({"type": "quiz"}, "wrong quiz correct_option_id"),
        ({"type": "quiz", "correct_option_id": 2}, "wrong quiz correct_option_id"),
        ({"type": "quiz", "correct_option_ids": []}, "correct quiz option list must be non-empty"),
    ],
)
async def test_a_malformed_poll_is_refused(fails: Call, params: dict[str, object], reason: str) -> None:
    assert await fails("sendPoll", chat_id=7, **TIDES | params) == (400, f"Bad Request: {reason}")
