"""Whose session it is: a person, in a chat, with a bot."""

from typing import Any

import msgspec

from tidegate.errors import BadInputError
from tidegate.polling.subscriptions import Subscription


class Place(msgspec.Struct, frozen=True):
    """One session of a flow at most. `thread`: a topic of a forum."""

    bot: int
    chat: int
    user: int
    thread: int | None = None

    @property
    def key(self) -> str:
        """Names it in the store."""
        thread = "" if self.thread is None else f":{self.thread}"
        return f"{self.bot}:{self.chat}:{self.user}{thread}"


def place_of(key: str) -> Place:
    """What has this key."""
    return Place(*map(int, key.split(":")))


def marked(place: Place, username: object) -> dict[str, Any]:
    """The data of a subscription, by which its news find the session after any restart."""
    named = {"username": username} if username else {}
    thread = {} if place.thread is None else {"thread_id": place.thread}
    return {"bot_id": place.bot, "chat_id": place.chat, "user_id": place.user, **thread, **named}


def place_in(subscription: Subscription, bot: int | None = None) -> Place:
    """Whom it is about. Where only a user is named, it is the chat with him. Raises BadInputError."""
    data = subscription.data
    user = data.get("user_id", data.get("chat_id"))
    ids = (data.get("bot_id", bot), data.get("chat_id", user), user)
    if not all(isinstance(one, int) and not isinstance(one, bool) for one in ids):
        text = (
            f"the data of {subscription.key!r} does not say whose it is: give user_id, and chat_id in a group"
        )
        raise BadInputError(text)
    return Place(*ids, data.get("thread_id"))  # type: ignore[arg-type]  # checked above
