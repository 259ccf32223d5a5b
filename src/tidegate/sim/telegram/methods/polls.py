"""Polls and quizzes: sent, and stopped. They do not close by themselves."""

from typing import Final

from tidegate.sim.telegram.call import Call, bad_request
from tidegate.sim.telegram.methods.base import Methods
from tidegate.sim.telegram.polls import Ballot
from tidegate.sim.telegram.residents import Json

MAX_QUESTION, MAX_OPTION, MAX_EXPLANATION = 300, 100, 200
MOST_OPTIONS = 12


def send_poll(call: Call) -> Json:
    poll = _poll(call)
    message = call.send({"poll": poll})
    call.world.keep_ballot(Ballot(poll, (message["chat"]["id"], message["message_id"])))
    return message


def stop_poll(call: Call) -> Json:
    chat = call.chat()
    message = call.own_message(chat, "message with poll to stop", "poll can't be stopped")
    ballot = call.world.ballots.get(message.get("poll", {}).get("id", ""))
    if ballot is None:
        raise bad_request("message is not a poll")
    if ballot.poll["is_closed"]:
        raise bad_request("poll has already been closed")
    buttons = call.keyboard()
    call.charge(chat, "edit")
    ballot.close()
    kept = {key: value for key, value in message.items() if key != "reply_markup"}
    new = chat.messages[message["message_id"]] = kept | {"poll": ballot.poll} | buttons
    chat.tell(new)
    call.bot.updates.put("poll", ballot.poll)
    return ballot.poll


def _poll(call: Call) -> Json:
    question = call.text("question", MAX_QUESTION, what="poll question")
    if not question.strip():
        raise bad_request("poll question must be non-empty")
    kind = call.word("type") or "regular"
    if kind not in {"regular", "quiz"}:
        raise bad_request("unsupported poll type specified")
    options = _options(call)
    return {
        "id": call.world.serial(),
        "question": question,
        "options": options,
        "total_voter_count": 0,
        "is_closed": call.flag("is_closed"),
        "is_anonymous": call.flag("is_anonymous", default=True),
        "type": kind,
        "allows_multiple_answers": call.flag("allows_multiple_answers"),
        "allows_revoting": call.flag("allows_revoting", default=kind != "quiz"),
        "members_only": call.flag("members_only"),
        **(_answers(call, len(options)) if kind == "quiz" else {}),
    }


def _options(call: Call) -> list[Json]:
    given = call.nested("options")
    if not isinstance(given, list):
        raise bad_request("expected an Array of String as options")
    named = (option.get("text") if isinstance(option, dict) else option for option in given)
    texts = [text for text in named if isinstance(text, str)]
    if len(texts) < len(given):
        raise bad_request("expected an option to be of type String")
    if not texts:
        raise bad_request("poll must have at least 1 option")
    if len(texts) > MOST_OPTIONS:
        raise bad_request(f"poll can't have more than {MOST_OPTIONS} options")
    if not all(1 <= len(text) <= MAX_OPTION for text in texts):
        raise bad_request(f"poll options length must not exceed {MAX_OPTION}")
    return [{"persistent_id": str(place), "text": text, "voter_count": 0} for place, text in enumerate(texts)]


def _answers(call: Call, options: int) -> Json:
    """Which options of a quiz are right, by their place, and why."""
    given = call.nested("correct_option_ids")
    if given is None:
        given = [call.integer("correct_option_id", -1)]
    if not isinstance(given, list) or not given:
        raise bad_request("correct quiz option list must be non-empty")
    if not all(isinstance(option, int) and option in range(options) for option in given):
        raise bad_request("wrong quiz correct_option_id")
    explanation = call.text("explanation", MAX_EXPLANATION, what="poll explanation")
    answers: Json = {"correct_option_ids": given}
    if len(given) == 1:
        answers["correct_option_id"] = given[0]
    return answers | {"explanation": explanation} if explanation else answers


METHODS: Final[Methods] = {"sendPoll": send_poll, "stopPoll": stop_poll}
