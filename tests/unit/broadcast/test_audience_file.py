"""A file that is read twice gives the same twice, or says that it cannot."""

import os
import sys
from pathlib import Path

import pytest

from tidegate.broadcast import audience_file
from tidegate.broadcast.audience_file import open_audience
from tidegate.errors import BadInputError


def test_a_file_is_read_as_often_as_asked(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_bytes(b"\xef\xbb\xbfchat_id\n1\n2")
    with open_audience(str(tmp_path / "list.csv")) as file:
        first, digest, second = list(file.lines()), file.digest(), list(file.lines())
    assert first == second == [b"chat_id\n", b"1\n", b"2"]
    assert len(digest) == 16
    assert file.read == file.size == 14


@pytest.mark.parametrize("in_memory", [5, 5_000_000])
def test_a_pipe_is_kept_for_the_second_reading(monkeypatch: pytest.MonkeyPatch, in_memory: int) -> None:
    monkeypatch.setattr(audience_file, "PIPE_IN_MEMORY", in_memory)
    end, start = os.pipe()
    os.write(start, b"chat_id\n1\n2")
    os.close(start)
    with os.fdopen(end) as pipe:
        monkeypatch.setattr(sys, "stdin", pipe)
        with open_audience("-") as file:
            assert list(file.lines()) == list(file.lines()) == [b"chat_id\n", b"1\n", b"2"]
            assert (file.name, file.size) == ("stdin", 11)


def test_a_file_that_is_written_to_meanwhile_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "list.csv"
    path.write_bytes(b"chat_id\n1\n")
    with open_audience(str(path)) as file:
        list(file.lines())
        with path.open("ab") as writer:
            writer.write(b"2\n")
        with pytest.raises(BadInputError, match="was changed while it was read"):
            list(file.lines())


def test_a_line_without_an_end_does_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audience_file, "MAX_LINE", 10)
    (tmp_path / "list.csv").write_bytes(b"chat_id\n" + b"1" * 11)
    with (
        open_audience(str(tmp_path / "list.csv")) as file,
        pytest.raises(BadInputError, match="line 2: has more"),
    ):
        list(file.lines())


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("chat_id\n1".encode("utf-16"), "is written in UTF-16: save it as UTF-8"),
        (b"PK\x03\x04\x14\x00", "save it as CSV in UTF-8"),
        (b"\x1f\x8b\x08", "unpack it first"),
    ],
)
def test_what_is_no_text_is_named(tmp_path: Path, content: bytes, complaint: str) -> None:
    (tmp_path / "list").write_bytes(content)
    with open_audience(str(tmp_path / "list")) as file, pytest.raises(BadInputError, match=complaint):
        list(file.lines())


def test_what_cannot_be_opened_is_bad_input(tmp_path: Path) -> None:
    with (
        pytest.raises(BadInputError, match=r"cannot read .*none\.csv: no such file"),
        open_audience(str(tmp_path / "none.csv")),
    ):
        pass
    with pytest.raises(BadInputError, match="is a directory"), open_audience(str(tmp_path)):
        pass
