"""The real NocoDB, as `make test-nocodb` installs it: started privately, set up, always stopped."""

import json
import os
import shutil
import socket
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, STDOUT, Popen, TimeoutExpired

from nocodb.places import COLUMNS, Json
from servers import postgres_server

HOME = Path(__file__).parents[2] / ".nocodb"
STARTS_WITHIN, POLL, STOPS_WITHIN = 60.0, 0.1, 10.0  # seconds
PASSWORD = "Correct.Horse.1"


class NocoDbFailed(Exception):  # noqa: N818  (it names what happened)
    """It did not start, or did not do what setting it up needs."""


@dataclass(frozen=True)
class Real:
    url: str
    token: str
    session: str  # of the user, who may make tables
    base: str
    postgres: bool

    def make_table(self, title: str, zone: str | None = None) -> str:
        columns = [_column("Id", "ID", "id"), *(_column(name, kind) for name, kind in COLUMNS.items())]
        columns += [
            _column("CreatedAt", "CreatedTime", "created_at"),
            _column("UpdatedAt", "LastModifiedTime", "updated_at"),
        ]
        made = self._meta(
            f"bases/{self.base}/tables", {"title": title, "table_name": title, "columns": columns}
        )
        if zone is not None:
            due = next(column for column in made["columns"] if column["title"] == "Due")
            meta = (due.get("meta") or {}) | {"timezone": zone, "useSameTimezoneForAll": True}
            self._meta(f"columns/{due['id']}", due | {"meta": meta}, "PATCH")
        return str(made["id"])

    def _meta(self, path: str, body: Json, method: str = "POST") -> Json:
        return _ask(method, f"{self.url}/api/v2/meta/{path}", body, {"xc-auth": self.session})


def _column(title: str, kind: str, name: str | None = None) -> dict[str, str]:
    return {"title": title, "column_name": name or "c_" + "".join(filter(str.isalnum, title)), "uidt": kind}


@contextmanager
def real_nocodb(*, postgres: bool) -> Iterator[Real]:
    """With a database of its own, gone in the end."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-nocodb-")))
        port = stack.enter_context(postgres_server()).port if postgres else None
        place = {"NC_DB": f"pg://127.0.0.1:{port}?u=postgres&p=none&d=postgres"} if port else {}
        url = stack.enter_context(_running(folder, place))
        person = {"email": "checks@example.com", "password": PASSWORD, "firstname": "A", "lastname": "B"}
        session = _ask("POST", f"{url}/api/v2/auth/user/signup", person)["token"]
        token = _ask("POST", f"{url}/api/v1/tokens", {"description": "checks"}, {"xc-auth": session})["token"]
        base = _ask("POST", f"{url}/api/v2/meta/bases", {"title": "checks"}, {"xc-auth": session})["id"]
        yield Real(url, token, session, base, postgres)


@contextmanager
def _running(folder: Path, database: dict[str, str]) -> Iterator[str]:
    node = shutil.which("node")
    if node is None or not (HOME / "node_modules" / "nocodb").is_dir():
        raise NocoDbFailed("there is no NocoDB: `make test-nocodb` installs it, with Node 18 or later")
    port, log = _free_port(), folder / "log"
    settings = database | {"PORT": str(port), "NC_TOOL_DIR": str(folder), "NC_DISABLE_TELE": "true"}
    settings |= {"NODE_PATH": str(HOME / "node_modules")}
    with log.open("wb") as sink:
        process = Popen(  # noqa: S603  (composed here)
            [node, str(Path(__file__).with_name("start.js"))],
            cwd=folder,
            env=os.environ | settings,
            stdin=PIPE,
            stdout=sink,
            stderr=STDOUT,
            start_new_session=True,
        )
    try:
        _await_answer(process, f"http://127.0.0.1:{port}", log)
        yield f"http://127.0.0.1:{port}"
    finally:
        with suppress(TimeoutExpired):
            process.communicate(timeout=STOPS_WITHIN)
        process.kill()
        process.wait()


def _await_answer(process: Popen[bytes], url: str, log: Path) -> None:
    for _ in range(int(STARTS_WITHIN / POLL)):
        with suppress(NocoDbFailed, OSError):
            _ask("GET", f"{url}/api/v1/health")
            return
        with suppress(TimeoutExpired):
            process.wait(POLL)
            break
    raise NocoDbFailed("it did not start; the end of its log:\n" + log.read_text(errors="replace")[-2_000:])


def _ask(method: str, url: str, body: Json = None, headers: dict[str, str] | None = None) -> Json:
    content = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(  # noqa: S310  (http, composed here)
        url, content, {"Content-Type": "application/json"} | (headers or {}), method=method
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310  (likewise)
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        raise NocoDbFailed(f"{method} {url}: {error.code} {error.read()[:500]!r}") from error


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
