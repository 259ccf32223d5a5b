"""The privacy of error reports: they hold kinds of errors, places, stacks and code, and nothing of a user.

Every function is pure: it takes what Sentry's SDK is about to send, and returns what is sent. The texts of
exceptions, and the values in log lines, may quote what a user wrote. They are left out, unless the operator
has asked for them. Secrets are left out always.
"""

import linecache
import logging
import re
from collections.abc import Mapping
from typing import Any, Final

from tidegate.incidents import Incident
from tidegate.scrubber import HIDDEN, scrub_secrets

Event = dict[str, Any]  # as Sentry's SDK passes it: serialised, so that it holds plain values only
Hint = Mapping[str, Any]

MOST_FRAMES: Final = 50
CALL_LINES: Final = 8  # lines of source in which the text of a log call is looked for

# The interpreter's own texts of these name code. Of others they may quote data: int("what a user wrote").
CODE_ERRORS: Final = frozenset({
    "AttributeError", "ImportError", "IndexError", "ModuleNotFoundError", "NameError", "RecursionError",
    "UnboundLocalError", "ZeroDivisionError",
})  # fmt: skip
SPAN_FIELDS: Final = frozenset({
    "db.system", "db.operation", "http.method", "http.request.method", "http.response.status_code",
    "server.address", "server.port", "url", "code.filepath", "code.function", "code.lineno", "code.namespace",
})  # fmt: skip
BREADCRUMB_FIELDS: Final = ("url", "method", "http.method", "status_code", "http.response.status_code")

_QUERY: Final = re.compile(r"(\w+://[^\s?#'\"]+)[?#][^\s'\"]*")
_JOINED: Final = re.compile(r"""["']\s*\n\s*["']""")  # a text that is written in several lines
_FRAME: Final = re.compile(r'^ *File "(.+)", line (\d+), in (\S+)', re.MULTILINE)
_RAISED: Final = re.compile(r"^(?:\w+\.)*(\w+)(?::|$)", re.MULTILINE)
_DESCRIBED: Final = re.compile(r"\b([A-Z]\w*): .*\(([^()\s]+:\d+)\)\s*$")


