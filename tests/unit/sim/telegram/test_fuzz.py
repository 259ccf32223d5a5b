"""Whatever is sent to whatever method, the answer is Telegram's: never a failure of the simulator."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulated import TOKEN, Call
from tidegate.sim import virtual_time
from tidegate.sim.telegram import Limits, SimulatedTelegram, Upload
from tidegate.sim.telegram.methods import METHODS
from tidegate.sim.telegram.update_delivery import WebhookAnswer
from tidegate.sim.virtual_time import VirtualClock

HOOK = "http://127.0.0.1:9/hook"
WAITING = ("getUpdates", "setWebhook", "deleteWebhook", "getWebhookInfo")
PARAMETERS = (
    "action",
    "allow_paid_broadcast",
    "allow_sending_without_reply",
    "allowed_updates",
    "allows_multiple_answers",
    "animation",
    "audio",
    "callback_query_id",
    "can_pin_messages",
    "caption",
    "caption_entities",
    "chat_id",
    "command",
    "commands",
    "correct_option_id",
    "correct_option_ids",
    "currency",
    "description",
    "document",
    "drop_pending_updates",
    "emoji",
    "entities",
    "error_message",
    "explanation",
    "file_id",
    "first_name",
    "from_chat_id",
    "inline_query_id",
    "is_anonymous",
    "is_flexible",
    "language_code",
    "latitude",
    "limit",
    "link_preview_options",
    "longitude",
    "max_connections",
    "media",
    "menu_button",
    "message_effect_id",
    "message_id",
    "message_ids",
    "message_thread_id",
    "name",
    "offset",
    "ok",
    "options",
    "parse_mode",
    "payload",
    "permissions",
    "phone_number",
    "photo",
    "pre_checkout_query_id",
    "prices",
    "question",
    "reaction",
    "reply_markup",
    "reply_parameters",
    "reply_to_message_id",
    "result",
    "results",
    "scope",
    "secret_token",
    "shipping_options",
    "star_count",
    "sticker",
    "telegram_payment_charge_id",
    "text",
    "timeout",
    "title",
    "type",
    "until_date",
    "url",
    "user_id",
    "video",
)
NESTED = (
    "inline_keyboard",
    "callback_data",
    "message_id",
    "type",
    "media",
    "id",
    "amount",
    "label",
    "text",
    "x",
)
json_value = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NESTED), inner),
    max_leaves=8,
)
as_text = json_value.map(lambda value: msgspec.json.encode(value).decode())
# Near misses get further than nonsense.
likely = st.sampled_from(
    (
        1,
        7,
        -5,
        -1_000_000_000_005,
        10**18,
        10**30,
        10**5000,
        "7",
        "9" * 5000,
        "@x",
        "hi",
        "typing",
        HOOK,
        "http://[::1",
        "html",
    )
)
parameters = st.dictionaries(st.sampled_from(PARAMETERS), json_value | as_text | likely, max_size=5)
WELL = {
    "chat_id": 7,
    "from_chat_id": 7,
    "message_id": 1,
    "message_ids": [1],
    "text": "hi",
    "action": "typing",
    "user_id": 7,
    "latitude": 1,
    "longitude": 1,
    "question": "?",
    "options": ["a"],
    "title": "t",
    "description": "d",
    "payload": "p",
    "currency": "XTR",
    "prices": [{"label": "l", "amount": 1}],
    "permissions": {},
    "results": [],
}


@given(st.sampled_from((*METHODS, *WAITING, "nonsense")), parameters, st.booleans())
def test_any_json_for_any_parameter_of_any_method_is_answered_below_500(
    method: str,
    params: dict[str, Any],
    complete: bool,  # noqa: FBT001  (drawn)
) -> None:
    async def post(_url: str, _headers: dict[str, str], _body: bytes) -> WebhookAnswer:
        return WebhookAnswer(200, {"method": method} | params)

    async def main(clock: VirtualClock) -> None:
        telegram = SimulatedTelegram(clock, limits=Limits(closes="nothing"), post=post)
        await telegram.call(TOKEN, "sendMessage", {"chat_id": 7, "text": "the first"})
        await clock.sleep(2)
        sent = WELL | params if complete else params
        answer = await telegram.call(TOKEN, method, sent, {"document": Upload("a", "b", b"c")})
        assert answer.status < 500
        assert msgspec.json.decode(msgspec.json.encode(answer.body))["ok"] is (answer.status == 200)
        msgspec.json.encode(telegram.report() | {"log": list(telegram.request_log.log)})

        # The same call in an answer to a webhook: whatever it is, the next update is delivered too.
        await telegram.call(TOKEN, "setWebhook", {"url": HOOK, "drop_pending_updates": True})
        bot = telegram.world.bots[42]
        bot.updates.allow(())
        for text in ("one", "two"):
            telegram.world.user_says(bot, 7, text, clock.now())
            await clock.sleep(2)
        assert len(bot.updates) == 0
        await telegram.close()

    virtual_time.run(main)


DEEP: Any = []
for _ in range(900):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("sendMessage", {"reply_markup": {"inline_keyboard": 5}}),
        ("sendMessage", {"reply_markup": {"inline_keyboard": None}}),
        ("sendMessage", {"reply_markup": {"inline_keyboard": [[{"callback_data": {}}]]}}),
        ("sendMessage", {"reply_markup": "[" * 100_000}),
        ("sendMessage", {"reply_markup": DEEP}),
        ("sendMessage", {"entities": 5}),
        ("sendMessage", {"entities": [5]}),
        ("sendMessage", {"chat_id": 10**30}),
        ("sendMessage", {"text": DEEP}),
        ("sendChatAction", {"action": ["typing"]}),
        ("setWebhook", {"url": "http://[::1"}),
        ("setWebhook", {"url": "http://127.0.0.1:abc/"}),
        ("setWebhook", {"url": "http://127.0.0.1:99999/"}),
        ("setWebhook", {"url": HOOK, "secret_token": ["s"]}),
        ("getFile", {"file_id": DEEP}),
    ],
)
async def test_a_bad_body_is_a_bad_request_and_no_failure(
    fails: Call, method: str, params: dict[str, Any]
) -> None:
    status, reason = await fails(method, **{"chat_id": 7, "text": "x"} | params)
    assert (status, reason[:12]) == (400, "Bad Request:")


async def test_a_flag_that_is_no_flag_is_not_set(ok: Call) -> None:
    await ok("sendMessage", chat_id=7, text="x", allow_paid_broadcast=[])
    assert await ok("deleteWebhook", drop_pending_updates={}) is True
