"""A process whose metrics are shared by PROMETHEUS_MULTIPROC_DIR. Each line of its input is a command.

A number: so many messages are delivered. `ask`: print the metrics as one line of JSON.
"""

import asyncio
import json
import sys

from tidegate import Tidegate
from tidegate.events import Attempted
from tidegate.model import BotId, Claim, Delivered, Message, TicketId
from tidegate.ops import metrics as ops_metrics
from tidegate.ops.metrics import Metrics
from tidegate.ops.metrics_text import render_metrics

SENT = Message(id=TicketId("t"), bot=BotId(1), chat_id=1, method="sendMessage", params={})


async def main() -> None:
    ops_metrics.SHARED_EVERY = 0.02  # type: ignore[misc]  # a test waits for it
    gate = Tidegate("memory://")
    gate.add_bot("1:token")
    metrics = Metrics(gate)
    async with gate:
        await gate.send_many({"chat_id": chat, "text": "waits"} for chat in (1, 2))
        metrics.start()
        while command := (await asyncio.to_thread(sys.stdin.readline)).strip():
            if command == "ask":
                text = (await render_metrics(metrics))[1].decode()
                print(json.dumps(text), flush=True)  # noqa: T201
            else:
                for _ in range(int(command)):
                    gate.core.events.publish(Attempted(Claim(SENT, 1, 1), Delivered(None), 0.03))
        await metrics.stop()


asyncio.run(main())
