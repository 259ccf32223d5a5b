"""Pages of broadcasts: what they show to whom, and that a preview sends nothing."""

import pytest

from api_caller import Answer
from tidegate.model import State
from unit.ops.api.service import BOT, OTHER_BOT, SECRET_TEXT, Service, problem

PREVIEW = "/api/v1/broadcasts/preview"
EVIL = "<script>alert(1)</script>"


def page(answer: Answer) -> str:
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    return answer.body.decode()


async def missed(service: Service, *, count: int = 3) -> str:
    """A broadcast whose messages are cancelled but for one, which died of a word from Telegram."""
    name = "sale"
    await service.gate.outbox.pause(BOT)
    await service.gate.start_broadcast(name, list(range(1, count + 1)), SECRET_TEXT, bot=BOT)
    await service.gate.clock.sleep(5)
    await service.gate.cancel_campaign(name, bot=BOT)
    return name


async def test_no_broadcast_yet_teaches_what_one_is(service: Service) -> None:
    shown = page(await service.viewer.get("/broadcasts"))
    assert "No broadcast yet" in shown
    assert "/broadcasts/new" not in shown
    assert "/broadcasts/new" in page(await service.operator.get("/broadcasts"))


async def test_broadcasts_are_listed_with_what_operators_can_do(service: Service) -> None:
    name = await service.put_broadcast()

    by_operator, by_viewer = [
        page(await caller.get("/broadcasts")) for caller in (service.operator, service.viewer)
    ]

    assert f'href="/broadcasts/{name}?bot={BOT}"' in by_operator
    assert f"/api/v1/broadcasts/{name}/cancel?bot={BOT}" in by_operator
    assert "data-confirm" in by_operator
    assert f'href="/broadcasts/{name}?bot={BOT}"' in by_viewer
    assert "data-action" not in by_viewer.partition("<main")[2]


async def test_a_broadcast_of_a_paused_bot_was_said_to_end_in_a_moment(service: Service) -> None:
    await service.gate.outbox.pause(BOT)
    await service.gate.start_broadcast("sale", [1, 2, 3], "Hello", bot=BOT)
    await service.gate.clock.sleep(5)
    shown, listed = [page(await service.viewer.get(path)) for path in ("/broadcasts/sale", "/broadcasts")]
    assert "is paused. Nothing of the broadcast leaves until that is over." in shown
    assert "The last message leaves" not in shown
    assert "bot is paused" in listed

    await service.gate.outbox.resume(BOT)
    await service.gate.clock.sleep(1)
    assert "is paused" not in page(await service.viewer.get("/broadcasts/sale"))


async def test_a_viewer_sees_no_text_of_a_broadcast(service: Service) -> None:
    name = await service.put_broadcast()
    for path in ("/broadcasts", f"/broadcasts/{name}"):
        assert SECRET_TEXT not in page(await service.viewer.get(path))


async def test_a_token_of_another_bot_finds_no_broadcast_of_this_one(service: Service) -> None:
    name = await service.put_broadcast()
    other = await service.caller("admin", OTHER_BOT)

    assert name not in page(await other.get("/broadcasts"))
    assert (await other.get(f"/broadcasts/{name}")).status == 404
    assert (await other.get(f"/broadcasts/{name}?bot={BOT}")).status == 403


async def test_who_was_not_reached_is_listed_and_downloaded(service: Service) -> None:
    name = await missed(service)

    shown = page(await service.operator.get(f"/broadcasts/{name}"))
    listed = (await service.operator.get(f"/api/v1/broadcasts/{name}/missed")).json
    file = await service.operator.get(f"/api/v1/broadcasts/{name}/missed.csv")

    assert "Who was not reached" in shown
    assert f"/api/v1/broadcasts/{name}/missed.csv?bot={BOT}" in shown
    assert {(one["chat_id"], one["state"]) for one in listed["items"]} == {
        (chat, State.CANCELLED) for chat in (1, 2, 3)
    }
    header, *lines = file.body.decode().splitlines()
    assert header == "chat_id,state,reason,ended_at,description"
    assert sorted(line.partition(",")[0] for line in lines) == ["1", "2", "3"]
    assert file.headers["content-disposition"] == 'attachment; filename="sale-not-reached.csv"'


async def test_what_telegram_said_is_hidden_from_viewers(service: Service) -> None:
    name = await missed(service)
    listed = (await service.viewer.get(f"/api/v1/broadcasts/{name}/missed")).json
    file = (await service.viewer.get(f"/api/v1/broadcasts/{name}/missed.csv")).body.decode()

    assert all(one["description"] is None for one in listed["items"])
    assert file.splitlines()[0] == "chat_id,state,reason,ended_at"


