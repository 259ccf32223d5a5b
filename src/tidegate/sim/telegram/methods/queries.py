"""Answers to what people asked without writing: pressed buttons, inline queries, web apps."""

from typing import Final

from tidegate.sim.telegram.call import Call, bad_request
from tidegate.sim.telegram.methods.base import Methods
from tidegate.sim.telegram.residents import Json

MOST_RESULTS = 50
MAX_RESULT_ID = 64
MAX_NOTICE = 200
TOO_OLD = "query is too old and response timeout expired or query ID is invalid"


def answer_callback_query(call: Call) -> bool:
    if len(call.word("text")) > MAX_NOTICE:
        raise bad_request("MESSAGE_TOO_LONG")
    query_id = call.word("callback_query_id")
    if query_id not in call.bot.queries:
        raise bad_request(TOO_OLD)
    del call.bot.queries[query_id]
    return True


def answer_inline_query(call: Call) -> bool:
    results = call.objects("results", expected="inline query results")
    if len(results) > MOST_RESULTS:
        raise bad_request("too many inline query results specified")
    _check(results)
    inquiry = call.bot.inquiries.pop(call.word("inline_query_id"), None)
    if inquiry is None:
        raise bad_request(TOO_OLD)
    inquiry.answer(results)
    return True


def answer_web_app_query(call: Call) -> Json:
    result = call.nested("result")
    if not isinstance(result, dict):
        raise bad_request("result isn't specified")
    _check([result])
    inquiry = call.bot.inquiries.pop(call.word("web_app_query_id"), None)
    if inquiry is None:
        raise bad_request(TOO_OLD)
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


METHODS: Final[Methods] = {
    "answerCallbackQuery": answer_callback_query,
    "answerInlineQuery": answer_inline_query,
    "answerWebAppQuery": answer_web_app_query,
}
