"""The store of a command: its name, the gate that opens it, and the work done on it."""

import logging
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlsplit

from tidegate.cli import loop
from tidegate.errors import BadInputError, MissingExtraError, StoreAwayError
from tidegate.model import BotId
from tidegate.outbox.port import Outbox
from tidegate.settings import REDIS_SCHEMES, Settings
from tidegate.stores.store_name import check_store_name

if TYPE_CHECKING:  # slow to import: `--help` does without
    from tidegate.gate import Tidegate


Result = TypeVar("Result")
UNREADABLE: Final = "the address given"
IN_MEMORY: Final = "memory://"


def store_name(store: str | None) -> str:
    """Return the store that was named, or the default one."""
    return store or Settings.read().store.place


def is_redis(place: str) -> bool:
    scheme, slashes, _ = place.partition("://")
    return bool(slashes) and scheme in REDIS_SCHEMES


def public_store_name(place: str) -> str:
    """Return the store's name without a password, to be printed."""
    scheme, slashes, _ = place.partition("://")
    if slashes and scheme != "sqlite":
        known = public_address(place)
        return known if known == UNREADABLE else f"{scheme}://{known}"
    # With an @ and a colon, it may be the mistyped address of a server.
    return UNREADABLE if "@" in place and ":" in place else place


def public_address(url: str) -> str:
    """Return host, port and name of a database; never a user, a password or a parameter."""
    try:
        parts = urlsplit(url)
    except ValueError:  # brackets around something that is not an address
        return UNREADABLE
    if "@" in parts.path + parts.query + parts.fragment:
        return UNREADABLE  # an unescaped password would show
    return parts.netloc.rpartition("@")[2] + parts.path or UNREADABLE


def store_option(store: str | None) -> str:
    """Return the option that names the same store to another command, without showing a password."""
    if not store:
        return ""
    secret = "@" in store or ("://" in store and "?" in store)
    return " with the same --store" if secret else f" --store {shlex.quote(store)}"


def file_of(store: str | None) -> Path:
    """Return the file of the store. Raises BadInputError if the store is not a file."""
    place = store_name(store).removeprefix("sqlite:///")
    if is_redis(place):
        raise BadInputError(
            "this command needs a store in a file; Redis has its own means (BGSAVE, its append-only file)"
        )
    if "://" in place:
        raise BadInputError("this command needs a store in a file: name one with --store")
    path = Path(place)
    if path.is_dir():
        raise BadInputError(
            f"{place} is a folder: give the path of a file in it, such as {path / 'tidegate.db'}"
        )
    return path


def gate_for(store: str | None, *, create: bool = False) -> "Tidegate":
    """Return the gate of a store, not open yet. Raises BadInputError if there is none, unless `create`."""
    settings = Settings.read()
    place = store or settings.store.place
    if place == IN_MEMORY:
        raise BadInputError(
            f"{IN_MEMORY} keeps nothing after a command has ended: name a file or redis://… with --store"
        )
    if not create:
        check_store_exists(place)
    from tidegate.gate import Tidegate  # noqa: PLC0415  (slow to import: `--help` does without)

    return Tidegate(place, settings=settings)


def check_store_exists(place: str) -> None:
    """Raise BadInputError for a name that cannot be meant, and for a file that does not exist or is empty."""
    check_store_name(place)
    name = place.removeprefix("sqlite:///")
    if "://" in name:
        return
    file = Path(name)
    if not file.exists():
        from tidegate.stores.sqlite.sender_lock import check_not_deleted  # noqa: PLC0415  (help does without)

        check_not_deleted(file)
        raise BadInputError(
            f"there is no store at {public_store_name(place)}: name it with --store, or begin with"
            " tidegate bot add"
        )
    if file.is_file() and file.stat().st_size == 0:  # opening it would make a new store of it
        raise BadInputError(
            f"{place} is empty: restore a backup, or remove it and begin with tidegate bot add"
        )


