"""Types of parameters of the Bot API, version 10.3. Written by `make bot-api`: do not edit."""

from typing import Any, TypedDict


class TelegramFields(TypedDict, total=False):
    """Every parameter of the methods that have a chat_id, except that."""

    action: str | None
    actor_chat_id: int | None
    address: str | None
    allow_adding_options: bool | None
    allow_paid_broadcast: bool | None
    allow_sending_without_reply: bool | None
    allows_multiple_answers: bool | None
    allows_revoting: bool | None
    animation: Any
    audio: Any
    business_connection_id: str | None
    callback_query_id: str | None
    can_change_info: bool | None
    can_delete_messages: bool | None
    can_delete_stories: bool | None
    can_edit_messages: bool | None
    can_edit_stories: bool | None
    can_invite_users: bool | None
    can_manage_chat: bool | None
    can_manage_direct_messages: bool | None
    can_manage_tags: bool | None
    can_manage_topics: bool | None
    can_manage_video_chats: bool | None
    can_pin_messages: bool | None
    can_post_messages: bool | None
    can_post_stories: bool | None
    can_promote_members: bool | None
    can_restrict_members: bool | None
    can_send_welcome_messages: bool | None
    can_stop: bool | None
    caption: str | None
    caption_entities: Any
    checklist: Any
    close_date: Any
    comment: str | None
    correct_option_id: int | None
    correct_option_ids: Any
    country_codes: Any
    cover: Any
    creates_join_request: bool | None
    currency: str | None
    custom_description: str | None
    custom_title: str | None
    description: str | None
    description_entities: Any
    description_parse_mode: str | None
    direct_messages_topic_id: int | None
    disable_content_type_detection: bool | None
    disable_edit_message: bool | None
    disable_notification: bool | None
    disable_web_page_preview: bool | None
    document: Any
    draft_id: int | None
    duration: int | None
    emoji: str | None
    entities: Any
    ephemeral_message_id: int | None
    ephemeral_message_parameters: Any
    exclude_from_blockchain: bool | None
    exclude_limited_non_upgradable: bool | None
    exclude_limited_upgradable: bool | None
    exclude_saved: bool | None
    exclude_unique: bool | None
    exclude_unlimited: bool | None
    exclude_unsaved: bool | None
    expire_date: Any
    explanation: str | None
    explanation_entities: Any
    explanation_media: Any
    explanation_parse_mode: str | None
    first_name: str | None
    force: bool | None
    foursquare_id: str | None
    foursquare_type: str | None
    from_chat_id: Any
    game_short_name: str | None
    gift_id: str | None
    google_place_id: str | None
    google_place_type: str | None
    has_spoiler: bool | None
    heading: int | None
    height: int | None
    hide_results_until_closes: bool | None
    horizontal_accuracy: float | None
    icon_color: int | None
    icon_custom_emoji_id: str | None
    inline_message_id: str | None
    invite_link: str | None
    is_anonymous: bool | None
    is_big: bool | None
    is_closed: bool | None
    is_flexible: bool | None
    keep_on_stop: bool | None
    last_name: str | None
    latitude: float | None
    length: int | None
    limit: int | None
    link_preview_options: Any
    live_period: int | None
    live_photo: Any
    longitude: float | None
    max_tip_amount: int | None
    media: Any
    member_limit: int | None
    members_only: bool | None
    menu_button: Any
    message_effect_id: str | None
    message_id: int | None
    message_ids: Any
    message_thread_id: int | None
    name: str | None
    need_email: bool | None
    need_name: bool | None
    need_phone_number: bool | None
    need_shipping_address: bool | None
    offset: str | None
    only_if_banned: bool | None
    open_period: int | None
    options: Any
    parse_mode: str | None
    pay_for_upgrade: bool | None
    payload: str | None
    performer: str | None
    permissions: Any
    phone_number: str | None
    photo: Any
    photo_height: int | None
    photo_size: int | None
    photo_url: str | None
    photo_width: int | None
    prices: Any
    protect_content: bool | None
    provider_data: str | None
    provider_token: str | None
    proximity_alert_radius: int | None
    question: str | None
    question_entities: Any
    question_parse_mode: str | None
    reaction: Any
    receiver_user_id: int | None
    remove_caption: bool | None
    reply_markup: Any
    reply_parameters: Any
    reply_to_message_id: int | None
    return_bots: bool | None
    revoke_messages: bool | None
    rich_message: Any
    score: int | None
    send_date: Any
    send_email_to_provider: bool | None
    send_phone_number_to_provider: bool | None
    sender_chat_id: int | None
    show_caption_above_media: bool | None
    shuffle_options: bool | None
    sort_by_price: bool | None
    star_count: int | None
    start_parameter: str | None
    start_timestamp: Any
    sticker: Any
    sticker_set_name: str | None
    subscription_period: Any
    subscription_price: int | None
    suggested_post_parameters: Any
    suggested_tip_amounts: Any
    supports_streaming: bool | None
    tag: str | None
    text: str | None
    text_entities: Any
    text_parse_mode: str | None
    thumbnail: Any
    title: str | None
    type: str | None
    until_date: Any
    use_independent_chat_permissions: bool | None
    user_id: int | None
    vcard: str | None
    video: Any
    video_note: Any
    video_start_timestamp: Any
    voice: Any
    width: int | None
