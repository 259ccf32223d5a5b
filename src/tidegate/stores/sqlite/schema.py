"""The tables of the store file, all versions of them, and the migration of older files."""

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tidegate.errors import BadInputError

APPLICATION_ID: Final = 0x54494445  # "TIDE": says whose file it is
OLDEST_SQLITE: Final = (3, 37, 0)  # STRICT tables

# `seq` is the place in line: rising in order of arrival, and kept by whatever takes another's place.
# `settled_at` is set when a message ends or is parked: without it, it waits or is being sent.
# `forget_at` is set then too, except for dead and parked ones, which are kept until an operator decides.
# `not_before` is when it joins its line, or joined it, if that is not when it was put.
# `retry_at` is set while it waits for its next try, and only then.
# chat_id 0, which no chat has, stands for the whole bot.
_VERSION_1 = """
CREATE TABLE messages (
    seq INTEGER PRIMARY KEY,
    bot INTEGER NOT NULL,
    chat_id ANY NOT NULL,
    family TEXT NOT NULL,
    priority INTEGER NOT NULL,
    urgent INTEGER NOT NULL,
    cost INTEGER NOT NULL,
    paid INTEGER NOT NULL,
    created_at REAL NOT NULL,
    not_before REAL,
    expires_at REAL,
    retry_at REAL,
    attempts INTEGER NOT NULL,
    crashes INTEGER NOT NULL,
    state TEXT NOT NULL,
    id TEXT NOT NULL UNIQUE,
    dedup_key TEXT,
    dedup_until REAL,
    coalesce_key TEXT,
    settled_at REAL,
    forget_at REAL,
    reason TEXT,
    description TEXT,
    result BLOB,
    body BLOB NOT NULL
) STRICT;
CREATE INDEX messages_open ON messages (seq) WHERE settled_at IS NULL;
CREATE INDEX messages_letters ON messages (settled_at, seq)
    WHERE settled_at IS NOT NULL AND forget_at IS NULL;
CREATE UNIQUE INDEX messages_dedup ON messages (bot, dedup_key) WHERE dedup_key IS NOT NULL;
CREATE UNIQUE INDEX messages_coalesce ON messages (bot, chat_id, coalesce_key)
    WHERE coalesce_key IS NOT NULL AND settled_at IS NULL;

-- Numbers of messages of a bot by state.
CREATE TABLE counts (
    bot INTEGER, name TEXT, count INTEGER NOT NULL, PRIMARY KEY (bot, name)
) STRICT, WITHOUT ROWID;

-- Recent calls, those of one step in a row: the windows are rebuilt from them.
CREATE TABLE calls (n INTEGER PRIMARY KEY, at REAL NOT NULL, body BLOB NOT NULL) STRICT;

-- Closures and learned limits after 429s.
CREATE TABLE limits (
    bot INTEGER, chat_id ANY, kind TEXT, heard_at REAL NOT NULL, closed_for REAL NOT NULL, learned BLOB,
    PRIMARY KEY (bot, chat_id, kind)
) STRICT, WITHOUT ROWID;

CREATE TABLE pauses (bot INTEGER, chat_id ANY, PRIMARY KEY (bot, chat_id)) STRICT, WITHOUT ROWID;
CREATE TABLE aliases (
    n INTEGER PRIMARY KEY, bot INTEGER NOT NULL, old ANY NOT NULL, new ANY NOT NULL, UNIQUE (bot, old)
) STRICT;

-- Tokens are encrypted.
CREATE TABLE bots (id INTEGER PRIMARY KEY, token BLOB NOT NULL, api_url TEXT NOT NULL) STRICT;

-- Changes by other processes for the sender to follow, and its answers to them.
CREATE TABLE journal (n INTEGER PRIMARY KEY AUTOINCREMENT, verb TEXT NOT NULL, body BLOB NOT NULL) STRICT;
CREATE TABLE answers (n INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT;

CREATE TABLE facts (name TEXT PRIMARY KEY, value ANY) STRICT, WITHOUT ROWID;
"""

