"""The meaning of each reason of a dead letter, and what to do about it, in plain words. Pure."""

from typing import Final, Literal, NamedTuple

from tidegate.model import State

Remedy = Literal["drop", "replay", "look"]  # what mostly helps


class Advice(NamedTuple):
    """`means` explains a reason in a sentence; `do` says what helps."""

    title: str
    means: str
    do: str
    remedy: Remedy


ADVICE: Final[dict[str, Advice]] = {
    "blocked": Advice(
        "The user has blocked the bot",
        "Nothing reaches this chat until the user starts the bot again.",
        "Drop them, and stop writing to these chats: mark the user as gone in @gate.on_dead.",
        "drop",
    ),
    "deactivated": Advice(
        "The account is deleted",
        "The user has deleted the account, or Telegram has.",
        "Drop them, and forget these users: nothing reaches them again.",
        "drop",
    ),
    "kicked": Advice(
        "The bot is not in the group",
        "It was removed from the group or channel, or never joined it.",
        "Have it added again and replay them, or drop them.",
        "drop",
    ),
    "not_found": Advice(
        "The chat does not exist for this bot",
        "A wrong number, the number of another bot's chat, or a user who never started this bot.",
        "Check where the numbers come from, then drop them.",
        "drop",
    ),
    "not_found_method": Advice(
        "The Bot API does not know the method",
        "A name is misspelt, or your own Bot API server is older than the method.",
        "Mend the name or update the server, then replay them.",
        "replay",
    ),
    "forbidden": Advice(
        "The bot may not do that here",
        "It has no right to write in this chat, or the user has never started it.",
        "Give the bot the right in the group and replay them, or drop them.",
        "look",
    ),
    "bad_request": Advice(
        "Telegram does not take the message as it is",
        "A tag that is not closed, a text that is too long, a file or button that is not valid.",
        "Read what Telegram said and mend the program. As they are, they fail again: drop them.",
        "drop",
    ),
    "bad_input": Advice(
        "The message could not be made",
        "A file is gone, or a parameter cannot be sent. Telegram was not asked.",
        "Put the file back and replay them, or drop them.",
        "look",
    ),
    "too_large": Advice(
        "A file is too large",
        "The Bot API takes 50 MB, and 10 MB for a photo; a Bot API server of your own takes 2,000 MB.",
        "Send a smaller file; these can only be dropped.",
        "drop",
    ),
    "attempts": Advice(
        "Every attempt failed",
        "Telegram or the network failed each time; the messages surely did not arrive.",
        "Replay them when the cause is over.",
        "replay",
    ),
    "outage": Advice(
        "The bot could not send for too long",
        "An outage has lasted longer than TIDEGATE_OUTAGE_LIMIT allows.",
        "When the bot sends again, replay what is still worth sending.",
        "replay",
    ),
    "unauthorized": Advice(
        "Telegram refuses the token",
        "It was revoked at @BotFather, or belongs to another Bot API server.",
        "Give the bot its new token on its page, then replay them.",
        "replay",
    ),
    "unknown": Advice(
        "Nobody knows whether they arrived",
        "The request left, and no answer came. Sending again may put a message into the chat twice.",
        "Look into a chat or two. Replay what must not be missed, drop what must not come twice.",
        "look",
    ),
    "crashes": Advice(
        "Workers died while they sent it",
        "Several processes ended with this message in flight: it may be what kills them.",
        "Find out why in the log of the worker, then replay one alone before the others.",
        "look",
    ),
    "unreadable": Advice(
        "The stored bytes cannot be read",
        "The record is damaged, or was written by another version. Nothing was sent.",
        "The page of a message shows its bytes. It cannot be replayed: save what you need and drop it.",
        "look",
    ),
    "unsettled": Advice(
        "The store could not take the answer",
        "It was sent, and its end could not be written as Telegram told it.",
        "The log of the worker says why. Do not replay what has arrived.",
        "look",
    ),
    "lost": Advice(
        "Its sender was lost",
        "The process that was sending it ended, and nobody knows what came of it.",
        "Look into the chat, then replay or drop it.",
        "look",
    ),
}
_PARKED: Final = Advice(
    "Its outcome is not known",
    "It may have arrived, or not.",
    "Look into the chat before you replay it.",
    "look",
)
_OTHER: Final = Advice(
    "It died of something else",
    "Tidegate has no advice for this reason: it may be one of your own, or of a newer version.",
    "Open one of them to read what Telegram said.",
    "look",
)


def advice_for(reason: str | None, state: State) -> Advice:
    """Return what to say about a reason; of one that is not known, something that is true anyway."""
    if reason in ADVICE:
        return ADVICE[reason]
    return _PARKED if state is State.PARKED else _OTHER
