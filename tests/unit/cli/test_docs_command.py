"""`tidegate docs` serves the site if it was built, and else lists and prints pages."""

import json
import threading
import urllib.request
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from tidegate.cli import docs
from tidegate.cli.app import run


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pages = {
        "README.md": "# Documentation\n",
        "howto/send-reminders.md": "# How to remind users\n\n## In their zone\n\nAt nine.\n",
        "howto/deploy.md": "# How to deploy\n\nReminders are fired by the worker.\n",
    }
    for name, text in pages.items():
        (tmp_path / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "docs" / name).write_text(text)
    monkeypatch.setattr(docs, "HOMES", (tmp_path,))
    return tmp_path


@pytest.mark.usefixtures("home")
def test_without_a_site_the_pages_are_listed_with_what_builds_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["docs"]) == 0
    shown = capsys.readouterr().out
    assert "howto/deploy          How to deploy" in shown
    assert "make docs" in shown


@pytest.mark.usefixtures("home")
def test_a_page_is_printed_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["docs", "send-reminders"]) == 0
    assert "At nine." in capsys.readouterr().out


@pytest.mark.usefixtures("home")
def test_pages_about_words_are_listed_with_the_one_about_nothing_else_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["docs", "reminders", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["site"] is None
    assert [page["name"] for page in found["pages"]] == ["howto/send-reminders", "howto/deploy"]


@pytest.mark.usefixtures("home")
def test_words_that_no_page_has_are_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["docs", "submarines"]) == 2
    assert "no page is about 'submarines'" in capsys.readouterr().err


def test_an_installation_without_pages_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(docs, "HOMES", (tmp_path,))
    assert run(["docs"]) == 1
    assert "this installation has no documentation" in capsys.readouterr().err


def test_a_built_site_is_served_until_ctrl_c(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "site").mkdir()
    (home / "site" / "index.html").write_text("all pages")
    answers: list[bytes] = []

    def visit(server: ThreadingHTTPServer) -> None:
        address = f"http://127.0.0.1:{server.server_address[1]}/"
        reader = threading.Thread(target=lambda: answers.append(urllib.request.urlopen(address).read()))
        reader.start()
        server.handle_request()
        reader.join()
        raise KeyboardInterrupt

    monkeypatch.setattr(ThreadingHTTPServer, "serve_forever", visit)
    assert run(["docs", "--port", "0"]) == 0
    assert answers == [b"all pages"]
    assert "The documentation is at http://127.0.0.1:" in capsys.readouterr().out
