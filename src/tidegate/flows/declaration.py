"""A flow as plain data: a TOML or JSON file, or a dict of the same shape."""

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar, get_args

import msgspec

from tidegate.errors import BadInputError
from tidegate.flows.flow import EXPIRED, STALE, Flow
from tidegate.flows.model import OTHERWISE, FlowState, Guard, KeyRequest, MediaKind
from tidegate.flows.texts import Texts, read_texts, texts_of
from tidegate.templates import ParseMode

T = TypeVar("T")

_ERROR_WITH_PATH = re.compile(r"(?P<text>.*?)(?: - at `\$(?P<path>.*)`)?", re.DOTALL)
_WORDS: Final[Mapping[str, Sequence[str]]] = {
    "kind": get_args(MediaKind),
    "parse_mode": get_args(ParseMode),
    "request": get_args(KeyRequest),
}
_BAD_WORD = re.compile(r"Invalid enum value (?P<word>.*)", re.DOTALL)
_FIELD = re.compile(r"Object (?P<what>contains unknown|missing required) field `(?P<name>.*)`")
_READERS: Final[Mapping[str, Callable[[str], Any]]] = {".toml": tomllib.loads, ".json": msgspec.json.decode}


class _Outline(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A flow whose states are not read yet."""

    name: str
    initial: str
    states: dict[str, Any]
    commands: dict[str, str] = {}
    arguments: dict[str, str] = {}
    lifetime: float | None = None
    otherwise: str = OTHERWISE
    expired: str = EXPIRED
    stale: str = STALE
    parse_mode: ParseMode | None = None
    in_place: bool = False
    given: tuple[str, ...] = ()
    texts: str | dict[str, Any] | None = None
    flows: dict[str, Any] = {}


def flow_of(
    data: Mapping[str, Any], *, guards: Mapping[str, Guard] | None = None, texts: Texts | None = None
) -> Flow:
    """Read a dict. Raises BadInputError that names the place: `states.waiting.poll.met`. No check."""
    outline = _convert(data, _Outline, ())
    if isinstance(outline.texts, str):
        raise BadInputError("texts: a file can be named in a file only; give the texts themselves")
    called = {name: _called(name, declared, guards) for name, declared in outline.flows.items()}
    states = tuple(_state(name, table) for name, table in outline.states.items())
    own = None if outline.texts is None else _texts(outline.texts)
    fields = {name: getattr(outline, name) for name in outline.__struct_fields__}
    return Flow(
        **{**fields, "states": states, "texts": texts or own, "guards": dict(guards or {}), "flows": called}
    )


def _called(name: str, declared: object, guards: Mapping[str, Guard] | None) -> Flow:
    if isinstance(declared, Flow):
        return declared
    if not isinstance(declared, Mapping):
        raise BadInputError(f"flows.{name}: a file can be named in a file only; give the flow, or its table")
    try:
        return flow_of(declared, guards=guards)
    except BadInputError as error:
        raise BadInputError(f"flows.{name}: {error}") from error


def load_flow(path: Path | str, *, guards: Mapping[str, Guard] | None = None) -> Flow:
    """Read a .toml or .json file; `texts`, `flows` and `file` name files beside it. Does not check the flow.

    The guards are also those of the flows that it calls.
    """
    return _load(Path(path), guards, ())


def _load(path: Path, guards: Mapping[str, Guard] | None, callers: tuple[Path, ...]) -> Flow:
    if path.absolute() in callers:
        raise BadInputError(
            f"{path}: the flow calls itself, which would never end: use a state to go back to"
        )
    try:
        data = _read(path)
        texts, named = None, data.get("texts") if isinstance(data, dict) else None
        if isinstance(named, str):
            texts = read_texts(path.parent / named)
            data = {name: part for name, part in data.items() if name != "texts"}
        if isinstance(called := data.get("flows") if isinstance(data, dict) else None, dict):
            files = {name: one for name, one in called.items() if isinstance(one, str)}
            loaded = {
                name: _load(path.parent / one, guards, (*callers, path.absolute()))
                for name, one in files.items()
            }
            data = {**data, "flows": {**called, **loaded}}
        return _beside(path, flow_of(data, guards=guards, texts=texts))
    except BadInputError as error:
        raise BadInputError(f"{path}: {error}") from error


def _beside(path: Path, flow: Flow) -> Flow:
    """Files of states are named from the folder of the declaration."""

    def placed(state: FlowState) -> FlowState:
        media = tuple(
            one if one.file is None else msgspec.structs.replace(one, file=str(path.parent / one.file))
            for one in state.media
        )
        return msgspec.structs.replace(state, media=media) if state.media else state

    return msgspec.structs.replace(flow, states=tuple(map(placed, flow.states)))


def check_types(flow: Flow) -> None:
    """Raise BadInputError that names the place of a part that is not what it is declared to be.

    Flows that it calls are left out.
    """
    fields = {name: getattr(flow, name) for name in _Outline.__struct_fields__}
    _check_type(_Outline(**{**fields, "states": {}, "flows": {}, "texts": None}), ())
    for state in flow.states:
        _check_type(state, ("states", str(state.name)))


def _check_type(declared: msgspec.Struct, place: tuple[str, ...]) -> None:
    odd: list[str] = []

    def replace(value: object) -> dict[str, str]:  # a text would do in many places
        odd.append(type(value).__name__)
        return {}

    try:
        _convert(msgspec.to_builtins(declared, enc_hook=replace), type(declared), place)
    except BadInputError as error:
        raise BadInputError(f"{error}: give its name, not the {odd[0]}" if odd else str(error)) from error


def plain_of(flow: Flow) -> dict[str, Any]:
    """Return a dict of which `flow_of` makes the same flow, given the same guards."""
    outline = {name: getattr(flow, name) for name in _Outline.__struct_fields__}
    outline["flows"] = {name: plain_of(called) for name, called in flow.flows.items()}
    outline["states"] = {state.name: _plain_state(state) for state in flow.states}
    if flow.texts is not None:
        outline["texts"] = {"default": flow.texts.default, **flow.texts.languages}
    plain: dict[str, Any] = msgspec.to_builtins(_Outline(**outline))
    return plain


def _read(path: Path) -> Any:  # noqa: ANN401  (whatever the file holds)
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise BadInputError(
            f"a flow is declared in a .toml or .json file, not {path.suffix or 'one without a suffix'}"
        )
    try:
        return reader(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, msgspec.DecodeError, UnicodeError) as error:
        raise BadInputError(f"it cannot be read: {error}") from error


def _state(name: str, table: object) -> FlowState:
    if not isinstance(table, Mapping):
        kind = type(table).__name__
        raise BadInputError(f'states.{name}: a state is a table, such as {{ say = "Hi" }}: got {kind}')
    if "name" in table:
        raise BadInputError(f"states.{name}.name: there is no such key; the state's name is {name}")
    whole = {"name": name, **table}
    for part in ("buttons", "keys"):
        if isinstance(rows := whole.get(part), list):  # a button that stands alone is a row
            whole[part] = [[row] if isinstance(row, Mapping) else row for row in rows]
    return _convert(whole, FlowState, ("states", name))


def _texts(tables: dict[str, Any]) -> Texts:
    try:
        return texts_of(tables)
    except BadInputError as error:
        raise BadInputError(f"texts: {error}") from error


def _plain_state(state: FlowState) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(state)
    del plain["name"]
    return plain


def _convert(data: object, kind: type[T], place: tuple[str, ...]) -> T:
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise BadInputError(_error_text(str(error), place)) from error


def _error_text(complaint: str, before: tuple[str, ...]) -> str:
    match = _ERROR_WITH_PATH.fullmatch(complaint)
    text, path = (match["text"], match["path"] or "") if match else (complaint, "")
    place = ".".join((*before, path.lstrip("."))) if path else ".".join(before)
    if (field := _FIELD.fullmatch(text)) is not None:
        place = f"{place}.{field['name']}".lstrip(".")
        return f"{place}: there is no such key" if "unknown" in field["what"] else f"{place}: is missing"
    if (bad := _BAD_WORD.fullmatch(text)) is not None and (words := _WORDS.get(place.rpartition(".")[2])):
        return f"{place}: {bad['word']} is none of {', '.join(words)}"
    return f"{place or 'the flow'}: {text[:1].lower()}{text[1:]}"
