"""The stored source of a broadcast from a file, with which `tidegate broadcast resume` goes on."""

import shlex
from pathlib import Path
from typing import Any, Final

import msgspec

from tidegate.broadcast.audience_file import Mailing, open_audience
from tidegate.broadcast.recorder import storable
from tidegate.cli.broadcast import BroadcastOrder
from tidegate.cli.store import store_option
from tidegate.errors import BadInputError
from tidegate.outbox.campaigns import CampaignRecord, FileSource

STDIN: Final = "-"
PATHS: Final = ("template", "report")
OPTIONS: Final = (  # that count when it goes on
    *("text", "template", "parse_mode", "params", "skip_bad", "allow_duplicates"),
    *("priority", "remember", "report"),
)
DEFAULTS: Final = BroadcastOrder(file="")


def file_source(order: BroadcastOrder, mailing: Mailing) -> FileSource | None:
    """Return what has to be stored; None if the name of a file is not valid text."""
    given = {name: value for name in OPTIONS if (value := getattr(order, name)) != getattr(DEFAULTS, name)}
    given |= {name: str(Path(given[name]).absolute()) for name in PATHS if name in given}
    path = STDIN if order.file == STDIN else str(Path(order.file).absolute())
    if storable({"path": path, "options": given}) is None:
        return None
    return FileSource(path=path, digest=mailing.source.digest().hex(), text=mailing.text, options=given)


def order_of(
    record: CampaignRecord, source: FileSource, store: str | None, *, as_json: bool
) -> BroadcastOrder:
    """Return the order that goes on with a broadcast.

    Raises BadInputError that says which command would, if the file is not there any more, or is another.
    """
    options: dict[str, Any] = {name: value for name, value in source.options.items() if name in OPTIONS}
    order = BroadcastOrder(file=source.path, name=record.name, bot=record.bot, store=store, **options)
    if (why := _why_not(record, source, command_of(order))) is not None:
        if record.state == "delivering":
            why += ". All its messages are in the store: tidegate worker delivers them without that"
        raise BadInputError(why)
    return msgspec.structs.replace(order, text=source.text, template=None, as_json=as_json)


def _why_not(record: CampaignRecord, source: FileSource, command: str) -> str | None:
    if source.path == STDIN:
        return (
            f"broadcast {record.name} was read from stdin, which is over: pipe the same lines into {command}"
        )
    try:
        with open_audience(source.path) as file:
            digest = file.digest().hex()
    except BadInputError as error:
        return f"broadcast {record.name}: {error}: put the file back; or run, with its new path: {command}"
    if digest != source.digest:
        return (
            f"{source.path} has changed since broadcast {record.name} began: to send to those in it who did"
            f" not get the message yet, run {command}"
        )
    return None


def command_of(order: BroadcastOrder) -> str:
    """Return the command of an order, to be typed."""
    words = ["tidegate", "broadcast", order.file]
    for name in ("name", "bot", *OPTIONS):
        value = getattr(order, name)
        if value == getattr(DEFAULTS, name):
            continue
        option = f"--{name.removesuffix('s') if name == 'params' else name.replace('_', '-')}"
        if value is True:
            words.append(option)
        else:
            values = value if isinstance(value, list) else [value]
            words += [word for one in values for word in (option, str(one))]
    return shlex.join(words) + store_option(order.store)
