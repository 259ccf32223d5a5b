"""`tidegate token` as an operator runs it, and what other commands say of tokens."""

import asyncio
import json
import re
import shlex
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from system.operators import run_here
from system.snippets import HOWTOS
from tidegate.clock import Clock
from tidegate.database import make_access
from tidegate.database.database import Database
from tidegate.model import BotId
from tidegate.ops.access import AccessControl, AuditEntry, Principal, Role

T = TypeVar("T")
PAGE = "give-access.md"
COMMAND = re.compile(r"^tidegate token (.*)$", re.MULTILINE)
SECRET = re.compile(r"tg_[\w-]{43}")


def run(folder: Path, *arguments: str, code: int = 0) -> tuple[str, str]:
    """What a command says on stdout and stderr."""
    ended, out, err = run_here("token", *arguments, folder=folder)
    assert ended == code, err
    return out, err


def told(folder: Path, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(folder, *arguments, "--json")[0])
    return found


def ask(folder: Path, work: Callable[[AccessControl], Awaitable[T]]) -> T:
    """What the API of another process finds in the same database."""

    async def opened() -> T:
        database = Database(f"sqlite:///{folder}/tidegate-data.db")
        access = AccessControl(lambda: make_access(lambda: database), Clock())
        try:
            return await work(access)
        finally:
            await access.close()
            await database.close()

    return asyncio.run(opened())


def test_without_tokens_the_command_says_so_and_makes_no_database(tmp_path: Path) -> None:
    assert run(tmp_path, "list")[0].startswith("No token. Create one with tidegate token create")
    assert told(tmp_path, "list") == {"tokens": [], "hidden": 0}
    assert "there is no token 1: see tidegate token list" in run(tmp_path, "revoke", "1", code=2)[1]
    assert list(tmp_path.iterdir()) == []


def test_a_token_lives_from_its_creation_to_its_end(tmp_path: Path) -> None:
    out, err = run(
        tmp_path, "create", "--name", "ci", "--role", "operator", "--bot", "42", "--expires", "90d"
    )
    secret = out.strip()
    assert SECRET.fullmatch(secret)
    assert out == f"{secret}\n"  # nothing else is there: $(tidegate token create …) catches it
    assert err == "Token 1 (ci): operator, bot 42, expires in 90 d. Its secret, shown this once:\n"
    expected = Principal(name="ci", role=Role.OPERATOR, bot=BotId(42), token_id=1)
    assert ask(tmp_path, lambda access: access.authenticate(secret)) == expected

    shown, _ = run(tmp_path, "list")
    assert re.search(rf"1 +operator +42:… +{secret[:9]}… +in 89 d +\S+, .* +ci", shown)
    [token] = told(tmp_path, "list")["tokens"]
    assert (token["name"], token["role"], token["bot"], token["prefix"]) == ("ci", "operator", 42, secret[:9])

    assert run(tmp_path, "revoke", "1")[0] == f"Token 1 (ci, {secret[:9]}…) is revoked.\n"
    assert ask(tmp_path, lambda access: access.authenticate(secret)) is None
    assert told(tmp_path, "revoke", "1") == {"id": 1, "name": "ci", "revoked": False}
    assert run(tmp_path, "list")[0] == "No token can be used.\n1 token is revoked or expired: --all\n"
    assert "revoked" in run(tmp_path, "list", "--all")[0]
    assert told(tmp_path, "list")["hidden"] == 1


def test_the_secret_is_nowhere_but_in_the_answer_and_changes_are_in_the_audit_log(tmp_path: Path) -> None:
    made = told(tmp_path, "create", "--name", "anna", "--role", "admin")
    secret = made["secret"]
    assert made["id"] == 1
    assert SECRET.fullmatch(secret)

    async def use(access: AccessControl) -> tuple[list[AuditEntry], list[str]]:
        session, link = await access.log_in(secret), await access.make_login_link()
        by_link = await access.log_in_by_link(link)
        assert session is not None
        assert by_link is not None
        secrets = [secret, session.cookie, session.csrf, link, by_link.cookie]
        await access.note(session.principal, "session.begin", detail=f"with {secrets}")
        return await access.audit(), secrets

    entries, secrets = ask(tmp_path, use)
    for file in tmp_path.iterdir():
        kept = file.read_bytes()
        assert b"anna" in kept
        assert [one for one in secrets if one.encode() in kept or one[10:].encode() in kept] == []
    assert [(entry.action, entry.principal, entry.target) for entry in entries] == [
        ("session.begin", "anna", None),
        ("token.create", "command line", "1"),
    ]
    assert entries[1].detail == "admin, all bots"
    run(tmp_path, "revoke", "1")
    newest = ask(tmp_path, lambda access: access.audit(limit=1))
    assert [(entry.action, entry.detail) for entry in newest] == [("token.revoke", "anna")]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("create",), "missing option '--name'"),
        (("create", "--name", " "), "1 to 100 printable characters"),
        (
            ("create", "--name", "x", "--role", "boss"),
            "--role: 'boss' is not one of 'viewer', 'operator', 'admin'",
        ),
        (("create", "--name", "x", "--expires", "soon"), "--expires: 'soon' is not a duration"),
        (("create", "--name", "x", "--expires", "0s"), "a token expires after more than 0 s"),
        (("create", "--name", "x", "--bot", "0"), "not a bot's number"),
        (("create", "--name", "x", "--store", "memory://"), "there is no database"),
        (("revoke", "0"), "ids of tokens are 1 or more"),
        (("revoke", "99999999999999999999"), "ids of tokens are 1 or more"),
        (("revoke", "ci"), "ID: write a whole number"),
    ],
)
def test_a_bad_argument_is_one_line_and_changes_nothing(
    tmp_path: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    out, err = run(tmp_path, *arguments, code=2)
    assert complaint in err
    assert (out, len(err.splitlines())) == ("", 1)
    assert list(tmp_path.iterdir()) == []


def test_a_viewer_is_what_is_made_by_default(tmp_path: Path) -> None:
    made = told(tmp_path, "create", "--name", "Grafana")
    assert (made["role"], made["bot"], made["expires_at"]) == ("viewer", None, None)
    assert "viewer" in run(tmp_path, "list")[0]


def test_the_page_shows_commands_that_work(tmp_path: Path) -> None:
    shown = COMMAND.findall((HOWTOS / PAGE).read_text("utf-8"))
    assert len(shown) == 6
    for command in shown:
        run(tmp_path, *shlex.split(command, comments=True))
    roles = {token["id"]: token["role"] for token in told(tmp_path, "list")["tokens"]}
    assert roles == {1: "viewer", 3: "admin", 4: "operator"}


@pytest.mark.usefixtures("a_command_may_block")
def test_doctor_counts_the_tokens(tmp_path: Path) -> None:
    for name in ("one", "two"):
        told(tmp_path, "create", "--name", name)
    told(tmp_path, "create", "--name", "boss", "--role", "admin")
    run(tmp_path, "revoke", "1")
    _, out, _ = run_here("doctor", "--json", folder=tmp_path)
    checks = {check["name"]: check for check in json.loads(out)["checks"]}
    assert checks["API tokens"]["found"] == "2 that can be used, 1 of them an admin's"
