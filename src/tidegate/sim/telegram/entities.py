"""The records of the simulated world: users, chats, bots, files, polls, payments."""

from collections.abc import Callable
from typing import Any, Literal, TypeVar

import msgspec

from tidegate.errors import BadInputError
from tidegate.sim.telegram.updates import PendingUpdates

Json = dict[str, Any]
ChatType = Literal["private", "group", "supergroup", "channel"]
Key = TypeVar("Key")
Value = TypeVar("Value")

MESSAGES_PER_CHAT = 200  # in each chat, for editing, deleting, forwarding
MEMBERS_PER_GROUP = 10_000  # of each group
PAYMENTS_KEPT = 1_000  # of each kind, for each bot
# A message, by its chat and id, or a link.
InvoiceKey = tuple[int, int] | str


def words(text: str) -> tuple[str, ...]:
    """Return names that are written with spaces between them."""
    return tuple(text.split())


def keep(kept: dict[Key, Value], key: Key, value: Value, most: int) -> None:
    """Store a value; above `most` entries the oldest is dropped."""
    kept[key] = value
    if len(kept) > most:
        del kept[next(iter(kept))]


class Ballot:
    """The votes of one poll. `poll` is Telegram's JSON; a change replaces it, and earlier copies stay."""

    def __init__(self, poll: Json, place: tuple[int, int]) -> None:
        self.poll = poll
        self.place = place  # chat id and message id
        self._votes: dict[int, tuple[int, ...]] = {}

    def vote(self, user_id: int, options: tuple[int, ...]) -> None:
        """Choose options by index; none takes the vote back. Raises BadInputError if the poll forbids it."""
        poll = self.poll
        if poll["is_closed"]:
            raise BadInputError("the poll is closed")
        if any(option not in range(len(poll["options"])) for option in options):
            raise BadInputError(f"the poll has {len(poll['options'])} options, numbered from 0")
        if len(options) > 1 and not poll["allows_multiple_answers"]:
            raise BadInputError("the poll takes one answer only")
        if user_id in self._votes and not poll["allows_revoting"]:
            raise BadInputError(f"user {user_id} has answered already")
        self._votes.pop(user_id, None)
        if options:
            self._votes[user_id] = options
        self._count()

    def close(self) -> None:
        self.poll = self.poll | {"is_closed": True}

    def _count(self) -> None:
        votes = [option for options in self._votes.values() for option in options]
        counted = [
            option | {"voter_count": votes.count(place)} for place, option in enumerate(self.poll["options"])
        ]
        self.poll = self.poll | {"options": counted, "total_voter_count": len(self._votes)}


class Invoice(msgspec.Struct, frozen=True):
    payload: str
    currency: str
    total: int  # in the smallest units of the currency
    flexible: bool = False  # the price depends on the address
    needs: tuple[str, ...] = ()  # of the buyer: name, phone_number, email, shipping_address


class Checkout(msgspec.Struct, eq=False):
    """One person paying one invoice. `state` and `error` are what the person sees."""

    invoice: Invoice
    user_id: int
    chat_id: int
    total: int
    shipping_option: str | None = None
    state: Literal["shipping", "confirming", "paid", "failed", "refunded"] = "confirming"
    error: str = ""
    charge_id: str = ""

    def fail(self, error: str) -> None:
        self.state = "failed"
        self.error = error


class BotPayments:
    """The invoices of one bot, the checkouts that wait for its answer, and its payments."""

    def __init__(self) -> None:
        self.invoices: dict[InvoiceKey, Invoice] = {}
        self.waiting: dict[str, Checkout] = {}  # by the query that the bot has to answer
        self.charges: dict[str, Checkout] = {}

    def issue(self, key: InvoiceKey, invoice: Invoice) -> None:
        keep(self.invoices, key, invoice, PAYMENTS_KEPT)

    def await_answer(self, query_id: str, checkout: Checkout) -> None:
        keep(self.waiting, query_id, checkout, PAYMENTS_KEPT)

    def collect(self, charge_id: str, checkout: Checkout) -> None:
        checkout.state, checkout.charge_id = "paid", charge_id
        keep(self.charges, charge_id, checkout, PAYMENTS_KEPT)


class User(msgspec.Struct, eq=False):
    id: int
    first_name: str
    username: str | None = None
    deactivated: bool = False
    language_code: str = "en"

    def json(self) -> Json:
        user = {
            "id": self.id,
            "is_bot": False,
            "first_name": self.first_name,
            "language_code": self.language_code,
        }
        return user | {"username": self.username} if self.username else user


class Chat(msgspec.Struct, eq=False):
    """One conversation. A person's private chats with two bots are two of them."""

    id: int
    type: ChatType
    json: Json
    blocked: bool = False  # by the user, in a private chat
    kicked: set[int] = set()  # bots, from a group
    members: dict[int, Json] = {}  # of a group: the status of each user seen there
    pinned: tuple[int, ...] = ()  # messages, the latest last
    migrated_to: int | None = None
    messages: dict[int, Json] = {}
    keys: list[list[Json]] = []  # the keyboard below a private chat, row by row
    next_id: int = 1
    watchers: list[Callable[[Json], None]] = []  # called with each message that a bot posts or edits

    def keep(self, message: Json) -> None:
        keep(self.messages, message["message_id"], message, MESSAGES_PER_CHAT)

    def notify(self, message: Json) -> None:
        for watcher in tuple(self.watchers):
            watcher(message)

    def set_member(self, user_id: int, standing: Json) -> None:
        keep(self.members, user_id, standing, MEMBERS_PER_GROUP)


class WebhookSettings(msgspec.Struct, eq=False):
    """The address that a bot wants its updates posted to, and the last error there."""

    url: str
    secret: str | None
    max_connections: int
    last_error: tuple[int, str] | None = None


class BotProfile(msgspec.Struct, eq=False):
    """The profile of a bot. Keys are language codes; those of commands hold the scope too."""

    names: dict[str, str] = {}
    descriptions: dict[str, str] = {}
    short_descriptions: dict[str, str] = {}
    commands: dict[tuple[object, ...], list[Json]] = {}
    menu_buttons: dict[int, Json] = {}  # by chat; 0 for the others


class PendingQuery(msgspec.Struct, eq=False):
    """An inline or web app query that the bot has not answered yet."""

    results: list[Json] | None = None
    on_answer: Callable[[], None] | None = None

    def answer(self, results: list[Json]) -> None:
        self.results = results
        if self.on_answer:
            self.on_answer()


class SimulatedBot:
    def __init__(self, bot_id: int) -> None:
        self.id = bot_id
        self.username = f"sim{bot_id}_bot"
        names = {"first_name": f"Bot {bot_id}", "username": self.username}
        self.json: Json = {"id": bot_id, "is_bot": True} | names
        self.updates = PendingUpdates()
        self.webhook: WebhookSettings | None = None
        self.profile = BotProfile()
        self.queries: dict[str, None] = {}  # unanswered button presses, oldest first
        self.inquiries: dict[str, PendingQuery] = {}  # unanswered, oldest first
        self.payments = BotPayments()
        self.reactions: dict[tuple[int, int], list[Json]] = {}  # of the bot, by chat and message


class StoredFile(msgspec.Struct, frozen=True):
    id: str
    name: str
    mime: str
    content: bytes
