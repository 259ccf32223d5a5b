"""`tidegate send`: put one message into the store and, if asked, wait for its delivery."""

import json
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
import typer
from typer.core import TyperCommand

from tidegate.broadcast.message import CAPTIONED
from tidegate.cli import loop, terminal
from tidegate.cli.options import AsJson, BotOption, Store
from tidegate.cli.store import choose_bot, gate_for, open_gate, quietly, store_option
from tidegate.clock import Clock
from tidegate.errors import BadInputError, NotDeliveredError
from tidegate.model import File
from tidegate.ops.reports import record_json
from tidegate.outbox.admission import OPTION_NAMES, check_fields
from tidegate.outbox.message_times import LONGEST_DELAY, duration
from tidegate.outbox.tickets import LiveTicket, Receipt

if TYPE_CHECKING:  # slow to import: `--help` does without
    from tidegate.gate import Tidegate


app = typer.Typer(add_completion=False)

MESSAGE, WHEN, WAITING = "Message", "When", "Waiting"
_GROUP = re.compile(r"-\d+")

Chat = Annotated[str, typer.Argument(metavar="CHAT", help="A number (negative for groups) or @name.")]
Text = Annotated[
    str | None,
    typer.Argument(metavar="TEXT", help="The text, or the caption of a file; - reads it from stdin."),
]
PriorityOption = Annotated[
    Literal["high", "normal", "low"],
    typer.Option("--priority", rich_help_panel=WHEN, help="The three share the limits 16 : 4 : 1."),
]
Method = Annotated[
    str | None,
    typer.Option("--method", metavar="NAME", rich_help_panel=MESSAGE, help="The method, if not sendMessage."),
]
Params = Annotated[
    list[str] | None,
    typer.Option(
        "--param",
        metavar="NAME=VALUE",
        rich_help_panel=MESSAGE,
        help="A parameter of the method; the value is JSON, or else text; repeatable.",
    ),
]
Photo = Annotated[
    str | None,
    typer.Option("--photo", metavar="FILE", rich_help_panel=MESSAGE, help="A file, a file_id or a URL."),
]
Document = Annotated[
    str | None,
    typer.Option("--document", metavar="FILE", rich_help_panel=MESSAGE, help="A file, a file_id or a URL."),
]
At = Annotated[
    str | None,
    typer.Option(
        "--at", metavar="TIME", rich_help_panel=WHEN, help="Send at: 18:30, or YYYY-MM-DDTHH:MM (+02:00)."
    ),
]
In = Annotated[
    str | None,
    typer.Option("--in", metavar="SECONDS", rich_help_panel=WHEN, help="Send after this delay: 90, 30m, 2h."),
]
ExpiresIn = Annotated[
    str | None,
    typer.Option(
        "--expires-in",
        metavar="SECONDS",
        rich_help_panel=WHEN,
        help="Do not send it any more after: 90, 30m, 2h.",
    ),
]
DedupKey = Annotated[
    str | None,
    typer.Option(
        "--dedup-key",
        metavar="KEY",
        rich_help_panel=WHEN,
        help="Send once: within a day, the same key sends nothing and prints the first id.",
    ),
]
Wait = Annotated[
    bool,
    typer.Option("--wait", rich_help_panel=WAITING, help="Wait for the delivery; exits with 1 if it fails."),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout", metavar="SECONDS", min=0.0, rich_help_panel=WAITING, help="Wait at most this long."
    ),
]


