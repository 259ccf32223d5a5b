"""`tidegate sim`: its options."""

from typing import Annotated, Literal

import typer

from tidegate.cli.listen_address import ListenAddress
from tidegate.cli.options import AsJson, command_group

app = command_group("Simulate Telegram or NocoDB, with limits that count, to test bots against.")

LIMITS, FAULTS, WORLD = "Limits", "Faults", "World"

BotRate = Annotated[
    str,
    typer.Option(metavar="N/SECONDS", rich_help_panel=LIMITS, help="Calls of one bot: 30/1 is 30 a second."),
]
ChatRate = Annotated[
    str,
    typer.Option(metavar="N/SECONDS", rich_help_panel=LIMITS, help="To one private chat: 1/1 is 1 a second."),
]
ChatBurst = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=1,
        max=10_000,
        rich_help_panel=LIMITS,
        help="To one private chat at once, above its rate on average; 1: none.",
    ),
]
GroupRate = Annotated[
    str, typer.Option(metavar="N/SECONDS", rich_help_panel=LIMITS, help="To one group: 20/60 is 20 a minute.")
]
Closes = Annotated[
    Literal["nothing", "chat", "bot"],
    typer.Option(rich_help_panel=LIMITS, help="What a 429 closes until its retry_after has passed."),
]
Escalate = Annotated[
    bool,
    typer.Option("--escalate", rich_help_panel=LIMITS, help="Calls to something closed double the wait."),
]
Edits = Annotated[
    Literal["shared", "separate"],
    typer.Option(rich_help_panel=LIMITS, help="Limits of edits: shared with messages, or separate."),
]
Actions = Annotated[
    Literal["shared", "separate"],
    typer.Option(rich_help_panel=LIMITS, help="Limits of “typing …”: shared with messages, or separate."),
]
HiddenFloods = Annotated[
    str,
    typer.Option(
        metavar="SHARE", rich_help_panel=LIMITS, help="Share of albums' 429s that come as a 400: 1."
    ),
]
Latency = Annotated[
    str,
    typer.Option(
        metavar="MS",
        rich_help_panel=FAULTS,
        help="Each way, in ms: 20, evenly 5-40, or 20~200 (half below 20, 1 % above 200).",
    ),
]
ServerErrors = Annotated[
    str, typer.Option(metavar="SHARE", rich_help_panel=FAULTS, help="Answered 5xx, not accepted: 0.05.")
]
LostAnswers = Annotated[
    str, typer.Option(metavar="SHARE", rich_help_panel=FAULTS, help="Accepted, then cut off: 0.01.")
]
LostRequests = Annotated[
    str, typer.Option(metavar="SHARE", rich_help_panel=FAULTS, help="Cut off before being counted: 0.01.")
]
Silent = Annotated[
    str, typer.Option(metavar="SHARE", rich_help_panel=FAULTS, help="Accepted, never answered: 0.01.")
]
Malformed = Annotated[
    str, typer.Option(metavar="SHARE", rich_help_panel=FAULTS, help="Accepted, answered with broken JSON.")
]
Tokens = Annotated[
    list[str] | None,
    typer.Option(
        "--token", metavar="ID:TEXT", rich_help_panel=WORLD, help="Only this bot exists; repeatable."
    ),
]
ClosedWorld = Annotated[
    bool,
    typer.Option(
        "--closed-world", rich_help_panel=WORLD, help="Only people who wrote first can get messages."
    ),
]
CrowdSize = Annotated[
    int,
    typer.Option(
        "--crowd",
        min=0,
        max=100_000,
        metavar="N",
        rich_help_panel=WORLD,
        help="This many people write to the first bot.",
    ),
]
Seed = Annotated[
    int, typer.Option(metavar="N", rich_help_panel=WORLD, help="The same seed gives the same faults.")
]
Rate = Annotated[
    str,
    typer.Option(
        metavar="N/SECONDS", rich_help_panel=LIMITS, help="Requests of one token: 5/1 is 5 a second."
    ),
]
Block = Annotated[
    str,
    typer.Option(
        metavar="SECONDS",
        rich_help_panel=LIMITS,
        help="Answer only 429 for this long after one request too many; 0: never.",
    ),
]
RetryAfter = Annotated[
    Literal["seconds", "date", "missing"],
    typer.Option(rich_help_panel=LIMITS, help="How a 429 says when to retry, if it does."),
]
RowCount = Annotated[
    int,
    typer.Option(
        "--rows",
        min=0,
        max=100_000,
        metavar="N",
        rich_help_panel=WORLD,
        help="Orders in the table, all unpaid.",
    ),
]
PayEvery = Annotated[
    str,
    typer.Option(metavar="SECONDS", rich_help_panel=WORLD, help="Seconds between two payments; 0: none."),
]
ApiTokens = Annotated[
    list[str] | None,
    typer.Option(
        "--token", metavar="TEXT", rich_help_panel=WORLD, help="Only this token is accepted; repeatable."
    ),
]
Host = Annotated[
    str, typer.Option(metavar="HOST", help="Address to listen on. The control API has no password.")
]
Port = Annotated[int, typer.Option(min=0, max=65_535, metavar="PORT", help="0 takes a free one.")]


