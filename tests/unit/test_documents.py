"""Documents name files, commands, options, variables and headings that exist."""

import ast
import inspect
import re
import textwrap
from pathlib import Path
from typing import Final

import pytest
import typer

import make_commands_page
import make_drawings
import make_http_api_page
import make_metrics_page
import make_settings_page
import tidegate
import tidegate.nocodb
import tidegate.sim
from command_lines import ShownCommand, parse, shown_commands
from tidegate import Tidegate
from tidegate.cli.app import COMMANDS
from tidegate.outbox.message_fields import SendOptions
from tidegate.settings import Settings

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "tidegate"
DOCS = ROOT / "docs"
PAGES: Final = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *ROOT.glob("examples/**/README.md"))
)
_CODE: Final = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(
    "page", ["CONTRIBUTING.md", "docs/explanation/architecture.md", "docs/reference/glossary.md"]
)
def test_every_source_file_that_a_page_names_exists(page: str) -> None:
    named = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)*(?:\.py|\.lua|/))`", (ROOT / page).read_text()))
    assert named
    homes = (SOURCE, SOURCE / "stores" / "redis", ROOT)
    assert [name for name in sorted(named) if not any((home / name).exists() for home in homes)] == []


def test_the_glossary_is_sorted_and_has_one_row_for_each_word() -> None:
    rows = (ROOT / "docs" / "reference" / "glossary.md").read_text().splitlines()
    words = [row.split("|")[1].strip() for row in rows if row.startswith("| ")][1:]
    assert words == sorted(set(words), key=str.lower)


@pytest.mark.parametrize("name", ["trouble.md", "attaching.md"])
def test_every_test_that_a_page_names_as_its_proof_exists(name: str) -> None:
    page = (ROOT / "docs" / "explanation" / name).read_text()
    named = re.findall(r"`(tests/[a-z0-9_/]+\.py)(?:::(\w+))?`", page)
    assert len(named) > 30
    texts = {path: (ROOT / path).read_text() for path, _ in named if (ROOT / path).exists()}
    missing = [(path, name) for path, name in named if f"def {name}" not in texts.get(path, "")]
    assert missing == []


def test_the_page_on_metrics_is_that_of_the_table() -> None:
    assert make_metrics_page.PAGE.read_text() == make_metrics_page.page(), "run: make metrics-page"


def test_the_page_on_the_http_api_is_that_of_its_routes() -> None:
    assert make_http_api_page.PAGE.read_text() == make_http_api_page.page(), "run: make http-api-page"


def test_the_page_on_commands_is_that_of_the_commands() -> None:
    assert make_commands_page.PAGE.read_text() == make_commands_page.page(), "run: make commands-page"


@pytest.mark.parametrize("name", ["pacing.svg", "states.svg", "load-balancer.svg"])
def test_each_drawing_is_that_of_its_command(name: str) -> None:
    assert (DOCS / name).read_text() == make_drawings.drawings()[name], "run: make drawings"


def test_the_drawing_of_slots_never_shows_more_calls_than_the_limit() -> None:
    calls = make_drawings.calls_of_a_full_window()
    assert len(calls) > 9
    assert make_drawings.fullest_window(calls)[1] == make_drawings.RATE.count


def test_the_command_line_page_leads_to_every_command() -> None:
    page = (DOCS / "reference" / "cli.md").read_text()
    assert [name for name in COMMANDS if not re.search(rf"`(?:tidegate )?{name}[` ]", page)] == []


def test_the_table_of_options_of_send_has_each_option_once() -> None:
    page = (DOCS / "reference" / "gate.md").read_text()
    table = page.partition("## Options of `send`")[2].partition("## ")[0]
    listed = re.findall(r"^\| `(\w+)`", table, re.MULTILINE)
    assert sorted(listed) == sorted({*SendOptions.__annotations__, "bot", "extra"})


# What differs from line to line, and the examples that stand for it.
_VARIABLE: Final = re.compile(r"…|\d+|\(.*?\)|[:,%]|\b(?:and|label|shop\.tasks|jobs|history|spooled)\b")


def test_every_log_line_that_the_reference_names_is_written_somewhere() -> None:
    page = (DOCS / "reference" / "log-lines.md").read_text()
    source = "".join(path.read_text() for path in SOURCE.rglob("*.py"))
    joined = re.sub(r'"\s*\n\s*f?"', "", source)  # a text of two lines
    cells = re.findall(r"^\| (`.+?) \|", page.partition("## Formats")[0], re.MULTILINE)
    lines = [line for cell in cells for line in re.findall(r"`([^`]+)`", cell)]
    assert len(lines) > 50

    def is_written(line: str) -> bool:
        pieces = [piece.strip() for piece in _VARIABLE.split(line)]
        return any(len(piece) > 3 and piece in joined for piece in pieces) or f'"{line}' in joined

    assert [line for line in lines if not is_written(line)] == []


