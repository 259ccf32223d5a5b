"""What is said of a block of the loop: the line that caused it, or that no line did."""

import msgspec

from tidegate.call_stack import StackReading
from tidegate.ops.loop_block import GcPause, LoopBlock, describe_block, spoken

PAY = StackReading(
    place="bot/pay.py:42",
    function="charge",
    call="requests.post",
    handler="on_pay",
    chat=1001,
    lines=("bot/pay.py:40 on_pay", "bot/pay.py:42 charge"),
    step=1,
)
OTHER = msgspec.structs.replace(PAY, place="bot/db.py:7", call="cursor.execute")


def test_the_line_names_place_call_handler_and_chat() -> None:
    incident = describe_block(LoopBlock(seconds=0.4, samples=[PAY, PAY]))
    assert incident.text == "loop blocked 0.4 s in bot/pay.py:42 requests.post, handler on_pay, chat 1001"
    assert incident.group == "loop_blocked bot/pay.py:42"
    assert (incident.place, incident.handler, incident.chat) == ("bot/pay.py:42", "on_pay", 1001)
    assert incident.stack == PAY.lines


def test_the_place_that_was_seen_most_is_named() -> None:
    incident = describe_block(LoopBlock(seconds=0.4, samples=[OTHER, PAY, PAY]))
    assert incident.place == "bot/pay.py:42"


def test_what_is_not_known_is_left_out() -> None:
    bare = StackReading(place="bot/pay.py:42", step=1)
    assert (
        describe_block(LoopBlock(seconds=0.4, samples=[bare])).text == "loop blocked 0.4 s in bot/pay.py:42"
    )


def test_a_block_that_is_not_over_says_so() -> None:
    incident = describe_block(LoopBlock(seconds=2.04, samples=[PAY], is_over=False))
    assert incident.text.startswith("loop blocked 2 s so far, and still in bot/pay.py:42")


def test_a_garbage_collection_is_blamed_on_no_line() -> None:
    pauses = [GcPause(10.0, 10.3, 2)]
    incident = describe_block(LoopBlock(seconds=0.4, samples=[PAY], collections=pauses))
    assert incident.text == "loop blocked 0.4 s by garbage collection, generation 2"
    assert incident.place is None


def test_a_short_collection_within_a_long_block_is_not_its_cause() -> None:
    pauses = [GcPause(10.0, 10.05, 2)]
    assert describe_block(LoopBlock(seconds=0.4, samples=[PAY], collections=pauses)).place == "bot/pay.py:42"


def test_a_suspended_machine_is_blamed_on_no_handler() -> None:
    incident = describe_block(LoopBlock(seconds=60.0, samples=[PAY], overslept=59.8, cpu=0.01))
    assert "by a machine that gave the process no CPU" in incident.text
    assert incident.handler is None


def test_computing_that_keeps_the_watching_thread_waiting_is_no_lack_of_cpu() -> None:
    incident = describe_block(LoopBlock(seconds=0.5, samples=[PAY], overslept=0.4, cpu=0.5))
    assert incident.text == "loop blocked 0.5 s in bot/pay.py:42 requests.post, handler on_pay, chat 1001"


def test_a_busy_machine_is_told_beside_the_line() -> None:
    incident = describe_block(LoopBlock(seconds=1.0, samples=[PAY], overslept=0.6, cpu=0.25))
    assert incident.text.endswith("chat 1001, of which the process had no CPU for 0.35 s")


def test_another_thread_with_the_interpreter_lock_is_told() -> None:
    waiting = StackReading()
    thread = StackReading(place="bot/report.py:3", call="render")
    block = LoopBlock(seconds=0.3, samples=[waiting, waiting], overslept=0.2, cpu=0.3, other=thread)
    assert describe_block(block).text == (
        "loop blocked 0.3 s by another thread that keeps the interpreter lock,"
        " perhaps in bot/report.py:3 render"
    )


def test_a_block_without_a_sample_is_told_all_the_same() -> None:
    incident = describe_block(LoopBlock(seconds=0.2, cpu=0.2))
    assert incident.text == "loop blocked 0.2 s at a place that was not seen"


def test_many_steps_are_blamed_together() -> None:
    samples = [msgspec.structs.replace(PAY, step=step) for step in range(5)]
    incident = describe_block(LoopBlock(seconds=0.5, samples=samples))
    assert "by many short steps, most often in bot/pay.py:42" in incident.text


def test_lengths_have_two_digits() -> None:
    assert [spoken(seconds) for seconds in (0.154, 2.06, 41.7)] == ["0.15 s", "2.1 s", "42 s"]


def test_a_task_that_is_no_handler_is_named_by_its_outermost_function() -> None:
    sample = StackReading(
        place="bot/rates.py:9", function="fetch", call="time.sleep", outer="refresh", step=1
    )
    text = describe_block(LoopBlock(seconds=0.4, samples=[sample])).text
    assert text == "loop blocked 0.4 s in bot/rates.py:9 time.sleep, called from refresh"


def test_a_loop_that_waits_for_the_interpreter_lock_is_not_blamed_for_the_line_at_which_it_waits() -> None:
    block = LoopBlock(seconds=0.5, samples=[PAY], overslept=0.4, cpu=0.5, loop_cpu=0.01)
    assert (
        describe_block(block).text == "loop blocked 0.5 s by another thread that keeps the interpreter lock"
    )
