"""The spool of history: batches on disk, in files that outlive their process."""

from pathlib import Path

import pytest

from history_rows import attempt, row
from tidegate.history import HistoryRow
from tidegate.ops.history_spool import HistorySpool


def drained(spool: HistorySpool) -> list[str | None]:
    """Return the texts of all that waits, and pass it."""
    texts: list[str | None] = []
    while rows := spool.first():
        texts += [row.text for row in rows if isinstance(row, HistoryRow)]
        spool.passed()
    return texts


def batch(*texts: str) -> list[HistoryRow]:
    return [row(text=text) for text in texts]


def test_batches_come_back_in_their_order_and_leave_no_file(tmp_path: Path) -> None:
    spool = HistorySpool(tmp_path / "spool")
    first = batch("one", "zwei 🎉")
    assert spool.add(first)
    assert spool.add(batch("three"))
    assert spool.waiting > 0

    assert spool.first() == spool.first() == first
    assert drained(spool) == ["one", "zwei 🎉", "three"]
    assert (spool.waiting, list((tmp_path / "spool").iterdir())) == (0, [])


def test_a_batch_may_be_added_while_others_are_read(tmp_path: Path) -> None:
    spool = HistorySpool(tmp_path)
    spool.add(batch("one"))
    spool.first()
    spool.add(batch("two"))
    spool.passed()
    spool.add(batch("three"))

    assert drained(spool) == ["two", "three"]


def test_what_a_dead_process_left_is_taken_over_and_what_a_living_one_has_is_not(tmp_path: Path) -> None:
    dead, living = HistorySpool(tmp_path), HistorySpool(tmp_path)
    dead.add(batch("of the dead"))
    dead.first()  # it was reading when it died
    living.add(batch("of the living"))
    dead.close()

    heir = HistorySpool(tmp_path)
    heir.adopt()
    heir.adopt()  # finds nothing new
    heir.add(batch("own"))

    assert drained(heir) == ["of the dead", "own"]
    assert drained(living) == ["of the living"]
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_a_process_that_was_killed_while_it_wrote_is_read_up_to_there(tmp_path: Path) -> None:
    spool = HistorySpool(tmp_path)
    spool.add(batch("whole"))
    spool.add(batch("cut"))
    spool.close()
    [path] = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-5])

    heir = HistorySpool(tmp_path)
    heir.adopt()

    assert drained(heir) == ["whole"]
    assert list(tmp_path.iterdir()) == []


def test_a_line_that_cannot_be_read_is_left_out_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spool = HistorySpool(tmp_path)
    spool.add(batch("one"))
    spool.close()
    [path] = tmp_path.iterdir()
    path.write_bytes(b"[[1, 2]]\n\xff\n" + path.read_bytes())

    heir = HistorySpool(tmp_path)
    heir.adopt()

    assert drained(heir) == ["one"]
    assert heir.damaged == 2
    assert "cannot be read, and is left out" in caplog.text


def test_a_full_spool_takes_nothing_more_until_it_is_read(tmp_path: Path) -> None:
    spool = HistorySpool(tmp_path, most_bytes=500)
    assert spool.add(batch("x" * 100))
    assert not spool.add(batch("y" * 200))

    assert drained(spool) == ["x" * 100]
    assert spool.add(batch("y" * 200))
    spool.close()


def test_texts_on_disk_are_readable_by_their_owner_alone(tmp_path: Path) -> None:
    spool = HistorySpool(tmp_path / "spool")
    spool.add(batch("private"))

    [path] = (tmp_path / "spool").iterdir()
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    spool.close()


def test_a_file_that_cannot_be_opened_is_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "history-aa.jsonl").mkdir()  # as if it were another user's
    spool = HistorySpool(tmp_path)
    spool.adopt()

    assert spool.first() is None
    assert "history-aa.jsonl is passed over" in caplog.text


def test_attempts_wait_among_messages_and_come_back_as_they_were(tmp_path: Path) -> None:
    spool = HistorySpool(tmp_path)
    message, refused = row(text="one"), attempt(description='"quoted" 🎉')
    spool.add([refused, message])
    spool.add([attempt()])

    assert spool.first() == [message, refused]
    spool.passed()
    assert len(spool.first() or []) == 1