def test_the_page_on_settings_is_that_of_the_settings() -> None:
    assert make_settings_page.PAGE.read_text() == make_settings_page.page(), "run: make settings-page"
    assert {one.name for one in make_settings_page.settings()} == set(Settings.model_fields)


# Variables that are no setting of the library: of its command line, and of the tests.
OTHER_VARIABLES: Final = {"TIDEGATE_DEBUG", "TIDEGATE_NOCODB"}


@pytest.mark.parametrize("page", PAGES)
def test_every_command_that_a_page_shows_exists_with_its_options(page: str) -> None:
    wrong = []
    for shown in shown_commands((ROOT / page).read_text()):
        if shown.arguments[:1] == ("1",):
            continue
        try:
            parse(shown.arguments)
        except typer.Exit:  # --help, --version
            pass
        except typer.TyperException as error:
            if not (shown.is_mention and type(error).__name__ == "MissingParameter"):
                wrong.append(f"tidegate {' '.join(shown.arguments)}: {error}")
    assert wrong == []


def test_commands_are_found_wherever_a_page_shows_them() -> None:
    page = """`tidegate queue\nwhy` and `tidegate backup copy.db`
```sh
export KEY="$(tidegate key new)"          # tidegate nonsense
TIDEGATE_STORE=bot.db tidegate worker --drain > log 2>&1 && sudo -u tidegate /opt/tidegate/bin/tidegate doctor
docker compose run --rm -T api token create \\
    --name me | cat
systemctl restart tidegate
```
```python
tidegate = 1
```
"""
    assert list(shown_commands(page)) == [
        ShownCommand(("key", "new")),
        ShownCommand(("worker", "--drain")),
        ShownCommand(("doctor",)),
        ShownCommand(("token", "create", "--name", "me")),
        ShownCommand(("queue", "why"), is_mention=True),
        ShownCommand(("backup", "copy.db"), is_mention=True),
    ]


_PYTHON: Final = re.compile(r"^( *)```python\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
_MODULES: Final = {"tidegate": tidegate, "tidegate.nocodb": tidegate.nocodb, "tidegate.sim": tidegate.sim}


@pytest.mark.parametrize("page", PAGES)
def test_python_that_a_page_shows_compiles_and_imports_and_calls_what_exists(page: str) -> None:
    wrong = []
    for _, block in _PYTHON.findall((ROOT / page).read_text()):
        flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        tree = compile(textwrap.dedent(block), page, "exec", flags=flags)
        known: dict[str, object] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (module := _MODULES.get(node.module or "")):
                known |= {one.asname or one.name: getattr(module, one.name, None) for one in node.names}
        wrong += [f"{name} cannot be imported" for name, value in known.items() if value is None]
        wrong += [problem for node in ast.walk(tree) for problem in _wrong_options(node, known)]
    assert wrong == []


def _wrong_options(node: ast.AST, known: dict[str, object]) -> list[str]:
    """Return the options of a call of Tidegate's that it does not have; others are not known here."""
    match node:
        case ast.Call(func=ast.Name(id=name)) if callable(called := known.get(name)):
            pass
        case ast.Call(func=ast.Attribute(value=ast.Name(id="gate"), attr=name)):
            called = getattr(Tidegate, name, None)
        case _:
            return []
    if not callable(called) or isinstance(called, property):
        return []
    options = inspect.signature(called).parameters
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in options.values()):
        return []
    return [f"{name} has no {one.arg}=" for one in node.keywords if one.arg and one.arg not in options]


