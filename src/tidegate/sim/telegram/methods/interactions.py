"""Bot API methods for polls and for answers to callback, inline and web app queries."""

from typing import Final

from tidegate.sim.telegram.call import MethodCall, named_methods
from tidegate.sim.telegram.entities import Ballot, Json
from tidegate.sim.telegram.parameters import QUERY_TOO_OLD, bad_request

MAX_QUESTION, MAX_OPTION, MAX_EXPLANATION = 300, 100, 200
MOST_OPTIONS = 12
MOST_RESULTS = 50
MAX_RESULT_ID = 64
MAX_NOTICE = 200


def send_poll(call: MethodCall) -> Json:
    poll = _poll(call)
    message = call.send({"poll": poll})
    call.world.keep_ballot(Ballot(poll, (message["chat"]["id"], message["message_id"])))
    return message


def stop_poll(call: MethodCall) -> Json:
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
    chat.notify(new)
    call.bot.updates.put("poll", ballot.poll)
    return ballot.poll


def _poll(call: MethodCall) -> Json:
    question = call.text("question", MAX_QUESTION, what="poll question")
    if not question.strip():
        raise bad_request("poll question must be non-empty")
    kind = call.string("type") or "regular"
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


def _options(call: MethodCall) -> list[Json]:
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


def _answers(call: MethodCall, options: int) -> Json:
    """Return the indexes of a quiz's correct options, and the explanation."""
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


def answer_callback_query(call: MethodCall) -> bool:
    if len(call.string("text")) > MAX_NOTICE:
        raise bad_request("MESSAGE_TOO_LONG")
    query_id = call.string("callback_query_id")
    if query_id not in call.bot.queries:
        raise QUERY_TOO_OLD
    del call.bot.queries[query_id]
    return True


def answer_inline_query(call: MethodCall) -> bool:
    results = call.objects("results", expected="inline query results")
    if len(results) > MOST_RESULTS:
        raise bad_request("too many inline query results specified")
    _check(results)
    inquiry = call.bot.inquiries.pop(call.string("inline_query_id"), None)
    if inquiry is None:
        raise QUERY_TOO_OLD
    inquiry.answer(results)
    return True


def answer_web_app_query(call: MethodCall) -> Json:
    result = call.nested("result")
    if not isinstance(result, dict):
        raise bad_request("result isn't specified")
    _check([result])
    inquiry = call.bot.inquiries.pop(call.string("web_app_query_id"), None)
    if inquiry is None:
        raise QUERY_TOO_OLD
    inquiry.answer([result])
    return {"inline_message_id": f"inline{call.world.serial()}"}


def _check(results: list[Json]) -> None:
    for result in results:
        if not isinstance(result.get("type"), str):
            raise bad_request("can't parse inline query result: can't find field \"type\"")
        result_id = result.get("id")
        if not isinstance(result_id, str) or not 1 <= len(result_id.encode()) <= MAX_RESULT_ID:
            raise bad_request("RESULT_ID_INVALID")
    if len({result["id"] for result in results}) < len(results):
        raise bad_request("RESULT_ID_DUPLICATE")


METHODS: Final = named_methods(
    send_poll, stop_poll, answer_callback_query, answer_inline_query, answer_web_app_query
)
