"""The limits of single bots in the SQLite file: read, written, and what a change means after a restart."""

from collections.abc import Iterable
from typing import Final

import msgspec

from tidegate.model import BotId, BotLimits, Rate
from tidegate.pacing.rules import Rules, own_rules, window_growth
from tidegate.stores.sqlite.file import Transaction

# Which rows of `limits` a limit is about: those of the bot, of private chats, of groups and channels.
_OF_KIND: Final = {
    "bot": "chat_id = 0",
    "private": "kind != 'action' AND typeof(chat_id) = 'integer' AND chat_id > 0",
    "group": "kind != 'action' AND (typeof(chat_id) != 'integer' OR chat_id < 0)",
}


class StoredLimits(msgspec.Struct, frozen=True):
    """The limits of a bot, and until when (wall time) its windows are full: by bot, private and group."""

    own: BotLimits
    full_until: dict[str, float]


def read(tx: Transaction, bots: Iterable[BotId] | None = None) -> dict[BotId, StoredLimits]:
    """The limits of bots that have some or had some lately: of these, or of all."""
    rows = tx.execute("SELECT bot, kind, count, seconds, full_until FROM own_limits ORDER BY bot").fetchall()
    found = {bot: StoredLimits(BotLimits(), {}) for bot, *_ in rows}
    for bot, kind, count, seconds, full_until in rows:
        stored = found[bot]
        own = stored.own
        if count is not None:
            own = msgspec.structs.replace(own, **{kind: Rate(count, seconds)})
        found[bot] = StoredLimits(own, {**stored.full_until, kind: full_until})
    if bots is None:
        return found
    return {bot: found.get(bot, StoredLimits(BotLimits(), {})) for bot in bots}


def write(tx: Transaction, bot: BotId, own: BotLimits, rules: Rules, now: float) -> BotLimits:
    """Set the limits of a bot; return those that it had.

    A window that gets longer counts as full until it has passed: a restart may know none of its older calls.
    """
    stored = read(tx, [bot])[bot]
    before, after = own_rules(rules, stored.own), own_rules(rules, own)
    for kind, longer in window_growth(before, after).items():
        rate, full_until = own.set_ones.get(kind), stored.full_until.get(kind, 0.0)
        latest = now + _seconds(after, kind)  # no call of before counts for longer
        full_until = latest if longer > 0 else min(full_until, latest)
        tx.execute(
            "INSERT OR REPLACE INTO own_limits VALUES (?, ?, ?, ?, ?)",
            (bot, kind, rate and rate.count, rate and rate.seconds, full_until),
        )
        if _seconds(before, kind) != _seconds(after, kind):  # the steps of what was learned mean other rates
            tx.execute(f"UPDATE limits SET learned = NULL WHERE bot = ? AND {_OF_KIND[kind]}", (bot,))
    remove_passed(tx, now)
    return stored.own


def remove_passed(tx: Transaction, now: float) -> None:
    """Forget limits that are those of the rules again."""
    tx.execute("DELETE FROM own_limits WHERE count IS NULL AND full_until <= ?", (now,))


def _seconds(rules: Rules, kind: str) -> float:
    if kind == "bot":
        return rules.bot.seconds
    if kind == "group":
        return rules.group.seconds
    return max(rules.private.seconds, rules.replies.seconds if rules.replies is not None else 0.0)