@pytest.mark.parametrize("page", PAGES)
def test_every_variable_that_a_page_names_is_a_setting(page: str) -> None:
    named = set(re.findall(r"\b(?:TIDEGATE|DB)_[A-Z_]*[A-Z]\b", (ROOT / page).read_text()))
    known = {name.upper() for name in Settings.model_fields} | OTHER_VARIABLES
    assert sorted(named - known) == []


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_to_a_file_and_a_heading_that_exist(page: str) -> None:
    here = ROOT / page
    links = re.findall(r"\]\(([^)\s]+)\)", _CODE.sub("", here.read_text()))
    wrong = []
    for link in links:
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (here.parent / path).resolve() if path else here
        if not target.exists() or (anchor and anchor not in anchors(target.read_text())):
            wrong.append(link)
    assert wrong == []


def anchors(page: str) -> set[str]:
    """The names under which GitHub links to headings."""
    headings = re.findall(r"^#+ (.+)$", _CODE.sub("", page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_front_page_leads_to_every_page() -> None:
    front = (DOCS / "README.md").read_text()
    pages = [path.relative_to(DOCS).as_posix() for path in sorted(DOCS.rglob("*.md"))]
    assert [page for page in pages if f"]({page}" not in front and page != "README.md"] == []


def test_every_page_stands_in_a_section_of_the_site_once() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    listed = re.findall(r": (\S+\.md)$", navigation, re.MULTILINE)
    outside = [page.removeprefix("project/") for page in listed if page.startswith("project/")]
    assert sorted(set(listed)) == sorted(listed)
    assert [page for page in outside if not (ROOT / page).exists()] == []
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert {page for page in listed if not page.startswith("project/")} == pages, "see nav in mkdocs.yml"


@pytest.mark.parametrize("page", PAGES)
def test_every_verb_of_the_gate_that_a_page_names_exists(page: str) -> None:
    named = set(re.findall(r"\bgate\.([a-z_]+)\b", (ROOT / page).read_text()))
    assert sorted(name for name in named - {"py", "md"} if not hasattr(Tidegate, name)) == []


def test_old_names_are_found_on_their_page() -> None:
    page = (DOCS / "reference" / "old-names.md").read_text()
    old = [
        "BatchPollingManager", "send_message_with_queue", "RateLimiter", "TelegramRateLimiter",
        "QueuedMessage", "MessagePriority", "RateLimitConfig", "MessageQueue", "ThrottledNotifier",
        "OutgoingMessageQueue", "NotificationService", "print_stats", "nocodb_request_with_retry",
        "skip_rate_limit", "can_send", "is_allowed", "rate_limit", "monitor_event_loop", "enqueue",
        "dequeue", "ack", "nack", "get_stats", "LLEN", "msg_queue:high", "msg_queue:dlq",
        "telegram_429_count", "telegram_5xx_count", "telegram_rate_limited_drops", "/queue/stats",
        "/webhook/telegram/YOUR_BOT_TOKEN", "TELEGRAM_RATE_LIMIT_WAIT", "TELEGRAM_MAX_RETRIES",
        "TELEGRAM_BASE_DELAY", "TELEGRAM_MAX_DELAY", "TELEGRAM_TIMEOUT", "DB_POOL_SIZE", "DB_MAX_OVERFLOW",
        "ix_messages_chat_telegram_msg", "ix_messages_reply_lookup", "ix_messages_incoming",
        "ix_sessions_token_active_expires", "ix_sessions_expires_active", "test_batch_polling_stress.py",
        "habit_reminders", "batch_check_payment_status", "enable_batch_polling",
    ]  # fmt: skip
    assert [name for name in old if name not in page] == []
    used = set(re.findall(r"`tidegate\.([A-Z]\w+)", page))
    assert used <= set(tidegate.__all__)
