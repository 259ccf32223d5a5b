"""The port of the broadcasts that a store knows: their latest progress, and what operators ask of them."""

from typing import Any, Final, Literal, Protocol

import msgspec

from tidegate.model import BotId

CampaignState = Literal["running", "paused", "finished", "cancelled", "failed", "stopped"]
CampaignWish = Literal["run", "pause", "cancel"]  # what an operator asks of a broadcast

REPORT_SECONDS: Final = 2.0  # between two reports of a running broadcast, which also read what is asked of it
GONE_AFTER: Final = 8.0  # seconds without a report: the process that ran it has ended
CAMPAIGNS_KEPT: Final = 200  # in a store; those that ended first are forgotten


class SqlSource(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of a query, and one letter for all. The address holds no password; "": DATABASE_URL."""

    database: str
    query: str
    parameters: dict[str, Any] = {}
    letter: Any = ""


class FileSource(msgspec.Struct, frozen=True, kw_only=True):
    """The file that `tidegate broadcast` reads, and the options of the command."""

    path: str  # absolute; "-": stdin
    digest: str  # of its content
    text: str | None = None  # the template; None: each line has its text
    options: dict[str, Any] = {}


class StoredSource(msgspec.Struct, frozen=True, kw_only=True):
    """An audience whose rows and letter are in the SQL database."""

    audience: int


class CampaignRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A broadcast as its store knows it. Times are seconds since the Unix epoch.

    `delivering`: all its messages are in the outbox, and no process has to run for it but a worker.
    `stopped`: the process that ran it has ended. `source` and `stored` are None if resuming it needs the
    application; `file` is that of the command that runs it, if one does.
    """

    bot: BotId
    name: str
    state: CampaignState | Literal["delivering"]
    audience: str  # in words
    started_at: float
    changed_at: float  # of the latest report
    ended_at: float | None = None
    total: int | None = None  # rows, if that is known
    counts: dict[str, int] = {}  # as in Progress: read, accepted, delivered, dead, waiting …
    trouble: str | None = None
    fields: dict[str, Any] = {}  # that all messages share, if they can be stored
    remember: float = 0.0
    ahead: int | None = None
    source: SqlSource | None = None
    file: FileSource | None = None
    stored: StoredSource | None = None

    @property
    def is_resumable(self) -> bool:
        """True if any process can go on with it, without the application's code."""
        has_source = self.source is not None or self.stored is not None
        return has_source and self.state in {"running", "paused", "stopped"}

    @property
    def has_ended(self) -> bool:
        return self.state in {"finished", "cancelled", "failed"}

    def at(self, now: float) -> "CampaignRecord":
        """Return it as it is now: `stopped` if its process gave no sign of life lately."""
        silent = self.state in {"running", "paused"} and now - self.changed_at > GONE_AFTER
        return msgspec.structs.replace(self, state="stopped") if silent else self


class CampaignStore(Protocol):
    """The broadcasts of a store, by bot and name. One that cannot be decoded is not known."""

    async def save(self, record: CampaignRecord, wish: CampaignWish | None = None) -> CampaignWish:
        """Store the record and, if given, what is asked of it. Returns what is asked of it now."""
        ...

    async def find(self, bot: BotId, name: str) -> tuple[CampaignRecord, CampaignWish] | None:
        """The record, and what was asked of it last."""
        ...

    async def all(self) -> list[CampaignRecord]:
        """All records, the oldest first."""
        ...

    async def ask(self, bot: BotId, name: str, wish: CampaignWish) -> bool:
        """Ask something of a broadcast, which its process reads with its next report. False: not known."""
        ...

    async def remove(self, bot: BotId, name: str) -> None:
        """Forget it."""


class MemoryCampaigns(CampaignStore):
    def __init__(self) -> None:
        self._known: dict[tuple[BotId, str], tuple[CampaignRecord, CampaignWish]] = {}

    async def save(self, record: CampaignRecord, wish: CampaignWish | None = None) -> CampaignWish:
        key = record.bot, record.name
        asked = wish or (self._known[key][1] if key in self._known else "run")
        self._known[key] = record, asked
        return asked

    async def find(self, bot: BotId, name: str) -> tuple[CampaignRecord, CampaignWish] | None:
        return self._known.get((bot, name))

    async def all(self) -> list[CampaignRecord]:
        return oldest_first([record for record, _ in self._known.values()])

    async def ask(self, bot: BotId, name: str, wish: CampaignWish) -> bool:
        if (bot, name) not in self._known:
            return False
        self._known[bot, name] = self._known[bot, name][0], wish
        return True

    async def remove(self, bot: BotId, name: str) -> None:
        self._known.pop((bot, name), None)


def oldest_first(records: list[CampaignRecord]) -> list[CampaignRecord]:
    return sorted(records, key=lambda record: (record.started_at, record.bot, record.name))


def encode_campaign(record: CampaignRecord) -> bytes:
    return msgspec.msgpack.encode(record)


def decode_campaign(body: bytes) -> CampaignRecord | None:
    """Return None for one that cannot be decoded: others are still known."""
    try:
        return msgspec.msgpack.decode(body, type=CampaignRecord)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
