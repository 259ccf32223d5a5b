"""An operator looks into a queue and takes hold of it, while a worker delivers from it."""

import asyncio
import json
import os
import re
import select
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import count
from pathlib import Path

import pytest

import fork_server
from system.operators import PATIENCE, Desk, environment, running, telegram
from tidegate import Tidegate
from tidegate.clock import Clock
from tidegate.model import BotId, Refused, Settlement, TicketId

chats = count(1_000_001)  # each test has chats of its own: they share a Telegram
FAR = Clock().now() + 300 * 86_400  # about as late as a message may be sent


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with telegram() as url:
        yield url


@pytest.fixture
def desk(tmp_path: Path, address: str) -> Desk:
    desk = Desk(tmp_path, address)
    desk.begin()
    return desk


def end_of(desk: Desk, ticket: str) -> str:
    """Waits for it, in a process that does not send."""

    async def wait(gate: Tidegate) -> str:
        async with Clock().timeout(PATIENCE):
            return (await gate.outbox.settled(TicketId(ticket))).state

    return desk.within(wait)


def bury(desk: Desk, *blocked: int) -> list[str]:
    """Dead letters: these people have blocked the bot."""
    for chat in blocked:
        desk.say_to_telegram("block", bot=42, user=chat)
    tickets = desk.put(*blocked)
    desk.deliver_all()
    return tickets


def test_what_is_paused_stays_and_goes_on_when_resumed(desk: Desk) -> None:
    held, free = next(chats), next(chats)
    with desk.worker() as worker:
        assert desk.told("queue", "pause", "--bot", "42", "--chat", str(held)) == {
            "paused": [{"bot": 42, "chat_id": held}]
        }
        waits, goes = desk.put(held, free)
        assert end_of(desk, goes) == "delivered"

        why = desk.told("queue", "why", waits)
        stats = desk.told("queue", "stats")
        assert (why["state"], why["waits_for"], why["expected_in"]) == (
            "queued",
            ["its chat is paused"],
            None,
        )
        assert stats["sender"]["pid"] == worker.pid
        assert stats["paused"] == [{"bot": 42, "chat_id": held}]
        assert (stats["stats"]["normal"], stats["total_queued"], stats["delivered"]) == (1, 1, 1)
        assert desk.arrived(held) == 0

        desk.told("queue", "resume", "--chat", str(held))
        assert end_of(desk, waits) == "delivered"
    assert (desk.arrived(held), desk.arrived(free)) == (1, 1)


def test_resume_names_what_another_pause_still_holds(desk: Desk) -> None:
    held = next(chats)
    desk.put(held)
    desk.told("queue", "pause", "--chat", str(held))
    desk.told("queue", "pause")

    assert desk.told("queue", "resume") == {
        "resumed": [{"bot": 42, "chat_id": None}],
        "still_paused": [{"bot": 42, "chat_id": held}],
    }
    _, shown, _ = desk.quickly("queue", "resume")
    assert f"Still paused: bot 42, chat {held}: tidegate queue resume --bot 42 --chat {held}\n" in shown
    desk.told("queue", "pause")
    assert desk.told("queue", "resume", "--chat", str(held))["still_paused"] == [{"bot": 42, "chat_id": None}]
    assert desk.told("queue", "resume")["still_paused"] == []


def test_what_is_cancelled_never_leaves(desk: Desk) -> None:
    named, swept, kept = next(chats), next(chats), next(chats)
    with desk.worker():
        desk.told("queue", "pause")
        [one], [two, three], [last] = desk.put(named), desk.put(swept, swept), desk.put(kept)

        assert desk.told("queue", "cancel", one) == {"cancelled": 1, "not_cancelled": 0}
        assert "2 messages? Not a terminal: pass --yes" in desk.complains(
            "queue", "cancel", "--chat", str(swept)
        )
        assert desk.told("queue", "cancel", "--chat", str(swept), "--yes")["cancelled"] == 2
        code, said, _ = desk.quickly("queue", "cancel", one)
        assert (code, "1 message no longer waited" in said) == (1, True)

        desk.told("queue", "resume")
        assert end_of(desk, last) == "delivered"
    listed = desk.told("queue", "list", "--state", "cancelled")
    assert {message["id"] for message in listed["messages"]} == {one, two, three}
    assert (desk.arrived(named), desk.arrived(swept), desk.arrived(kept)) == (0, 0, 1)


