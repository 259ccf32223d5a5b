"""The clients of a gate: one limiter for an API and token, however they are spelled, also after closing."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tidegate import Tidegate
from tidegate.errors import BadInputError, ClosedError
from tidegate.model import Rate
from tidegate.sim.virtual_time import VirtualClock
from tidegate.upstream.client import UpstreamRegistry, UpstreamTerms
from tidegate.upstream.limiter import MemoryLimiter

URL = "http://nocodb.example:8080"
TOKEN = {"xc-token": "secret-token-123"}
TERMS = UpstreamTerms(Rate(5, 1), 10.0, 30.0)


class Introduced(MemoryLimiter):
    to: tuple[str, float] | None = None

    def configure(self, name: str, longest: float) -> None:
        self.to = name, longest


class Limiters:
    """The limiters that were made."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.apis: list[str] = []

    def make(self, api: str, rate: Rate) -> MemoryLimiter:
        self.apis.append(api)
        self.made = Introduced(rate, self.clock)
        return self.made


@pytest.fixture
async def kept(clock: VirtualClock) -> Limiters:
    return Limiters(clock)


@pytest.fixture
async def clients(clock: VirtualClock, kept: Limiters) -> UpstreamRegistry:
    return UpstreamRegistry(clock, kept.make)


async def test_the_same_is_asked_for_twice_and_given_once(clients: UpstreamRegistry) -> None:
    assert clients.client(URL, TOKEN, TERMS, None) is clients.client(URL + "/", TOKEN, TERMS, None)


@pytest.mark.parametrize(
    ("url", "headers"),
    [
        (URL, {"Xc-Token": "secret-token-123"}),
        (URL.replace("http", "HTTP"), TOKEN),
        (URL.replace("nocodb", "NocoDB"), TOKEN),
        (URL + "/api", TOKEN),
        (URL, {**TOKEN, "User-Agent": "mine", "Accept-Language": "de"}),
    ],
)
async def test_another_spelling_has_the_same_limit(
    clients: UpstreamRegistry, kept: Limiters, url: str, headers: Mapping[str, str]
) -> None:
    clients.client(URL, TOKEN, TERMS, None)
    clients.client(url, headers, TERMS, "other")
    assert len(kept.apis) == 1
    assert "secret" not in kept.apis[0]


@pytest.mark.parametrize(
    ("url", "headers"), [(URL, {"xc-token": "another"}), ("https://nocodb.example:8080", TOKEN), (URL, {})]
)
async def test_another_token_or_host_has_a_limit_of_its_own(
    clients: UpstreamRegistry, kept: Limiters, url: str, headers: Mapping[str, str]
) -> None:
    clients.client(URL, TOKEN, TERMS, None)
    clients.client(url, headers, TERMS, None)
    assert len(set(kept.apis)) == 2


async def test_a_limiter_hears_the_name_and_how_long_a_slot_may_be_held(
    clients: UpstreamRegistry, kept: Limiters
) -> None:
    clients.client(URL, TOKEN, TERMS._replace(timeout=60.0), "NocoDB")
    assert kept.made.to == ("NocoDB", 120.0)


async def test_the_usual_port_may_be_left_out(clients: UpstreamRegistry, kept: Limiters) -> None:
    for url in ("https://crm.example", "https://crm.example:443/v1"):
        clients.client(url, TOKEN, TERMS, None)
    assert len(kept.apis) == 1


@pytest.mark.parametrize(
    "terms",
    [TERMS._replace(rate=Rate(1, 60)), TERMS._replace(timeout=1.0), TERMS._replace(lockout=5.0)],
)
async def test_other_terms_for_the_same_api_are_not_ignored(
    clients: UpstreamRegistry, terms: UpstreamTerms
) -> None:
    clients.client(URL, TOKEN, TERMS, None)
    with pytest.raises(BadInputError, match="give the same everywhere") as caught:
        clients.client(URL + "/api", TOKEN, terms, None)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "ask",
    [
        lambda gate: gate.nocodb(URL, None),
        lambda gate: gate.nocodb(None, "token"),
        lambda gate: gate.upstream(None),
        lambda gate: gate.upstream(URL, headers={"a": None}),
        lambda gate: gate.upstream(URL, headers={"a": 5}),
        lambda gate: gate.upstream(URL, rate="5/1"),
        lambda gate: gate.upstream(URL, rate=Rate(0, 1)),
    ],
)
async def test_a_gate_refuses_what_is_no_api(clock: VirtualClock, ask: Callable[[Any], object]) -> None:
    gate = Tidegate("memory://", clock=clock)
    with pytest.raises(BadInputError):
        ask(gate)


async def test_a_lockout_outlives_the_closing_of_the_gate(clock: VirtualClock) -> None:
    gate = Tidegate("memory://", clock=clock)
    async with gate:
        before = gate.upstream(URL, headers=TOKEN)
        await before._limiter.close_for(30, refused=True)  # noqa: SLF001  (as a 429 would)
        assert gate.nocodb(URL, "secret-token-123").upstream.closed_for == 30
    async with gate:
        again = gate.upstream(URL, headers=TOKEN)
        assert (again.closed_for, again.rate) == (30, Rate(4, 1))
        with pytest.raises(ClosedError, match=r"make a new one \(gate.upstream"):
            await before.read("records")