@app.command(
    "telegram",
    epilog="[b]Try it:[/b]  tidegate sim telegram --latency 5-40 --lost-answers 0.01"
    "  ·  tidegate sim telegram --chat-rate 3/3 --closes bot --escalate",
)
def simulate_telegram(
    *,
    port: Port = 8081,
    host: Host = "127.0.0.1",
    as_json: AsJson = False,
    bot_rate: BotRate = "30/1",
    chat_rate: ChatRate = "1/1",
    chat_burst: ChatBurst = 25,
    group_rate: GroupRate = "20/60",
    closes: Closes = "chat",
    escalate: Escalate = False,
    edits: Edits = "shared",
    actions: Actions = "separate",
    hidden_floods: HiddenFloods = "0",
    latency: Latency = "0",
    server_errors: ServerErrors = "0",
    lost_answers: LostAnswers = "0",
    lost_requests: LostRequests = "0",
    silent: Silent = "0",
    malformed: Malformed = "0",
    token: Tokens = None,
    closed_world: ClosedWorld = False,
    crowd: CrowdSize = 0,
    seed: Seed = 0,
) -> None:
    """Simulate Telegram until Ctrl-C: point a bot of any library at it.

    aiogram: [cyan]TelegramAPIServer.from_base("http://127.0.0.1:8081")[/cyan]  ·
    python-telegram-bot: [cyan].base_url("http://127.0.0.1:8081/bot")[/cyan] and
    [cyan].base_file_url("http://127.0.0.1:8081/file/bot")[/cyan].
    Shares are between 0 and 1. The counts: GET /sim/report.
    """
    from tidegate.cli.sim import options as sim_options  # noqa: PLC0415  (slow to import)
    from tidegate.cli.sim import telegram as sim_telegram  # noqa: PLC0415  (slow to import)

    sim_telegram.serve(
        ListenAddress(host, port),
        limits=sim_options.limits(
            bot_rate=bot_rate,
            chat_rate=chat_rate,
            chat_burst=chat_burst,
            group_rate=group_rate,
            closes=closes,
            escalate=escalate,
            edits=edits,
            actions=actions,
            hidden_floods=hidden_floods,
        ),
        faults=sim_options.faults(
            latency=latency,
            server_errors=server_errors,
            lost_answers=lost_answers,
            lost_requests=lost_requests,
            silent=silent,
            malformed=malformed,
        ),
        world=sim_options.world(token or [], closed=closed_world),
        crowd=crowd,
        seed=seed,
        as_json=as_json,
    )


@app.command(
    "nocodb",
    epilog="[b]Try it:[/b]  tidegate sim nocodb --rows 300 --pay-every 2"
    "  ·  tidegate sim nocodb --retry-after missing --latency 20~200 --server-errors 0.05",
)
def simulate_nocodb(
    *,
    port: Port = 8082,
    host: Host = "127.0.0.1",
    as_json: AsJson = False,
    rate: Rate = "5/1",
    block: Block = "30",
    retry_after: RetryAfter = "seconds",
    latency: Latency = "0",
    server_errors: ServerErrors = "0",
    lost_answers: LostAnswers = "0",
    lost_requests: LostRequests = "0",
    silent: Silent = "0",
    malformed: Malformed = "0",
    rows: RowCount = 100,
    pay_every: PayEvery = "0",
    token: ApiTokens = None,
    seed: Seed = 0,
) -> None:
    """Simulate NocoDB until Ctrl-C: its records API (v2), its limit, and its quirks.

    There is a table of orders, whose id is shown (OrderId, Title, Email, Amount, Total, State, Paid, PaidAt,
    chat, user_id, username). Paid orders:
    [cyan]curl -H 'xc-token: any' 'http://127.0.0.1:8082/api/v2/tables/ID/records?where=(Paid,checked)'[/cyan].
    Pay by hand: POST /sim/pay. The counts: GET /sim/report. Shares are between 0 and 1.
    """
    from tidegate.cli.sim import nocodb as sim_nocodb  # noqa: PLC0415  (slow to import)
    from tidegate.cli.sim import options as sim_options  # noqa: PLC0415  (slow to import)

    sim_nocodb.serve(
        ListenAddress(host, port),
        limits=sim_nocodb.limits(rate=rate, block=block, retry_after=retry_after),
        faults=sim_options.faults(
            latency=latency,
            server_errors=server_errors,
            lost_answers=lost_answers,
            lost_requests=lost_requests,
            silent=silent,
            malformed=malformed,
        ),
        tokens=token or [],
        rows=rows,
        pay_every=pay_every,
        seed=seed,
        as_json=as_json,
    )