# Updates that are not handled yet; `number` rises in the order of arrival and is never given twice (the fact
# `last_arrival`). `not_before` is set while one waits for its next try.
# Those that are being handled are listed in `held`: a number is cheaper to write than the update again.
_VERSION_2 = """
CREATE TABLE arrivals (
    number INTEGER PRIMARY KEY,
    source TEXT NOT NULL,
    key TEXT NOT NULL,
    lane TEXT NOT NULL,
    arrived_at REAL NOT NULL,
    attempts INTEGER NOT NULL,
    crashes INTEGER NOT NULL,
    not_before REAL,
    body BLOB NOT NULL
) STRICT;
CREATE TABLE held (number INTEGER PRIMARY KEY) STRICT;

-- Keys of recent updates, handled or not.
CREATE TABLE seen (
    source TEXT, key TEXT, at REAL NOT NULL, PRIMARY KEY (source, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE parked (
    n INTEGER PRIMARY KEY,
    source TEXT NOT NULL,
    key TEXT NOT NULL,
    lane TEXT NOT NULL,
    arrived_at REAL NOT NULL,
    parked_at REAL NOT NULL,
    reason TEXT NOT NULL,
    body BLOB NOT NULL,
    UNIQUE (source, key)
) STRICT;
CREATE INDEX parked_of_source ON parked (source, n);
"""

# Subscriptions of each poller. AUTOINCREMENT: a number is never given twice, so a process that has read up to
# one misses no later subscription. `news` is set while a notification is pending.
_VERSION_3 = """
CREATE TABLE subscriptions (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    poller TEXT NOT NULL,
    key TEXT NOT NULL,
    met INTEGER NOT NULL,
    body BLOB NOT NULL,
    news BLOB,
    UNIQUE (poller, key)
) STRICT;
CREATE INDEX subscriptions_of_poller ON subscriptions (poller, number);

-- The watermark of each poller, the process that holds its lease, and until when.
CREATE TABLE pollers (
    name TEXT PRIMARY KEY, mark TEXT, holder TEXT, until REAL
) STRICT, WITHOUT ROWID;

-- Conversations: each has a state, or data (JSON), or both. Without a thread that is '', without a business
-- connection that is 0, which are no such ids.
CREATE TABLE conversations (
    n INTEGER PRIMARY KEY,
    bot INTEGER NOT NULL,
    chat INTEGER NOT NULL,
    user INTEGER NOT NULL,
    thread ANY NOT NULL,
    business ANY NOT NULL,
    destiny TEXT NOT NULL,
    state TEXT,
    data BLOB,
    changed_at REAL NOT NULL,
    UNIQUE (bot, chat, user, thread, business, destiny)
) STRICT;
CREATE INDEX conversations_in_state ON conversations (state) WHERE state IS NOT NULL;
CREATE INDEX conversations_by_age ON conversations (destiny, changed_at);
"""

# Sessions of flows, each with the time of its timer, and whether it has effects that are yet to be done.
# `version` rises with each change. `flow_events` are those that the application gave an id, by age.
_VERSION_4 = """
CREATE TABLE flow_sessions (
    n INTEGER PRIMARY KEY,
    flow TEXT NOT NULL,
    key TEXT NOT NULL,
    version INTEGER NOT NULL,
    timer_at REAL,
    pending INTEGER NOT NULL,
    body BLOB NOT NULL,
    UNIQUE (flow, key)
) STRICT;
CREATE INDEX flow_timers ON flow_sessions (flow, timer_at) WHERE timer_at IS NOT NULL;
CREATE INDEX flow_unfinished ON flow_sessions (flow, key) WHERE pending = 1;
CREATE TABLE flow_events (
    flow TEXT, key TEXT, event TEXT, seen_at REAL NOT NULL, PRIMARY KEY (flow, key, event)
) STRICT, WITHOUT ROWID;
CREATE INDEX flow_events_by_age ON flow_events (flow, seen_at);
"""

# Broadcasts: the latest report of each, and what an operator asks of it (run, pause or cancel).
_VERSION_5 = """
CREATE TABLE campaigns (
    bot INTEGER, name TEXT, wish TEXT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (bot, name)
) STRICT, WITHOUT ROWID;
"""

