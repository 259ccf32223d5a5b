"""Results of methods of the Bot API with a chat, version 10.3. Written by `make bot-api`: do not edit."""

from typing import Final

RESULTS: Final = {  # methods, separated by spaces, by the form of their result
    "true": (
        "approveChatJoinRequest approveSuggestedPost banChatMember banChatSenderChat closeForumTopic "
        "closeGeneralForumTopic declineChatJoinRequest declineSuggestedPost deleteAllMessageReactions "
        "deleteChatPhoto deleteChatStickerSet deleteEphemeralMessage deleteForumTopic deleteMessage "
        "deleteMessageReaction deleteMessages editEphemeralMessageCaption editEphemeralMessageMedia "
        "editEphemeralMessageReplyMarkup editEphemeralMessageText editForumTopic editGeneralForumTopic "
        "hideGeneralForumTopic leaveChat pinChatMessage promoteChatMember readBusinessMessage "
        "removeChatVerification reopenForumTopic reopenGeneralForumTopic restrictChatMember sendChatAction "
        "sendGift sendMessageDraft sendRichMessageDraft setChatAdministratorCustomTitle setChatDescription "
        "setChatMemberTag setChatMenuButton setChatPermissions setChatPhoto setChatStickerSet setChatTitle "
        "setMessageReaction unbanChatMember unbanChatSenderChat unhideGeneralForumTopic unpinAllChatMessages "
        "unpinAllForumTopicMessages unpinAllGeneralForumTopicMessages unpinChatMessage verifyChat"
    ),
    "message": (
        "editMessageCaption editMessageChecklist editMessageLiveLocation editMessageMedia "
        "editMessageReplyMarkup editMessageText forwardMessage sendAnimation sendAudio sendChecklist "
        "sendContact sendDice sendDocument sendGame sendInvoice sendLivePhoto sendLocation sendMessage "
        "sendPaidMedia sendPhoto sendPoll sendRichMessage sendSticker sendVenue sendVideo sendVideoNote "
        "sendVoice setGameScore stopMessageLiveLocation"
    ),
    "messages": "sendMediaGroup",
    "id": "copyMessage",
    "ids": "copyMessages forwardMessages",
}