async def test_pages_of_who_was_not_reached_have_everybody_once(service: Service) -> None:
    name = await missed(service, count=7)
    found, cursor = list[int](), ""
    while True:
        answer = await service.viewer.get(f"/api/v1/broadcasts/{name}/missed?limit=3{cursor}")
        found += [one["chat_id"] for one in answer.json["items"]]
        if answer.json["next_cursor"] is None:
            break
        cursor = f"&cursor={answer.json['next_cursor']}"
    assert sorted(found) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    "path",
    [
        "/broadcasts?bot=x",
        "/broadcasts/none",
        "/broadcasts/none?bot=-1",
        "/broadcasts/%00%ff",
        "/broadcasts/sale-1?cursor=nonsense",
        "/broadcasts/%3Cimg src=x%3E",
    ],
)
async def test_bad_input_gives_a_page_with_a_sentence(service: Service, path: str) -> None:
    await service.put_broadcast()
    answer = await service.admin.get(path)
    assert answer.status in {404, 422}
    assert 'role="alert"' in page(answer)
    assert "<img" not in page(answer)


async def test_hostile_texts_are_escaped(service: Service) -> None:
    await service.gate.outbox.pause(BOT)
    await service.gate.start_broadcast("evil", [1, 2], EVIL, bot=BOT)
    assert EVIL not in page(await service.operator.get("/broadcasts/evil"))
    assert EVIL not in page(await service.operator.get("/broadcasts"))


async def test_only_operators_may_begin_one(service: Service) -> None:
    assert (await service.viewer.get("/broadcasts/new")).status == 403
    form = page(await service.operator.get("/broadcasts/new"))
    assert 'name="audience"' in form
    assert "broadcast.js" in form


async def test_a_preview_fills_in_the_first_rows_and_sends_nothing(service: Service) -> None:
    content = "chat_id,name\n1,Ada\n2,Bob & <Co>\n"
    draft = {"bot": BOT, "content": content, "text": "Hi {name}", "parse_mode": "HTML"}

    seen = (await service.operator.post(PREVIEW, draft)).json

    assert seen["messages"] == [
        {"line": 2, "chat_id": 1, "text": "Hi Ada"},
        {"line": 3, "chat_id": 2, "text": "Hi Bob &amp; &lt;Co&gt;"},
    ]
    assert (seen["good"], seen["bad"], seen["errors"]) == (2, 0, [])
    assert await service.gate.campaigns() == []
    assert (await service.gate.stats()).waiting == 0


async def test_bad_rows_are_named_by_line(service: Service) -> None:
    content = "chat_id,name\n1,Ada\nzero,Bob\n3,\n1,Again\n"

    seen = (await service.operator.post(PREVIEW, {"bot": BOT, "content": content, "text": "Hi {name}"})).json

    assert (seen["good"], seen["bad"]) == (1, 3)
    assert [one["line"] for one in seen["errors"]] == [3, 4, 5]
    assert "name is empty" in seen["errors"][1]["detail"]


async def test_a_chat_in_each_line_needs_no_header(service: Service) -> None:
    draft = {"bot": BOT, "content": "1001\n\n@channel\n-100200\n", "text": "Hi"}
    seen = (await service.operator.post(PREVIEW, draft)).json
    assert [(one["line"], one["chat_id"]) for one in seen["messages"]] == [
        (1, 1001),
        (3, "@channel"),
        (4, -100200),
    ]


async def test_the_forecast_counts_the_rows_of_the_whole_file(service: Service) -> None:
    draft = {"bot": BOT, "content": "1\n2\n3", "text": "Hi", "is_whole": False, "rows": 2000}

    seen = (await service.operator.post(PREVIEW, draft)).json

    assert seen["good"] == 2  # the last line may be cut off
    expected = await service.gate.forecast(2000, bot=BOT)
    assert seen["forecast"] == {
        "messages": 2000,
        "per_second": 30.0,
        "seconds": expected.seconds,
        "ends_at": expected.ends_at,
    }
    assert 66 < expected.seconds < 75


@pytest.mark.parametrize(
    ("draft", "told"),
    [
        ({"content": "name\nAda\n", "text": "Hi"}, "there is no column 'chat_id'"),
        ({"content": "1\n2\n", "text": "Hi {name}"}, "there is no column 'name'"),
        ({"content": "1\n", "text": "Hi {"}, "the template has a single {"),
        ({"content": "1\n"}, "there is no column 'text'"),
        ({"content": "   \n", "text": "Hi"}, "is empty"),
        ({"content": "\ud800\n", "text": "Hi"}, ""),
    ],
)
async def test_what_is_useless_as_a_whole_is_a_problem(
    service: Service, draft: dict[str, str], told: str
) -> None:
    if "\ud800" in draft["content"]:
        answer = await service.operator.call(
            "POST",
            PREVIEW,
            content=b'{"bot": %d, "text": "Hi", "content": "\\ud800\\n"}' % BOT,
            headers={"content-type": "application/json"},
        )
        assert answer.status in {400, 422}
        return
    status, _, detail = problem(await service.operator.post(PREVIEW, {"bot": BOT, **draft}))
    assert status == 422
    assert told in detail