# The limits of single bots that an operator has set, by what they are about: bot, private or group. Without a
# count, that of the rules holds again. Until `full_until`, calls may count that nobody knows.
# The first index has messages that have not ended, by the time from which they may go. The few that are being
# sent are among them, so that a claim does not have to write there. The second one has dead letters by what
# they died of: they are counted, and listed, without looking at the others.
SINCE: Final = "max(created_at, ifnull(not_before, 0))"
_VERSION_6 = f"""
CREATE TABLE own_limits (
    bot INTEGER, kind TEXT, count INTEGER, seconds REAL, full_until REAL NOT NULL, PRIMARY KEY (bot, kind)
) STRICT, WITHOUT ROWID;
CREATE INDEX messages_since ON messages (bot, {SINCE}) WHERE settled_at IS NULL;
CREATE INDEX messages_by_reason ON messages (bot, state, reason, settled_at)
    WHERE settled_at IS NOT NULL AND forget_at IS NULL;
"""

# The update feed of each bot (`tidegate gateway --share-updates`). `number` is the update_id that readers
# see, `last` the highest one given, `held` how many updates there are. `chat` is that of an update, or else
# its user. `feed_seen` has Telegram's own ids of late updates. `kinds` are those of a reader, JSON.
_VERSION_7 = """
CREATE TABLE feeds (
    bot INTEGER PRIMARY KEY, last INTEGER NOT NULL, held INTEGER NOT NULL, appended_at REAL NOT NULL
) STRICT;
CREATE TABLE feed_updates (
    n INTEGER PRIMARY KEY,
    bot INTEGER NOT NULL,
    number INTEGER NOT NULL,
    kind TEXT NOT NULL,
    chat ANY,
    arrived_at REAL NOT NULL,
    body BLOB NOT NULL,
    UNIQUE (bot, number)
) STRICT;
CREATE TABLE feed_seen (
    bot INTEGER, update_id INTEGER, number INTEGER NOT NULL, PRIMARY KEY (bot, update_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX feed_seen_by_number ON feed_seen (bot, number);
CREATE TABLE feed_readers (
    bot INTEGER,
    name TEXT,
    position INTEGER NOT NULL,
    seen_at REAL NOT NULL,
    poll TEXT NOT NULL,
    kinds TEXT NOT NULL,
    target BLOB,
    PRIMARY KEY (bot, name)
) STRICT, WITHOUT ROWID;
"""

# The few messages that wait for their next try: they are listed without looking at the others.
_VERSION_8 = """
CREATE INDEX messages_retrying ON messages (seq) WHERE retry_at IS NOT NULL;
"""

Migration = Callable[[sqlite3.Connection], None]


def _making(tables: str) -> Migration:
    def migrate(connection: sqlite3.Connection) -> None:
        for statement in tables.split(";"):
            connection.execute(statement)

    return migrate


# The n-th makes version n out of version n-1. Never change one that was released: add another.
MIGRATIONS: Final[Sequence[Migration]] = (
    _making(_VERSION_1),
    _making(_VERSION_2),
    _making(_VERSION_3),
    _making(_VERSION_4),
    _making(_VERSION_5),
    _making(_VERSION_6),
    _making(_VERSION_7),
    _making(_VERSION_8),
)


def prepare(connection: sqlite3.Connection, path: Path, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Make the tables, or bring them up to date, in one transaction. Raises BadInputError as `check`."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        needed = ".".join(map(str, OLDEST_SQLITE))
        raise BadInputError(f"SQLite {sqlite3.sqlite_version} is too old: {needed} or later is needed")
    if check(connection, path, migrations) == len(migrations):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = check(connection, path, migrations)  # again: another process may have been faster
        for migrate in migrations[version:]:
            migrate(connection)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(migrations)}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite has rolled back by itself if the disk is full
            connection.execute("ROLLBACK")
        raise


def check(connection: sqlite3.Connection, path: Path, migrations: Sequence[Migration] = MIGRATIONS) -> int:
    """The version of a file, 0 for an empty one. Raises BadInputError for other or newer files."""
    # In one statement: another process may make the tables between two.
    tables, owner, version = connection.execute(
        "SELECT (SELECT count(*) FROM sqlite_schema), application_id, user_version"
        " FROM pragma_application_id, pragma_user_version"
    ).fetchone()
    if owner != APPLICATION_ID and (tables or version):
        raise BadInputError(f"{path} is a database, but not a store of Tidegate: give another file")
    if version > len(migrations):
        raise BadInputError(
            f"{path} is of version {version}, made by a newer Tidegate (this one knows {len(migrations)}): "
            "upgrade Tidegate"
        )
    return int(version)