def scrub_tree(value: object) -> Any:  # noqa: ANN401  (as nested as it came)
    """Return it with every text scrubbed, keys too. Addresses lose their query: it may hold anything."""
    if isinstance(value, str):
        return scrub_secrets(_QUERY.sub(rf"\1?{HIDDEN}", value) if "://" in value else value)
    if isinstance(value, Mapping):
        return {scrub_tree(key): scrub_tree(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [scrub_tree(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float) else scrub_tree(str(value))


def clean_error(event: Event, hint: Hint, *, texts: bool = False) -> Event:
    """Return the report of an error as it is sent. `texts`: with the texts of exceptions and log lines."""
    clean = _without_request(event)
    record = hint.get("log_record")
    if isinstance(record, logging.LogRecord):
        clean.pop("extra", None)  # what the application has attached to the line
        clean |= _log_line(record, texts=texts, has_exception=bool(clean.get("exception")))
    if not texts:
        for one in _values(clean, "exception"):
            if not _names_code(one):
                one["value"] = HIDDEN
    return _scrubbed(clean)


def clean_transaction(event: Event) -> Event:
    """Return a measured transaction as it is sent: its spans say what was called, not with which data."""
    clean = _without_request(event)
    if _fields(clean, "transaction_info").get("source") == "url":
        clean["transaction"] = HIDDEN  # a path that fits no route: its parts may be names
    clean["spans"] = [_clean_span(span) for span in _maps(clean.get("spans"))]
    return _scrubbed(clean)


def clean_breadcrumb(crumb: Mapping[str, Any]) -> Event | None:
    """Return a step before an error: calls over HTTP only. Others quote log lines, SQL or keys."""
    if crumb.get("type") != "http":
        return None
    data = _fields(crumb, "data")
    kept = {name: data[name] for name in BREADCRUMB_FIELDS if name in data}
    return {**crumb, "message": None, "data": scrub_tree(kept)}


def incident_event(incident: Incident) -> Event:
    """Return an incident as an event of its group. Its chat is not in it."""
    text = incident.text
    if incident.chat is not None:
        text = re.sub(rf"(?<!\w){incident.chat}(?!\w)", HIDDEN, text)
    tags = {"kind": incident.kind, "handler": incident.handler, "place": incident.place}
    extra = {
        "seconds": incident.seconds,
        "longest": incident.longest,
        "count": incident.count,
        "stack": list(incident.stack),
    }
    return _scrubbed({
        "level": "warning",
        "message": text,
        "fingerprint": ["tidegate", incident.group],
        "tags": {name: value for name, value in tags.items() if value is not None},
        "extra": {name: value for name, value in extra.items() if value not in (None, [])},
    })  # fmt: skip


def _without_request(event: Event) -> Event:
    """Without the user, and of the request only its method: headers, cookies and paths are personal."""
    clean = {name: value for name, value in event.items() if name not in ("user", "_meta")}
    if "request" in clean:
        clean["request"] = {"method": _fields(clean, "request").get("method")}
    return clean


def _scrubbed(event: Event) -> Event:
    for kind in ("exception", "threads"):
        for one in _values(event, kind):
            for frame in _frames(one):
                frame.pop("vars", None)  # never asked for; an application's own call may add them
    return dict(scrub_tree(event))


def _values(event: Event, kind: str) -> list[dict[str, Any]]:
    return _maps(_fields(event, kind).get("values"))


def _frames(exception: Mapping[str, Any]) -> list[dict[str, Any]]:
    return _maps(_fields(exception, "stacktrace").get("frames"))


def _fields(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the record below; empty if there is none: applications send events of any shape."""
    found = record.get(name)
    return found if isinstance(found, Mapping) else {}


def _maps(found: object) -> list[dict[str, Any]]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _names_code(exception: Mapping[str, Any]) -> bool:
    """Return whether its text is written in the source, or names things of the source."""
    frames = _frames(exception) or [{}]
    line, text = str(frames[-1].get("context_line") or ""), str(exception.get("value") or "")
    if text in line:
        return True
    return exception.get("type") in CODE_ERRORS and not line.strip().startswith("raise ")


def _clean_span(span: Mapping[str, Any]) -> Event:
    data = {name: value for name, value in _fields(span, "data").items() if name in SPAN_FIELDS}
    description = str(span.get("description") or "")
    if str(span.get("op")).startswith("db.redis"):
        description = description.partition(" ")[0]  # the command, without its keys
    return {**span, "description": description, "data": data, "tags": {}}


def _log_line(record: logging.LogRecord, *, texts: bool, has_exception: bool) -> Event:
    """Return the parts of an event that describe a log line."""
    text = record.getMessage()
    line = text.partition("\n")[0] if texts else _line_without_values(record, text)
    found: Event = {"logentry": {"message": line}}
    if not record.name.startswith("tidegate") or has_exception:
        return found
    if record.exc_text:  # the scrubber has replaced the exception by its text, without the secret
        text += f"\n{record.exc_text}"
    described = _DESCRIBED.search(text.partition("\n")[0])
    kind, place = described.groups() if described else (None, None)
    if (traced := _traced(text, texts=texts)) is not None:
        found["exception"], kind = {"values": [traced]}, traced["type"]
    if kind is not None:  # lines of one template are about different errors
        found["fingerprint"] = [record.name, str(record.msg), kind, place or "{{ default }}"]
        found["tags"] = {"error": kind} | ({"place": place} if place else {})
    return found


def _line_without_values(record: logging.LogRecord, text: str) -> str:
    """Return the line as it is written in the source, with %s where values stood."""
    template, is_ours = str(record.msg), record.name.startswith("tidegate")
    if is_ours and record.levelno >= logging.CRITICAL:
        return text.partition("\n")[0]  # about the store itself
    if template != "%s" and ((is_ours and record.args) or _is_written_there(template, record)):
        return template
    return f"a log line at {record.filename}:{record.lineno}"  # put together where it is logged


def _is_written_there(text: str, record: logging.LogRecord) -> bool:
    lines = linecache.getlines(record.pathname)[record.lineno - 1 :][:CALL_LINES]
    source = _JOINED.sub("", "".join(lines))
    return all(part in source for part in text.splitlines())


def _traced(text: str, *, texts: bool) -> Event | None:
    """Return the exception whose traceback a log line of Tidegate holds as text; None if it holds none."""
    frames = list(_FRAME.finditer(text))
    if not frames:
        return None
    raised = _RAISED.search(text, frames[-1].end() + 1)
    if raised is None:
        return None
    value = text[raised.end() :].strip() if texts else HIDDEN
    stack = [
        {"filename": frame[1], "lineno": int(frame[2]), "function": frame[3], "in_app": True}
        for frame in frames[-MOST_FRAMES:]
    ]
    return {"type": raised[1], "value": value, "stacktrace": {"frames": stack}}