def test_a_message_gets_another_priority_while_a_worker_runs(desk: Desk) -> None:
    chat = next(chats)
    with desk.worker():
        desk.told("queue", "pause")
        [first, second] = desk.put(chat, chat)

        assert desk.told("queue", "priority", second, "high") == {
            "id": second,
            "priority": "high",
            "changed": True,
        }
        stats = desk.told("queue", "stats")
        assert (stats["stats"]["high"], stats["stats"]["normal"]) == (1, 1)
        assert 0 <= stats["oldest_seconds"] < 60
        assert stats["by_bot"][0]["high"] == 1
        desk.told("queue", "resume")
        assert end_of(desk, first) == end_of(desk, second) == "delivered"
    assert desk.arrived(chat) == 2
    code, said, _ = desk.quickly("queue", "priority", second, "low")
    assert (code, "does not wait" in said) == (1, True)
    desk.complains("queue", "priority", second, "highest")


def test_a_dead_letter_is_found_replayed_and_delivered(desk: Desk) -> None:
    chat, other = next(chats), next(chats)
    first, second = bury(desk, chat, other)

    assert desk.told("dlq", "list", "--reason", "attempts") == {"messages": [], "more": False}
    found = desk.told("dlq", "list", "--reason", "blocked", "--chat", str(chat))["messages"]
    assert [letter["id"] for letter in found] == [first]
    assert "blocked by the user" in desk.run("dlq", "show", first).stdout
    assert f"dlq replay {first}" in desk.quickly("queue", "why", first)[1]

    desk.say_to_telegram("block", bot=42, user=chat, blocked=False)
    with desk.worker():
        assert desk.told("dlq", "replay", first) == {"replayed": 1}
        assert end_of(desk, first) == "delivered"
        assert desk.told("dlq", "replay", "--all") == {"replayed": 1}  # and dies again
        assert end_of(desk, second) == "dead"
    assert "is delivered: only dead and parked ones" in desk.complains("dlq", "replay", first)


def test_a_person_is_asked_before_letters_are_destroyed(desk: Desk) -> None:
    bury(desk, next(chats))

    assert "pass --yes" in desk.complains("dlq", "drop", "--all")
    no, refused = in_a_terminal(desk, "n", "dlq", "drop", "--all")
    assert desk.told("queue", "stats")["dead"] == 1
    yes, dropped = in_a_terminal(desk, "y", "dlq", "drop", "--all")

    assert (no, yes) == (1, 0)
    assert "Drop 1 letter for good?" in refused
    assert "aborted" in refused
    assert "Dropped 1 letter." in dropped
    assert desk.told("queue", "stats")["dead"] == 0


def test_ctrl_c_at_a_question_ends_with_130_and_changes_nothing(desk: Desk) -> None:
    bury(desk, next(chats))

    code, shown = in_a_terminal(desk, None, "dlq", "drop", "--all")

    assert code == 130
    assert "Traceback" not in shown
    assert desk.told("queue", "stats")["dead"] == 1


def in_a_terminal(desk: Desk, answer: str | None, *arguments: str) -> tuple[int, str]:
    """The exit code, and what a person sees. Without an answer, Ctrl-C is pressed."""
    ours, theirs = os.openpty()
    shown = b""
    with running(*arguments, folder=desk.folder, terminal=theirs) as process:
        os.close(theirs)
        with suppress(OSError):  # Linux says so where the other end is closed
            while piece := os.read(ours, 65_536):
                shown += piece
                if not shown.endswith(b"[y/N]: "):
                    continue
                if answer is None:
                    press_ctrl_c(process, ours)
                else:
                    os.write(ours, answer.encode() + b"\n")
        os.close(ours)
        code = process.wait(PATIENCE)
    return code, shown.decode()


