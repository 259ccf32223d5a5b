"""Which budget each of aiogram's methods draws on, and what it costs: a new method must be thought about."""

import aiogram.methods
import pytest
from aiogram.methods import TelegramMethod

from tidegate.model import BotId, TicketId
from tidegate.outbox.admission import OPTION_NAMES, compose
from tidegate.pacing.rules import cost_of, family_of

METHODS = [
    kind
    for name in aiogram.methods.__all__
    if isinstance(kind := getattr(aiogram.methods, name), type)
    and issubclass(kind, TelegramMethod)
    and kind is not TelegramMethod
]
POSTING = ("send", "copy", "forward")
SHOWN_FOR_A_MOMENT = {"sendChatAction", "sendMessageDraft", "sendRichMessageDraft"}
# They have no chat, so that no limit applies; they would count as sends if they had one.
STRANGE = {
    "addStickerToSet",
    "convertGiftToStars",
    "giftPremiumSubscription",
    "postStory",
    "replaceManagedBotToken",
    "replaceStickerInSet",
    "repostStory",
    "savePreparedInlineMessage",
    "savePreparedKeyboardButton",
    "transferBusinessAccountStars",
    "transferGift",
    "upgradeGift",
    "uploadStickerFile",
}


@pytest.mark.parametrize("kind", METHODS)
def test_every_method_has_a_family(kind: type[TelegramMethod[object]]) -> None:
    name = kind.__api_method__
    family = family_of(name)

    if name in SHOWN_FOR_A_MOMENT:
        assert family == "action"
    elif name.startswith(POSTING):
        assert family == "send"
    elif name.startswith(("editMessage", "editEphemeralMessage", "stop")):
        assert family == "edit"
    elif name in STRANGE:
        assert "chat_id" not in kind.model_fields
    else:
        assert family == "free", f"{name} is new: decide what it draws on (pacing/rules.py)"


def test_no_parameter_of_telegram_is_taken_for_a_misspelt_option() -> None:
    names = {name for kind in METHODS for name in kind.model_fields} - {"chat_id"}
    fields = dict.fromkeys(names, "x") | {"text": "x", "method": "sendSomethingNew", "chat_id": 1}

    assert names.isdisjoint(OPTION_NAMES)
    assert compose(TicketId("1"), BotId(42), fields, now=0.0).params.keys() >= names - {"text", "method"}


def test_what_holds_several_costs_several() -> None:
    several = {kind.__api_method__ for kind in METHODS if {"media", "message_ids"} & kind.model_fields.keys()}
    posting = {name for name in several if name.startswith(POSTING)}
    counted = {name for name in posting if cost_of(name, {"media": [1, 2], "message_ids": [1, 2]}) == 2}

    # Each is one message, whatever is in it.
    assert posting - counted == {"sendPaidMedia", "sendPoll"}
