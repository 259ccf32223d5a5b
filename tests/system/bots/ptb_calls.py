"""Every method of the simulator as a python-telegram-bot bot calls it."""

from collections.abc import Awaitable, Callable
from typing import Any

from telegram import (
    Bot,
    BotCommand,
    BotCommandScopeChat,
    ChatPermissions,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    InlineQueryResultArticle,
    InputMediaPhoto,
    InputMediaVideo,
    InputPaidMediaPhoto,
    InputTextMessageContent,
    LabeledPrice,
    LinkPreviewOptions,
    MenuButtonWebApp,
    ReactionTypeEmoji,
    ReplyParameters,
    ShippingOption,
    WebAppInfo,
)

from system.bots.stage import GROUP, GUEST, PICTURE, SUPERGROUP, USER, Stage

Calling = Callable[[Bot, Stage], Awaitable[Any]]
PRICES = [LabeledPrice("Tea", 42)]
ARTICLE = InlineQueryResultArticle("1", "Tea", InputTextMessageContent("Tea!"))
BUTTONS = InlineKeyboardMarkup.from_button(InlineKeyboardButton("x", callback_data="x"))

CALLS: dict[str, Calling] = {
    "getMe": lambda bot, _: bot.get_me(),
    "setMyName": lambda bot, _: bot.set_my_name("Harbour"),
    "getMyName": lambda bot, _: bot.get_my_name(),
    "setMyDescription": lambda bot, _: bot.set_my_description("Boats"),
    "getMyDescription": lambda bot, _: bot.get_my_description(),
    "setMyShortDescription": lambda bot, _: bot.set_my_short_description("Boats"),
    "getMyShortDescription": lambda bot, _: bot.get_my_short_description(),
    "setMyCommands": lambda bot, _: bot.set_my_commands(
        [BotCommand("start", "Begin")], BotCommandScopeChat(USER), language_code="en"
    ),
    "getMyCommands": lambda bot, _: bot.get_my_commands(BotCommandScopeChat(USER), language_code="en"),
    "deleteMyCommands": lambda bot, _: bot.delete_my_commands(),
    "setChatMenuButton": lambda bot, _: bot.set_chat_menu_button(
        menu_button=MenuButtonWebApp("Shop", WebAppInfo("https://example.org"))
    ),
    "getChatMenuButton": lambda bot, _: bot.get_chat_menu_button(USER),
    "logOut": lambda bot, _: bot.log_out(),
    "close": lambda bot, _: bot.close(),
    "sendMessage": lambda bot, stage: bot.send_message(
        USER,
        "text",
        link_preview_options=LinkPreviewOptions(is_disabled=True),
        message_effect_id="5104841245755180586",
        protect_content=True,
        reply_parameters=ReplyParameters(stage.text()),
    ),
    "sendLocation": lambda bot, _: bot.send_location(USER, 51.9, 1.3),
    "sendVenue": lambda bot, _: bot.send_venue(USER, 51.9, 1.3, "Quay", "1 Quay Street"),
    "sendContact": lambda bot, _: bot.send_contact(USER, "+441", "Ann", last_name="Lee"),
    "sendDice": lambda bot, _: bot.send_dice(USER),
    "sendChatAction": lambda bot, _: bot.send_chat_action(USER, "typing"),
    "sendPhoto": lambda bot, _: bot.send_photo(USER, PICTURE, caption="c"),
    "sendDocument": lambda bot, _: bot.send_document(USER, PICTURE),
    "sendVideo": lambda bot, _: bot.send_video(USER, PICTURE, duration=3),
    "sendAnimation": lambda bot, _: bot.send_animation(USER, PICTURE),
    "sendAudio": lambda bot, _: bot.send_audio(USER, PICTURE, title="Tide"),
    "sendVoice": lambda bot, _: bot.send_voice(USER, PICTURE),
    "sendVideoNote": lambda bot, _: bot.send_video_note(USER, PICTURE),
    "sendSticker": lambda bot, _: bot.send_sticker(USER, PICTURE, emoji="🌊"),
    "sendMediaGroup": lambda bot, _: bot.send_media_group(
        USER, [InputMediaPhoto(PICTURE), InputMediaVideo(PICTURE, caption="c")]
    ),
    "sendPaidMedia": lambda bot, _: bot.send_paid_media(USER, 5, [InputPaidMediaPhoto(PICTURE)]),
    "getFile": lambda bot, stage: bot.get_file(stage.file()),
    "copyMessage": lambda bot, stage: bot.copy_message(GROUP, USER, stage.text()),
    "copyMessages": lambda bot, stage: bot.copy_messages(GROUP, USER, [stage.text(), stage.text()]),
    "forwardMessage": lambda bot, stage: bot.forward_message(GROUP, USER, stage.text()),
    "forwardMessages": lambda bot, stage: bot.forward_messages(GROUP, USER, [stage.text()]),
    "editMessageText": lambda bot, stage: bot.edit_message_text("new", USER, stage.text()),
    "editMessageCaption": lambda bot, stage: bot.edit_message_caption(USER, stage.photo(), caption="new"),
    "editMessageMedia": lambda bot, stage: bot.edit_message_media(
        InputMediaVideo(PICTURE), USER, stage.photo()
    ),
    "editMessageReplyMarkup": lambda bot, stage: bot.edit_message_reply_markup(
        USER, stage.text(), reply_markup=BUTTONS
    ),
    "deleteMessage": lambda bot, stage: bot.delete_message(USER, stage.text()),
    "deleteMessages": lambda bot, stage: bot.delete_messages(USER, [stage.text()]),
    "setMessageReaction": lambda bot, stage: bot.set_message_reaction(
        USER, stage.text(), [ReactionTypeEmoji("👍")]
    ),
    # Two right answers: with one, Telegram sends the field of old too, of which the library warns.
    "sendPoll": lambda bot, _: bot.send_poll(
        USER, "?", ["a", "b"], type="quiz", correct_option_ids=[0, 1], explanation="why"
    ),
    "stopPoll": lambda bot, stage: bot.stop_poll(USER, stage.poll()),
    "sendInvoice": lambda bot, _: bot.send_invoice(USER, "Tea", "A cup", "tea", "XTR", PRICES),
    "createInvoiceLink": lambda bot, _: bot.create_invoice_link("Tea", "A cup", "tea", "XTR", PRICES),
    "answerShippingQuery": lambda bot, stage: bot.answer_shipping_query(
        stage.shipping(), ok=True, shipping_options=[ShippingOption("ship", "By ship", PRICES)]
    ),
    "answerPreCheckoutQuery": lambda bot, stage: bot.answer_pre_checkout_query(stage.checkout(), ok=True),
    "refundStarPayment": lambda bot, stage: bot.refund_star_payment(USER, stage.charge()),
    "answerCallbackQuery": lambda bot, stage: bot.answer_callback_query(stage.pressed(), "good"),
    "answerInlineQuery": lambda bot, stage: bot.answer_inline_query(stage.inquiry(), [ARTICLE]),
    "answerWebAppQuery": lambda bot, stage: bot.answer_web_app_query(stage.inquiry(), ARTICLE),
    "getChat": lambda bot, _: bot.get_chat(USER),
    "setChatTitle": lambda bot, _: bot.set_chat_title(GROUP, "Harbour"),
    "setChatDescription": lambda bot, _: bot.set_chat_description(GROUP, "Boats"),
    "pinChatMessage": lambda bot, stage: bot.pin_chat_message(USER, stage.text()),
    "unpinChatMessage": lambda bot, stage: bot.unpin_chat_message(USER, message_id=stage.pinned()),
    "unpinAllChatMessages": lambda bot, _: bot.unpin_all_chat_messages(USER),
    "leaveChat": lambda bot, _: bot.leave_chat(-7),
    "exportChatInviteLink": lambda bot, _: bot.export_chat_invite_link(GROUP),
    "createChatInviteLink": lambda bot, _: bot.create_chat_invite_link(GROUP, name="x", member_limit=5),
    "getChatMember": lambda bot, _: bot.get_chat_member(SUPERGROUP, GUEST),
    "getChatMemberCount": lambda bot, _: bot.get_chat_member_count(SUPERGROUP),
    "getChatAdministrators": lambda bot, _: bot.get_chat_administrators(SUPERGROUP),
    "banChatMember": lambda bot, _: bot.ban_chat_member(SUPERGROUP, GUEST),
    "unbanChatMember": lambda bot, _: bot.unban_chat_member(SUPERGROUP, GUEST),
    "restrictChatMember": lambda bot, _: bot.restrict_chat_member(
        SUPERGROUP, GUEST, ChatPermissions(can_send_messages=True)
    ),
    "promoteChatMember": lambda bot, _: bot.promote_chat_member(SUPERGROUP, GUEST, can_pin_messages=True),
    "getUserProfilePhotos": lambda bot, _: bot.get_user_profile_photos(USER),
}