class GroupNumbersCommand(TyperCommand):
    """A command that does not mistake the number of a group, -1001234, for an option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401  (Typer's own, not exported)
        # A space in front is enough; it is stripped where the value is read.
        return super().parse_args(ctx, [f" {arg}" if _GROUP.fullmatch(arg) else arg for arg in args])


@app.command(
    cls=GroupNumbersCommand,
    epilog='[b]Try it:[/b]  tidegate send 1001 "Hello"'
    '  ·  tidegate send @channel "Look" --photo cat.jpg --at 18:30'
    '  ·  ID="$(tidegate send 1001 Hello)"',
)
def send(
    chat: Chat,
    text: Text = None,
    *,
    bot: BotOption = None,
    priority: PriorityOption = "normal",
    method: Method = None,
    param: Params = None,
    photo: Photo = None,
    document: Document = None,
    at: At = None,
    delay: In = None,
    expires_in: ExpiresIn = None,
    dedup_key: DedupKey = None,
    wait: Wait = False,
    timeout: Timeout = None,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Put one message into the store for a worker to deliver, and print its id.

    If stdout is no terminal, it gets the id alone, as a script wants it.
    """
    if dedup_key == "":
        raise BadInputError("--dedup-key: the key is empty: give one, or leave the option out")
    wanted = MessageOptions(
        chat=chat,
        text=text,
        method=method,
        params=param or [],
        photo=photo,
        document=document,
        at=at,
        delay=delay,
        expires_in=expires_in,
    )
    fields = fields_of(wanted, Clock().now()) | {"bot": bot, "priority": priority, "dedup_key": dedup_key}
    gate, waits = gate_for(store), wait or timeout is not None
    with quietly():
        loop.run(_send(gate, store, fields, wait=waits, timeout=timeout, as_json=as_json))


# Parameters that have an option of their own.
_OPTIONS: Final = {
    "chat_id": "write the chat as CHAT",
    "bot": "use --bot",
    "method": "use --method",
    "priority": "use --priority",
    "dedup_key": "use --dedup-key",
    "not_before": "use --at or --in",
}
_WAY_OUT: Final = "--param 'extra={{\"{}\": …}}'"
CAPTION_METHODS: Final = CAPTIONED | {"editMessageCaption"}
DEEPEST: Final = 100  # Telegram nests a handful of levels
_MARKED_GROUP = re.compile(r" -\d+")
_CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?")
_NUMBER = re.compile(r"\d{1,9}(?:\.\d{1,3})?")


class MessageOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options that describe the message, as they were written."""

    chat: str
    text: str | None = None
    method: str | None = None
    params: list[str] = []
    photo: str | None = None
    document: str | None = None
    at: str | None = None
    delay: str | None = None
    expires_in: str | None = None


def fields_of(wanted: MessageOptions, now: float) -> dict[str, Any]:
    """Return the fields that `Tidegate.send` takes. Raises BadInputError that names the option."""
    fields: dict[str, Any] = {"chat_id": wanted.chat.strip(), "method": wanted.method or "sendMessage"}
    params = dict(map(parameter, wanted.params))
    fields |= params
    if wanted.photo is not None and wanted.document is not None:
        raise BadInputError("--photo and --document are two messages: send them separately")
    for kind, given in (("photo", wanted.photo), ("document", wanted.document)):
        if given is not None:
            if wanted.method is not None:
                raise BadInputError(f"--{kind} implies its method: leave out --method")
            fields |= {"method": f"send{kind.title()}", kind: file_or_id(given, f"--{kind}")}
    _check_text(wanted, fields["method"], params)
    check_params(fields["method"], params)
    if wanted.text is not None:
        fields[_place_of_text(fields["method"])] = text_of(wanted.text)
    if wanted.expires_in is not None:
        fields["expires_in"] = _seconds("--expires-in", wanted.expires_in)
    not_before = moment_of(wanted, now)
    return fields if not_before is None else fields | {"not_before": not_before}


def _check_text(wanted: MessageOptions, method: str, params: Mapping[str, Any]) -> None:
    place = _place_of_text(method)
    if place in params:
        raise BadInputError(f"--param: {place} is not given this way: write it as TEXT")
    if method == "sendMessage" and wanted.text is None:
        raise BadInputError("there is nothing to send: give TEXT, --photo or --document")


def parameter(text: str) -> tuple[str, Any]:
    """Parse `name=value`: the value is JSON if it can be read as such, else text."""
    name, equals, value = text.partition("=")
    name = name.strip()
    if not equals or not name:
        raise BadInputError(f"--param: {text!r} has no name: write name=value, such as parse_mode=HTML")
    if name in _OPTIONS:
        raise BadInputError(f"--param: {name} is not given this way: {_OPTIONS[name]}")
    try:
        known = json.loads(value, parse_constant=_no_constant, parse_float=_finite_float)
        _check_depth(known, DEEPEST)
    except ValueError:
        return name, value
    except RecursionError:
        raise BadInputError(f"--param: the value of {name} is nested too deeply") from None
    return name, known


def shared_params(given: Sequence[str], elsewhere: Mapping[str, str]) -> dict[str, Any]:
    """Read the --param of a command that sends many messages. `elsewhere` says how others are given."""
    params = dict(map(parameter, given))
    for name, value in params.items():
        if name in elsewhere:
            raise BadInputError(f"--param: {name} is not given this way: {elsewhere[name]}")
        try:
            msgspec.msgpack.encode((name, value))  # as the store keeps it
        except OverflowError:
            raise BadInputError(
                f"--param: {name!r} has a number that is too large: quote it as text"
            ) from None
        except ValueError:
            raise BadInputError(f"--param: {name!r} is no text in UTF-8") from None
    check_params("sendMessage", params)
    return params


def check_params(method: str, params: Mapping[str, Any]) -> None:
    """Raise BadInputError for a --param that the method does not have."""
    try:
        check_fields(method, {name: params[name] for name in params.keys() - OPTION_NAMES}, _WAY_OUT)
    except BadInputError as error:
        raise BadInputError(f"--param: {error}") from None


def _check_depth(value: object, left: int) -> None:
    if not left:
        raise RecursionError
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for item in inner:
        _check_depth(item, left - 1)


def _finite_float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)  # 1e999 is infinite
    return number


def _no_constant(name: str) -> object:
    raise ValueError(name)  # NaN and Infinity are not JSON: they are text


def file_or_id(given: str, option: str) -> File | str:
    """Return a file of this machine by its absolute path, or a file_id or URL as it is."""
    path = _path_of(given, option)
    if _holds(path.is_file):
        return File(path=str(path.absolute()))
    if _holds(path.is_dir) or not given.strip():
        raise BadInputError(f"{option}: {given!r} is not a file: give the path of one, a file_id or a URL")
    looks_like_a_path = path.suffix or len(path.parts) > 1
    if looks_like_a_path and "://" not in given:
        raise BadInputError(f"{option}: there is no file {given!r} here")
    return given


def _path_of(given: str, option: str) -> Path:
    try:
        return Path(given).expanduser()
    except RuntimeError:
        raise BadInputError(
            f"{option}: there is no home folder for {given!r}: write the whole path"
        ) from None


def _holds(question: Callable[[], bool]) -> bool:
    try:
        return question()
    except OSError:  # such as a URL that is too long for a file name
        return False


def text_of(given: str) -> str:
    if given != "-":
        return given.strip() if _MARKED_GROUP.fullmatch(given) else given  # see GroupNumbersCommand
    try:
        return sys.stdin.buffer.read().decode().removesuffix("\n")
    except UnicodeDecodeError:
        raise BadInputError("stdin is not valid UTF-8: convert it first") from None


def _place_of_text(method: str) -> str:
    return "caption" if method in CAPTION_METHODS else "text"


def moment_of(wanted: MessageOptions, now: float) -> float | None:
    """Return when the message may be sent; None for now."""
    if wanted.at is not None and wanted.delay is not None:
        raise BadInputError("--at and --in say the same thing: give one of them")
    if wanted.delay is not None:
        option, moment = "--in", now + _seconds("--in", wanted.delay)
    elif wanted.at is not None:
        option, moment = "--at", _time(wanted.at, now)
    else:
        return None
    if moment > now + LONGEST_DELAY:
        raise BadInputError(f"{option}: the time is more than a year ahead: give an earlier one")
    return moment


def _seconds(option: str, text: str) -> float:
    plain = text.strip()
    return float(plain) if _NUMBER.fullmatch(plain) else duration(option, plain)


def _time(text: str, now: float) -> float:
    """Read a time: local unless it has a zone. A time of day is the next one."""
    here = datetime.fromtimestamp(now, UTC).astimezone()
    match = _CLOCK.fullmatch(text.strip())
    if match is not None:
        hour, minute, second = (int(part or 0) for part in match.groups())
        at = here.replace(tzinfo=None, hour=hour, minute=minute, second=second, microsecond=0)
        if at.astimezone() <= here:
            at += timedelta(days=1)
        return at.astimezone().timestamp()
    try:
        at = datetime.fromisoformat(text.strip()).astimezone()
        moment = at.timestamp()
    except (ValueError, OverflowError, OSError):
        raise BadInputError(f"--at: {text!r} is not a time: write 18:30, or 2030-01-31T18:30") from None
    if moment <= now:
        raise BadInputError(f"--at: {text} is in the past: leave it out to send at once")
    return moment


async def _send(
    gate: "Tidegate",
    store: str | None,
    fields: dict[str, Any],
    *,
    wait: bool,
    timeout: float | None,  # noqa: ASYNC109  (the clock's time)
    as_json: bool,
) -> None:
    clock = Clock()
    async with open_gate(gate, store):
        bot = await choose_bot(gate, fields.pop("bot"))
        [ticket] = await gate.send_many([fields], bot=bot)  # a parameter may have any name
        started = clock.monotonic()
        if not as_json:
            terminal.put_line(_accepted(ticket) if terminal.is_watched() else ticket.id)
        await _hint(gate, store, wait=wait)
        try:
            receipt = await _delivered(ticket, fields, timeout) if wait else None
        finally:
            if as_json:
                terminal.put_json(await _known(gate, ticket))
        if receipt is not None and not as_json:
            arrived = _arrived(receipt, clock.monotonic() - started)
            (terminal.put_line if terminal.is_watched() else terminal.note)(arrived)


async def _hint(gate: "Tidegate", store: str | None, *, wait: bool) -> None:
    """Say that no worker runs: nothing would be sent until one is started."""
    if not (await gate.core.store.activity()).delivers:
        then = "; this command waits for the delivery" if wait else ""
        terminal.note(f"tidegate: no worker runs: start one with tidegate worker{store_option(store)}{then}")


async def _delivered(
    ticket: LiveTicket,
    fields: Mapping[str, Any],
    timeout: float | None,  # noqa: ASYNC109  (likewise)
) -> Receipt:
    try:
        return await ticket.delivered(timeout)
    except TimeoutError:
        raise NotDeliveredError(
            f"{ticket.id} was not delivered within {timeout:g} s and still waits: "
            f"see tidegate queue why {ticket.id}",
            method=fields["method"],
            chat_id=fields["chat_id"],
        ) from None


async def _known(gate: "Tidegate", ticket: LiveTicket) -> dict[str, Any]:
    """Return the message as `queue show` does, and `fresh`: whether this put was the first with its key."""
    record = await gate.outbox.find(ticket.id)
    return {"id": ticket.id, "fresh": ticket.fresh} | ({} if record is None else record_json(record))


def _accepted(ticket: LiveTicket) -> str:
    before = "" if ticket.fresh else " before, with this dedup key,"
    return f"Accepted{before} as {ticket.id}"


def _arrived(receipt: Receipt, seconds: float) -> str:
    what = "" if receipt.message_id is None else f" as message {receipt.message_id}"
    return f"Delivered{what} after {seconds:.1f} s"