@asynccontextmanager
async def open_gate(gate: "Tidegate", store: str | None) -> AsyncIterator["Tidegate"]:
    """Open the gate. Raises StoreAwayError that names the store if it cannot be reached, now or later."""
    place = store_name(store)
    async with gate:
        if is_redis(place) and not gate.outbox.health().ready:
            named_by = "--store" if store else Settings.read().store.variable
            advice = f"start Redis there, or correct {named_by}"
            raise StoreAwayError(f"{public_store_name(place)} cannot be reached: {advice}")
        try:
            yield gate
        except StoreAwayError as error:
            if not is_redis(place):
                raise
            raise StoreAwayError(f"{public_store_name(place)}: {error}") from error


def report_to_sentry(gate: "Tidegate") -> None:
    """Report what goes wrong in a command that runs for long, if SENTRY_DSN is set. Needs no SDK to run."""
    try:
        gate.report_to_sentry()
    except MissingExtraError as error:
        log = logging.getLogger("tidegate")
        log.warning("SENTRY_DSN is set, and nothing is reported there: %s", error)


def record_history(gate: "Tidegate") -> None:
    """Record messages in a command that runs for long, unless TIDEGATE_HISTORY=off. Needs no SQL to run."""
    try:
        gate.record_history()
    except MissingExtraError as error:
        log = logging.getLogger("tidegate")
        log.info("no history is recorded: %s", error)


@contextmanager
def quietly() -> Iterator[None]:
    """Log errors only: warnings about the store are for processes that keep running."""
    log = logging.getLogger("tidegate")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


async def choose_bot(gate: "Tidegate", number: int | None) -> BotId:
    """Return the bot of an open gate that was named, or the only one. Raises BadInputError.

    A bot that is not registered may be attached to a process that runs, which delivers for it.
    """
    known = {bot.id for bot in gate.bots()}
    if not known or (number is not None and number not in known):
        attached = await attached_bots(gate)
        gate.core.registry.know_elsewhere(attached)
        known |= set(attached)
    named = ", ".join(map(str, sorted(known)))
    if not known:
        raise BadInputError(
            "no bot is registered in this store, and no running process delivers for one: register it with"
            " tidegate bot add, or start the bot that is attached to this store"
        )
    if number is None and len(known) > 1:
        raise BadInputError(f"several bots are known: choose one with --bot ({named})")
    if number is not None and number not in known:
        raise BadInputError(
            f"--bot: {number} is not registered in this store, nor does a running process deliver for it;"
            f" known: {named}"
        )
    return BotId(min(known) if number is None else number)


def known_bot(gate: "Tidegate", number: int | None) -> BotId | None:
    """Return a bot that reminders are looked up for. It need not be registered, nor run."""
    if number is None:
        return None
    gate.core.registry.know_elsewhere([BotId(number)])
    return BotId(number)


async def attached_bots(gate: "Tidegate") -> list[BotId]:
    """Return the bots that are not registered, and for which processes that run deliver all the same."""
    health = await gate.core.store.sender_health()
    registered = {bot.id for bot in gate.bots()}
    return [] if health is None else [bot for bot in health.bots if bot not in registered]


def using(store: str | None, work: Callable[[Outbox], Awaitable[Result]]) -> Result:
    """Open the store, run `work` on its outbox, and close it. Never call it inside an event loop."""
    return using_gate(store, lambda gate: work(gate.outbox))


def using_gate(store: str | None, work: "Callable[[Tidegate], Awaitable[Result]]") -> Result:
    """Open a gate on the store, run `work`, and close it. Never call it inside an event loop."""
    gate = gate_for(store)

    async def opened() -> Result:
        async with open_gate(gate, store):
            return await work(gate)

    with quietly():
        return loop.run(opened())


async def sender_is_gone(gate: "Tidegate") -> bool:
    """Return True if one process should send and handle updates for the store, and none does."""
    activity = await gate.core.store.activity()
    return activity.has_one_sender and not activity.delivers
