"""The conversation, as data. `tidegate flow preview repair_bot.flow:REPAIR` plays it.

It shows a photo, lists workshops a page at a time, takes a photo, and calls a flow that asks for a number.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tidegate import Flow, FlowBuilder, FlowEvent

WORKSHOP: Final = Path(__file__).with_name("workshop.png")
DAY: Final = 86_400.0


def contact_flow() -> Flow:
    """Ask for the user's own number. It ends in `known` with `phone_number`, or in `refused`."""
    flow = FlowBuilder("contact", given=("user_id",), otherwise="Please press the key, or write /skip.")
    flow.command("/skip", to="refused")
    asking = flow.state("number", say="Which number shall we call? Press the key below, or write /skip.")
    asking.key("📱 Send my number", request="contact", to="known", guard="is_own", save=("phone_number",))
    flow.final("known", say="Thank you.")
    flow.final("refused", say="Then we write to you here.")

    @flow.guard
    def is_own(data: Mapping[str, Any], event: FlowEvent) -> bool:
        """A user may share the contact of anybody."""
        value = getattr(event, "value", None) or {}
        return bool(value.get("user_id") == data["user_id"])

    return flow.build()


def repair_flow() -> Flow:
    flow = FlowBuilder("repair", lifetime=DAY, in_place=True, given=("user_id", "first_name"))
    flow.command("/start", to="welcome").command("/cancel", to="cancelled")

    welcome = flow.state("welcome", say="Hello {first_name}! We mend bicycles.").photo(WORKSHOP)
    welcome.button("🔧 Report a damage", to="looking")

    # The bot gives the function under the name of the work.
    looking = flow.state("looking", otherwise="One moment, please.")
    looking.run("find_workshops", done="workshops", failed="sorry", save=("workshops",))

    workshops = flow.state("workshops", say="Which workshop?").photo(WORKSHOP)
    workshops.choose(
        "workshops", to="damage", text="{workshop}, {street}", save=("workshop", "street"), page=5
    )

    damage = flow.state("damage", say="Send me a photo of the damage.", otherwise="A photo, please.")
    damage.on("photo", to="number", save=("file_id",))

    number = flow.state("number").call(contact_flow(), to="sure", save=("phone_number",))
    number.on("ended:refused", to="sure")

    sure = flow.state("sure", say="{workshop}, {street}. Your number: {phone_number}").photo(id="{file_id}")
    sure.button("✅ Send it", to="sending").button("Another workshop", to="looking", beside=True)

    sending = flow.state("sending", otherwise="One moment, please.")
    sending.run("report", done="reported", failed="sorry", save=("ticket",))

    flow.final("reported", say="Report {ticket} is at {workshop}. They will get in touch.", in_place=False)
    flow.final("sorry", say="That did not work. Please try again later: /start")
    flow.final("cancelled", say="Cancelled.")
    return flow.build()


REPAIR: Final = repair_flow()