def press_ctrl_c(process: subprocess.Popen[str], terminal: int) -> None:
    """Until something happens, as a person does.

    A signal that comes after the question is shown and before Python waits for the
    answer is noted, and then the wait begins all the same.
    """
    happened = False
    while not happened:
        process.send_signal(signal.SIGINT)
        happened = bool(select.select([terminal], [], [], 3)[0])


def test_without_a_sender_that_is_the_first_reason(desk: Desk) -> None:
    [ticket] = desk.put(next(chats), not_before=FAR)
    desk.told("queue", "pause")

    why = desk.told("queue", "why", ticket)

    assert why["waits_for"][0].startswith("nobody sends: start a worker")
    assert "its bot is paused" in why["waits_for"]
    assert why["expected_in"] is None
    assert "none runs, so nothing is sent" in desk.quickly("queue", "stats")[1]


def test_everything_about_a_chat_is_erased(desk: Desk) -> None:
    group, other = -1_000_000_000_000 - next(chats), next(chats)
    desk.put(group, other)
    desk.deliver_all()
    desk.put(group, not_before=FAR)

    assert f"Erase 2 messages to {group} for good" in desk.complains("forget", str(group))
    erased = desk.run("forget", str(group), "--yes")

    assert "Erased 2 messages" in erased.stdout
    assert "Backups are unchanged" in erased.stdout
    assert desk.told("queue", "list", "--chat", str(group), "--state", "any")["messages"] == []
    assert len(desk.told("queue", "list", "--state", "any")["messages"]) == 1
    for file in desk.folder.iterdir():
        assert f"to {group}".encode() not in file.read_bytes(), file.name


def test_lists_say_what_there_is_and_that_there_is_more(desk: Desk) -> None:
    people = [next(chats) for _ in range(3)]
    tickets = desk.put(*people, not_before=FAR, priority="low")

    shown = desk.quickly("queue", "list", "--limit", "2")[1]
    listed = desk.told("queue", "list", "--limit", "3")
    one = desk.quickly("queue", "show", tickets[0])[1]

    assert tickets[0] in shown
    assert tickets[2] not in shown
    assert "for more: --limit" in shown
    assert [message["id"] for message in listed["messages"]] == tickets
    assert not listed["more"]
    assert "low" in one
    assert f"to {people[0]}" in one
    assert "For messages that ended: --state any" in desk.quickly("queue", "list", "--chat", "5")[1]


