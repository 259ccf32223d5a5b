"""The methods of the Bot API, version 10.3. Written by `make bot-api`: do not edit."""

from typing import Final

PARAMETERS: Final = {  # separated by spaces: of most methods they are never needed
    "addStickerToSet": "name sticker user_id",
    "answerCallbackQuery": "cache_time callback_query_id show_alert text url",
    "answerChatJoinRequestQuery": "chat_join_request_query_id result",
    "answerGuestQuery": "guest_query_id result",
    "answerInlineQuery": (
        "button cache_time inline_query_id is_personal next_offset results switch_pm_parameter switch_pm_text"
    ),
    "answerPreCheckoutQuery": "error_message ok pre_checkout_query_id",
    "answerShippingQuery": "error_message ok shipping_options shipping_query_id",
    "answerWebAppQuery": "result web_app_query_id",
    "approveChatJoinRequest": "chat_id user_id",
    "approveSuggestedPost": "chat_id message_id send_date",
    "banChatMember": "chat_id revoke_messages until_date user_id",
    "banChatSenderChat": "chat_id sender_chat_id",
    "close": "",
    "closeForumTopic": "chat_id message_thread_id",
    "closeGeneralForumTopic": "chat_id",
    "convertGiftToStars": "business_connection_id owned_gift_id",
    "copyMessage": (
        "allow_paid_broadcast allow_sending_without_reply caption caption_entities chat_id "
        "direct_messages_topic_id disable_notification from_chat_id message_effect_id message_id "
        "message_thread_id parse_mode protect_content reply_markup reply_parameters reply_to_message_id "
        "show_caption_above_media suggested_post_parameters video_start_timestamp"
    ),
    "copyMessages": (
        "chat_id direct_messages_topic_id disable_notification from_chat_id message_ids message_thread_id "
        "protect_content remove_caption"
    ),
    "createChatInviteLink": "chat_id creates_join_request expire_date member_limit name",
    "createChatSubscriptionInviteLink": "chat_id name subscription_period subscription_price",
    "createForumTopic": "chat_id icon_color icon_custom_emoji_id name",
    "createInvoiceLink": (
        "business_connection_id currency description is_flexible max_tip_amount need_email need_name "
        "need_phone_number need_shipping_address payload photo_height photo_size photo_url photo_width "
        "prices provider_data provider_token send_email_to_provider send_phone_number_to_provider "
        "subscription_period suggested_tip_amounts title"
    ),
    "createNewStickerSet": "name needs_repainting sticker_format sticker_type stickers title user_id",
    "declineChatJoinRequest": "chat_id user_id",
    "declineSuggestedPost": "chat_id comment message_id",
    "deleteAllMessageReactions": "actor_chat_id chat_id user_id",
    "deleteBusinessMessages": "business_connection_id message_ids",
    "deleteChatPhoto": "chat_id",
    "deleteChatStickerSet": "chat_id",
    "deleteEphemeralMessage": "chat_id ephemeral_message_id receiver_user_id",
    "deleteForumTopic": "chat_id message_thread_id",
    "deleteMessage": "chat_id message_id",
    "deleteMessageReaction": "actor_chat_id chat_id message_id user_id",
    "deleteMessages": "chat_id message_ids",
    "deleteMyCommands": "language_code scope",
    "deleteStickerFromSet": "sticker",
    "deleteStickerSet": "name",
    "deleteStory": "business_connection_id story_id",
    "deleteWebhook": "drop_pending_updates",
    "editChatInviteLink": "chat_id creates_join_request expire_date invite_link member_limit name",
    "editChatSubscriptionInviteLink": "chat_id invite_link name",
    "editEphemeralMessageCaption": (
        "caption caption_entities chat_id ephemeral_message_id parse_mode receiver_user_id reply_markup "
        "show_caption_above_media"
    ),
    "editEphemeralMessageMedia": "chat_id ephemeral_message_id media receiver_user_id reply_markup",
    "editEphemeralMessageReplyMarkup": "chat_id ephemeral_message_id receiver_user_id reply_markup",
    "editEphemeralMessageText": (
        "chat_id entities ephemeral_message_id link_preview_options parse_mode receiver_user_id reply_markup "
        "rich_message text"
    ),
    "editForumTopic": "chat_id icon_custom_emoji_id message_thread_id name",
    "editGeneralForumTopic": "chat_id name",
    "editMessageCaption": (
        "business_connection_id caption caption_entities chat_id inline_message_id message_id parse_mode "
        "reply_markup show_caption_above_media"
    ),
    "editMessageChecklist": "business_connection_id chat_id checklist message_id reply_markup",
    "editMessageLiveLocation": (
        "business_connection_id chat_id heading horizontal_accuracy inline_message_id latitude live_period "
        "longitude message_id proximity_alert_radius reply_markup"
    ),
    "editMessageMedia": "business_connection_id chat_id inline_message_id media message_id reply_markup",
    "editMessageReplyMarkup": "business_connection_id chat_id inline_message_id message_id reply_markup",
    "editMessageText": (
        "business_connection_id chat_id disable_web_page_preview entities inline_message_id "
        "link_preview_options message_id parse_mode reply_markup rich_message text"
    ),
    "editStory": "areas business_connection_id caption caption_entities content parse_mode story_id",
    "editUserStarSubscription": "is_canceled telegram_payment_charge_id user_id",
    "exportChatInviteLink": "chat_id",
    "forwardMessage": (
        "chat_id direct_messages_topic_id disable_notification from_chat_id message_effect_id message_id "
        "message_thread_id protect_content suggested_post_parameters video_start_timestamp"
    ),
    "forwardMessages": (
        "chat_id direct_messages_topic_id disable_notification from_chat_id message_ids message_thread_id "
        "protect_content"
    ),
    "getAvailableGifts": "",
    "getBusinessAccountGifts": (
        "business_connection_id exclude_from_blockchain exclude_limited exclude_limited_non_upgradable "
        "exclude_limited_upgradable exclude_saved exclude_unique exclude_unlimited exclude_unsaved limit "
        "offset sort_by_price"
    ),
    "getBusinessAccountStarBalance": "business_connection_id",
    "getBusinessConnection": "business_connection_id",
    "getChat": "chat_id",
    "getChatAdministrators": "chat_id return_bots",
    "getChatGifts": (
        "chat_id exclude_from_blockchain exclude_limited_non_upgradable exclude_limited_upgradable "
        "exclude_saved exclude_unique exclude_unlimited exclude_unsaved limit offset sort_by_price"
    ),
    "getChatMember": "chat_id user_id",
    "getChatMemberCount": "chat_id",
    "getChatMenuButton": "chat_id",
    "getCustomEmojiStickers": "custom_emoji_ids",
    "getFile": "file_id",
    "getForumTopicIconStickers": "",
    "getGameHighScores": "chat_id inline_message_id message_id user_id",
    "getManagedBotAccessSettings": "user_id",
    "getManagedBotToken": "user_id",
    "getMe": "",
    "getMyCommands": "language_code scope",
    "getMyDefaultAdministratorRights": "for_channels",
    "getMyDescription": "language_code",
    "getMyName": "language_code",
    "getMyShortDescription": "language_code",
    "getMyStarBalance": "",
    "getStarTransactions": "limit offset",
    "getStickerSet": "name",
    "getUpdates": "allowed_updates limit offset timeout",
    "getUserChatBoosts": "chat_id user_id",
    "getUserGifts": (
        "exclude_from_blockchain exclude_limited_non_upgradable exclude_limited_upgradable exclude_unique "
        "exclude_unlimited limit offset sort_by_price user_id"
    ),
    "getUserPersonalChatMessages": "limit user_id",
    "getUserProfileAudios": "limit offset user_id",
    "getUserProfilePhotos": "limit offset user_id",
    "getWebhookInfo": "",
    "giftPremiumSubscription": "month_count star_count text text_entities text_parse_mode user_id",
    "hideGeneralForumTopic": "chat_id",
    "leaveChat": "chat_id",
    "logOut": "",
    "pinChatMessage": "business_connection_id chat_id disable_notification message_id",
    "postStory": (
        "active_period areas business_connection_id caption caption_entities content parse_mode "
        "post_to_chat_page protect_content"
    ),
    "promoteChatMember": (
        "can_change_info can_delete_messages can_delete_stories can_edit_messages can_edit_stories "
        "can_invite_users can_manage_chat can_manage_direct_messages can_manage_tags can_manage_topics "
        "can_manage_video_chats can_pin_messages can_post_messages can_post_stories can_promote_members "
        "can_restrict_members can_send_welcome_messages chat_id is_anonymous user_id"
    ),
    "readBusinessMessage": "business_connection_id chat_id message_id",
    "refundStarPayment": "telegram_payment_charge_id user_id",
    "removeBusinessAccountProfilePhoto": "business_connection_id is_public",
    "removeChatVerification": "chat_id",
    "removeMyProfilePhoto": "",
    "removeUserVerification": "user_id",
    "reopenForumTopic": "chat_id message_thread_id",
    "reopenGeneralForumTopic": "chat_id",
    "replaceManagedBotToken": "user_id",
    "replaceStickerInSet": "name old_sticker sticker user_id",
    "repostStory": (
        "active_period business_connection_id from_chat_id from_story_id post_to_chat_page protect_content"
    ),
    "restrictChatMember": "chat_id permissions until_date use_independent_chat_permissions user_id",
    "revokeChatInviteLink": "chat_id invite_link",
    "savePreparedInlineMessage": (
        "allow_bot_chats allow_channel_chats allow_group_chats allow_user_chats result user_id"
    ),
    "savePreparedKeyboardButton": "button user_id",
    "sendAnimation": (
        "allow_paid_broadcast allow_sending_without_reply animation business_connection_id callback_query_id "
        "caption caption_entities chat_id direct_messages_topic_id disable_notification duration "
        "ephemeral_message_parameters has_spoiler height message_effect_id message_thread_id parse_mode "
        "protect_content receiver_user_id reply_markup reply_parameters reply_to_message_id "
        "show_caption_above_media suggested_post_parameters thumbnail width"
    ),
    "sendAudio": (
        "allow_paid_broadcast allow_sending_without_reply audio business_connection_id callback_query_id "
        "caption caption_entities chat_id direct_messages_topic_id disable_notification duration "
        "ephemeral_message_parameters message_effect_id message_thread_id parse_mode performer "
        "protect_content receiver_user_id reply_markup reply_parameters reply_to_message_id "
        "suggested_post_parameters thumbnail title"
    ),
    "sendChatAction": "action business_connection_id chat_id message_thread_id",
    "sendChatJoinRequestWebApp": "chat_join_request_query_id web_app_url",
    "sendChecklist": (
        "business_connection_id chat_id checklist disable_notification message_effect_id protect_content "
        "reply_markup reply_parameters"
    ),
    "sendContact": (
        "allow_paid_broadcast allow_sending_without_reply business_connection_id callback_query_id chat_id "
        "direct_messages_topic_id disable_notification ephemeral_message_parameters first_name last_name "
        "message_effect_id message_thread_id phone_number protect_content receiver_user_id reply_markup "
        "reply_parameters reply_to_message_id suggested_post_parameters vcard"
    ),
    "sendDice": (
        "allow_paid_broadcast allow_sending_without_reply business_connection_id chat_id "
        "direct_messages_topic_id disable_notification emoji message_effect_id message_thread_id "
        "protect_content reply_markup reply_parameters reply_to_message_id suggested_post_parameters"
    ),
    "sendDocument": (
        "allow_paid_broadcast allow_sending_without_reply business_connection_id callback_query_id caption "
        "caption_entities chat_id direct_messages_topic_id disable_content_type_detection "
        "disable_notification document ephemeral_message_parameters message_effect_id message_thread_id "
        "parse_mode protect_content receiver_user_id reply_markup reply_parameters reply_to_message_id "
        "suggested_post_parameters thumbnail"
    ),
    "sendGame": (
        "allow_paid_broadcast allow_sending_without_reply business_connection_id chat_id "
        "disable_notification game_short_name message_effect_id message_thread_id protect_content "
        "reply_markup reply_parameters reply_to_message_id"
    ),
    "sendGift": "chat_id gift_id pay_for_upgrade text text_entities text_parse_mode user_id",
    "sendInvoice": (
        "allow_paid_broadcast allow_sending_without_reply chat_id currency description "
        "direct_messages_topic_id disable_notification is_flexible max_tip_amount message_effect_id "
        "message_thread_id need_email need_name need_phone_number need_shipping_address payload photo_height "
        "photo_size photo_url photo_width prices protect_content provider_data provider_token reply_markup "
        "reply_parameters reply_to_message_id send_email_to_provider send_phone_number_to_provider "
        "start_parameter suggested_post_parameters suggested_tip_amounts title"
    ),
    "sendLivePhoto": (
        "allow_paid_broadcast business_connection_id callback_query_id caption caption_entities chat_id "
        "direct_messages_topic_id disable_notification ephemeral_message_parameters has_spoiler live_photo "
        "message_effect_id message_thread_id parse_mode photo protect_content receiver_user_id reply_markup "
        "reply_parameters show_caption_above_media suggested_post_parameters"
    ),
    "sendLocation": (
        "allow_paid_broadcast allow_sending_without_reply business_connection_id callback_query_id chat_id "
        "direct_messages_topic_id disable_notification ephemeral_message_parameters heading "
        "horizontal_accuracy latitude live_period longitude message_effect_id message_thread_id "
        "protect_content proximity_alert_radius receiver_user_id reply_markup reply_parameters "
        "reply_to_message_id suggested_post_parameters"
    ),
    "sendMediaGroup": (
        "allow_paid_broadcast allow_sending_without_reply business_connection_id chat_id "
        "direct_messages_topic_id disable_notification media message_effect_id message_thread_id "
        "protect_content reply_parameters reply_to_message_id"
    ),
    "sendMessage": (
        "allow_paid_broadcast allow_sending_without_reply business_connection_id callback_query_id chat_id "
        "direct_messages_topic_id disable_notification disable_web_page_preview entities "
        "ephemeral_message_parameters link_preview_options message_effect_id message_thread_id parse_mode "
        "protect_content receiver_user_id reply_markup reply_parameters reply_to_message_id "
        "suggested_post_parameters text"
    ),
    "sendMessageDraft": "can_stop chat_id draft_id entities keep_on_stop message_thread_id parse_mode text",
    "sendPaidMedia": (
        "allow_paid_broadcast business_connection_id caption caption_entities chat_id "
        "direct_messages_topic_id disable_notification media message_thread_id parse_mode payload "
        "protect_content reply_markup reply_parameters show_caption_above_media star_count "
        "suggested_post_parameters"
    ),
    "sendPhoto": (
        "allow_paid_broadcast allow_sending_without_reply business_connection_id callback_query_id caption "
        "caption_entities chat_id direct_messages_topic_id disable_notification ephemeral_message_parameters "
        "has_spoiler message_effect_id message_thread_id parse_mode photo protect_content receiver_user_id "
        "reply_markup reply_parameters reply_to_message_id show_caption_above_media "
        "suggested_post_parameters"
    ),
    "sendPoll": (
        "allow_adding_options allow_paid_broadcast allow_sending_without_reply allows_multiple_answers "
        "allows_revoting business_connection_id chat_id close_date correct_option_id correct_option_ids "
        "country_codes description description_entities description_parse_mode disable_notification "
        "explanation explanation_entities explanation_media explanation_parse_mode hide_results_until_closes "
        "is_anonymous is_closed media members_only message_effect_id message_thread_id open_period options "
        "protect_content question question_entities question_parse_mode reply_markup reply_parameters "
        "reply_to_message_id shuffle_options type"
    ),
    "sendRichMessage": (
        "allow_paid_broadcast business_connection_id chat_id direct_messages_topic_id disable_notification "
        "ephemeral_message_parameters message_effect_id message_thread_id protect_content reply_markup "
        "reply_parameters rich_message suggested_post_parameters"
    ),
    "sendRichMessageDraft": "can_stop chat_id draft_id keep_on_stop message_thread_id rich_message",
    "sendSticker": (
        "allow_paid_broadcast allow_sending_without_reply business_connection_id callback_query_id chat_id "
        "direct_messages_topic_id disable_notification emoji ephemeral_message_parameters message_effect_id "
        "message_thread_id protect_content receiver_user_id reply_markup reply_parameters "
        "reply_to_message_id sticker suggested_post_parameters"
    ),
    "sendVenue": (
        "address allow_paid_broadcast allow_sending_without_reply business_connection_id callback_query_id "
        "chat_id direct_messages_topic_id disable_notification ephemeral_message_parameters foursquare_id "
        "foursquare_type google_place_id google_place_type latitude longitude message_effect_id "
        "message_thread_id protect_content receiver_user_id reply_markup reply_parameters "
        "reply_to_message_id suggested_post_parameters title"
    ),
    "sendVideo": (
        "allow_paid_broadcast allow_sending_without_reply business_connection_id callback_query_id caption "
        "caption_entities chat_id cover direct_messages_topic_id disable_notification duration "
        "ephemeral_message_parameters has_spoiler height message_effect_id message_thread_id parse_mode "
        "protect_content receiver_user_id reply_markup reply_parameters reply_to_message_id "
        "show_caption_above_media start_timestamp suggested_post_parameters supports_streaming thumbnail "
        "video width"
    ),
    "sendVideoNote": (
        "allow_paid_broadcast allow_sending_without_reply business_connection_id callback_query_id chat_id "
        "direct_messages_topic_id disable_notification duration ephemeral_message_parameters length "
        "message_effect_id message_thread_id protect_content receiver_user_id reply_markup reply_parameters "
        "reply_to_message_id suggested_post_parameters thumbnail video_note"
    ),
    "sendVoice": (
        "allow_paid_broadcast allow_sending_without_reply business_connection_id callback_query_id caption "
        "caption_entities chat_id direct_messages_topic_id disable_notification duration "
        "ephemeral_message_parameters message_effect_id message_thread_id parse_mode protect_content "
        "receiver_user_id reply_markup reply_parameters reply_to_message_id suggested_post_parameters voice"
    ),
    "setBusinessAccountBio": "bio business_connection_id",
    "setBusinessAccountGiftSettings": "accepted_gift_types business_connection_id show_gift_button",
    "setBusinessAccountName": "business_connection_id first_name last_name",
    "setBusinessAccountProfilePhoto": "business_connection_id is_public photo",
    "setBusinessAccountUsername": "business_connection_id username",
    "setChatAdministratorCustomTitle": "chat_id custom_title user_id",
    "setChatDescription": "chat_id description",
    "setChatMemberTag": "chat_id tag user_id",
    "setChatMenuButton": "chat_id menu_button",
    "setChatPermissions": "chat_id permissions use_independent_chat_permissions",
    "setChatPhoto": "chat_id photo",
    "setChatStickerSet": "chat_id sticker_set_name",
    "setChatTitle": "chat_id title",
    "setCustomEmojiStickerSetThumbnail": "custom_emoji_id name",
    "setGameScore": "chat_id disable_edit_message force inline_message_id message_id score user_id",
    "setManagedBotAccessSettings": "added_user_ids is_access_restricted user_id",
    "setMessageReaction": "chat_id is_big message_id reaction",
    "setMyCommands": "commands language_code scope",
    "setMyDefaultAdministratorRights": "for_channels rights",
    "setMyDescription": "description language_code",
    "setMyName": "language_code name",
    "setMyProfilePhoto": "photo",
    "setMyShortDescription": "language_code short_description",
    "setPassportDataErrors": "errors user_id",
    "setStickerEmojiList": "emoji_list sticker",
    "setStickerKeywords": "keywords sticker",
    "setStickerMaskPosition": "mask_position sticker",
    "setStickerPositionInSet": "position sticker",
    "setStickerSetThumbnail": "format name thumbnail user_id",
    "setStickerSetTitle": "name title",
    "setUserEmojiStatus": "emoji_status_custom_emoji_id emoji_status_expiration_date user_id",
    "setWebhook": (
        "allowed_updates certificate drop_pending_updates ip_address max_connections secret_token url"
    ),
    "stopMessageLiveLocation": "business_connection_id chat_id inline_message_id message_id reply_markup",
    "stopPoll": "business_connection_id chat_id message_id reply_markup",
    "transferBusinessAccountStars": "business_connection_id star_count",
    "transferGift": "business_connection_id new_owner_chat_id owned_gift_id star_count",
    "unbanChatMember": "chat_id only_if_banned user_id",
    "unbanChatSenderChat": "chat_id sender_chat_id",
    "unhideGeneralForumTopic": "chat_id",
    "unpinAllChatMessages": "chat_id",
    "unpinAllForumTopicMessages": "chat_id message_thread_id",
    "unpinAllGeneralForumTopicMessages": "chat_id",
    "unpinChatMessage": "business_connection_id chat_id message_id",
    "upgradeGift": "business_connection_id keep_original_details owned_gift_id star_count",
    "uploadStickerFile": "sticker sticker_format user_id",
    "verifyChat": "chat_id custom_description",
    "verifyUser": "custom_description user_id",
}