def killed_while_sending(desk: Desk, *chats: int, damaged: bool = False) -> list[str]:
    """Messages that a sender, another process, had claimed when it was killed."""
    tickets = desk.put(*chats)
    claiming = f"""
import asyncio, os, signal, sys
from tidegate import Tidegate

async def main():
    async with Tidegate(sys.argv[1]) as gate:
        claimed = 0
        while claimed < {len(chats)}:
            claimed += len(await gate.outbox.claim(10))
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""
    ran = fork_server.run(
        [sys.executable, "-c", claiming, str(desk.store)], check=False, timeout=PATIENCE, env=environment()
    )
    assert ran.returncode == -signal.SIGKILL
    if damaged:
        with closing(sqlite3.connect(desk.store)) as file, file:
            file.execute("UPDATE messages SET body = x'c1' WHERE state = 'sending'")
    return tickets


def test_what_a_killed_sender_was_sending_can_be_cancelled_and_forgotten(desk: Desk) -> None:
    cancelled, forgotten = next(chats), next(chats)
    [ticket, other] = killed_while_sending(desk, cancelled, forgotten)
    assert desk.told("queue", "stats")["sending"] == 2

    assert desk.told("forget", str(forgotten), "--yes")["erased"] == 1
    assert desk.told("queue", "cancel", "--all", "--yes")["cancelled"] == 1

    assert desk.told("queue", "show", ticket)["state"] == "cancelled"
    assert "is not known here" in desk.complains("queue", "show", other)
    assert desk.told("queue", "stats")["sending"] == 0


def test_a_damaged_message_of_a_killed_sender_is_shown_with_its_bytes_and_dropped(desk: Desk) -> None:
    [ticket] = killed_while_sending(desk, next(chats), damaged=True)

    complaint = desk.complains("dlq", "replay", ticket)
    assert "cannot be replayed: its body of 1 bytes cannot be decoded" in complaint
    assert f"tidegate dlq drop {ticket}" in complaint

    [listed] = desk.told("dlq", "list", "--reason", "unreadable")["messages"]
    shown = desk.told("dlq", "show", ticket)
    assert (listed["id"], shown["state"], shown["reason"]) == (ticket, "dead", "unreadable")
    assert (shown["size"], shown["body"], shown["encoding"]) == (1, "wQ==", "base64")
    code, out, _ = desk.quickly("dlq", "show", ticket)
    assert (code, "cannot be decoded" in out) == (0, True)
    assert out.splitlines()[-3:] == ["body, 1 bytes, begins", r"  b'\xc1'", "  c1"]
    code, _, err = desk.quickly("dlq", "replay", "--all")
    assert (code, "1 letter cannot be decoded" in err) == (0, True)
    assert desk.told("dlq", "drop", "--all", "--yes") == {"dropped": 1}


def test_health_readyz_doctor_and_stats_say_in_the_same_words_that_a_429_closed_a_bot(desk: Desk) -> None:
    async def be_refused(gate: Tidegate) -> list[list[str]]:
        await gate.outbox.start_sending()
        for turn in [await gate.outbox.turn(BotId(42), next(chats), "action", 1) for _ in range(2)]:
            await gate.outbox.end_turn(turn, Refused(3600.0))
        stats = await asyncio.to_thread(desk.told, "queue", "stats")
        doctor = await asyncio.to_thread(desk.run, "doctor", "--json")
        [sender] = [check for check in json.loads(doctor.stdout)["checks"] if check["name"] == "sender"]
        assert (gate.health().ready, stats["health"]["ready"], sender["state"]) == (True, True, "info")
        return [
            list(gate.health().reasons),
            list(gate.core.handlers.notes()),
            stats["health"]["reasons"],
            [sender["advice"]],
        ]

    told = desk.within(be_refused)

    words = {re.sub(r"\d+ s", "… s", reason) for reasons in told for reason in reasons}
    [said] = words
    assert said == (
        "bot 42 is closed by a 429 for another … s, and sends nothing until then:"
        " tidegate limits open --bot 42 ends that"
    )
    desk.told("limits", "open", "--bot", "42")


def test_what_a_429_closed_for_long_is_listed_and_opened_by_a_command(desk: Desk) -> None:
    chat = next(chats)

    async def be_refused(gate: Tidegate) -> None:
        await gate.send(chat_id=chat, text="too much")
        [claim] = await gate.outbox.claim(1)
        await gate.outbox.settle([Settlement(claim, Refused(3000.0))])

    assert desk.told("limits", "list")["limits"] == []
    desk.within(be_refused)
    [closed] = desk.told("limits", "list")["limits"]
    assert (closed["bot"], closed["chat_id"]) == (42, chat)
    assert 2900 < closed["closed_for"] <= 3000
    assert f"bot 42, chat {chat}: closed by a 429 for" in desk.quickly("limits", "list")[1]

    assert desk.told("limits", "open", "--chat", str(chat)) == {"opened": [{"bot": 42, "chat_id": chat}]}

    assert [state["closed_for"] for state in desk.told("limits", "list")["limits"]] in ([], [0.0])
    assert desk.told("limits", "open", "--bot", "43")["opened"] == []
