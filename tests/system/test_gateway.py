"""`tidegate gateway` as a process of its own, before a Telegram that counts, with real sockets."""

import asyncio
import http.client
import json
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

import pytest

import fork_server
from system.operators import PATIENCE, TIDEGATE, TOKEN, environment, nothing_set, run_here, telegram
from system.service_process import wait_until
from tidegate import Tidegate
from tidegate.clock import Clock

STORE = "gateway.db"
BROKEN_BOT, AWAY_BOT = "43:hush-broken", "44:hush-away"
CLOCK = Clock()
STALL = 0.3  # seconds after which the gateway of these tests cuts a slow client off
BOUNDARY = "------a-boundary"
chats = count(1_000_001)  # each test has chats of its own: they share a Telegram


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401
        return json.loads(self.body)


class GatewayProcess:
    """A gateway, what it says, and requests to it."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.said: list[str] = []
        self._is_ready = threading.Event()
        self.port = self.health_port = 0
        self._readers = [
            threading.Thread(target=self._read, args=(stream,), daemon=True)
            for stream in (process.stdout, process.stderr)
        ]
        for reader in self._readers:
            reader.start()
        assert self._is_ready.wait(3 * PATIENCE), self.said

    def _read(self, stream: Any) -> None:  # noqa: ANN401  (a pipe)
        for line in stream:
            self.said.append(line)
            if (found := re.search(r"health: http://127\.0\.0\.1:(\d+)/", line)) is not None:
                self.health_port = int(found[1])
            if (found := re.search(r"^Gateway +http://127\.0\.0\.1:(\d+)", line)) is not None:
                self.port = int(found[1])
                self._is_ready.set()
        self._is_ready.set()

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)

    def ask(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        token: str = TOKEN,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        with closing(self.connect()) as connection:
            return asked(connection, f"/bot{token}/{method}", params, headers)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(PATIENCE)
        for reader in self._readers:
            reader.join(PATIENCE)
        said = "".join(self.said)
        assert "hush" not in said
        assert "Traceback" not in said, said
        return code


def asked(
    connection: http.client.HTTPConnection,
    path: str,
    params: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    body = json.dumps(params or {}).encode()
    connection.request("POST", path, body, {"Content-Type": "application/json", **(headers or {})})
    return read_answer(connection)


def read_answer(connection: http.client.HTTPConnection) -> Answer:
    answer = connection.getresponse()
    return Answer(answer.status, dict(answer.getheaders()), answer.read())


@contextmanager
def gateway_of(folder: Path, address: str, *arguments: str, **variables: str) -> Iterator[GatewayProcess]:
    """It ends well, and neither its output nor its log holds a token."""
    command = [*TIDEGATE, "gateway", "--listen", "127.0.0.1:0", "--telegram", address, *arguments]
    process = fork_server.popen(
        command,
        cwd=folder,
        env=environment() | variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        running = GatewayProcess(process)
        yield running
        if process.poll() is None:
            assert running.stop() == 0
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with telegram() as url:
        yield url


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gateway")


class BrokenTelegram(BaseHTTPRequestHandler):
    """A server whose files break off, and whose proxy answers calls."""

    def do_GET(self) -> None:
        if self.headers["Range"] == "bytes=4-":
            self.send_response(206)
            self.send_header("Content-Range", "bytes 4-7/8")
            self.send_header("ETag", self.headers["If-Range"])
            self.send_header("Content-Length", "4")
            self.end_headers()
            self.wfile.write(b"rest")
            return
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"half")

    def do_POST(self) -> None:
        page = b"<html>502 Bad Gateway</html>"
        self.send_response(502)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def broken() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), BrokenTelegram) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def gateway(folder: Path, address: str, broken: str) -> Iterator[GatewayProcess]:
    async def register() -> None:
        async with Tidegate(str(folder / STORE)) as gate:
            await gate.register_bot(BROKEN_BOT, api_url=broken)
            await gate.register_bot(AWAY_BOT, api_url="http://127.0.0.1:9")  # where nobody listens

    with nothing_set():
        asyncio.run(register())
    limits = ("--body-timeout", str(STALL), "--max-body", "2", "--health-port", "0")
    with gateway_of(folder, address, "--store", STORE, *limits) as running:
        yield running


def log_of(address: str, chat: int) -> list[dict[str, Any]]:
    with urlopen(f"{address}/sim/log?chat={chat}", timeout=PATIENCE) as answer:  # noqa: S310  (loopback)
        entries: list[dict[str, Any]] = json.load(answer)["log"]
    return entries


def seen(port: int, path: str, secret: str = "") -> Answer:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as connection:
        connection.request("GET", path, headers={"Authorization": f"Bearer {secret}"} if secret else {})
        return read_answer(connection)


def delivered_by(metrics: Answer) -> float:
    """Return how many direct calls were delivered."""
    sign = 'tidegate_sends_total{bot="42",kind="direct",outcome="delivered"} '
    return sum(float(line[len(sign) :]) for line in metrics.body.decode().splitlines() if sign in line)


def new_token(folder: Path, store: str) -> str:
    named = ("--role", "admin", "--name", "a", "--store", store)
    code, secret, error = run_here("token", "create", *named, folder=folder)
    assert code == 0, error
    return secret.strip()


def upload(chat: int, content: bytes) -> tuple[bytes, dict[str, str]]:
    head = (
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="chat_id"\r\n\r\n{chat}\r\n'
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="document"; filename="a.bin"\r\n\r\n'
    )
    body = head.encode() + content + f"\r\n--{BOUNDARY}--\r\n".encode()
    return body, {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}


def test_a_download_that_broke_off_is_gone_on_with(gateway: GatewayProcess) -> None:
    with closing(gateway.connect()) as connection:
        headers = {"Range": "bytes=4-", "If-Range": '"an-etag"'}
        connection.request("GET", f"/file/bot{BROKEN_BOT}/photos/a.jpg", headers=headers)
        answer = read_answer(connection)

    assert (answer.status, answer.body) == (206, b"rest")
    assert (answer.headers["content-range"], answer.headers["etag"]) == ("bytes 4-7/8", '"an-etag"')


def test_calls_of_one_client_share_a_connection(gateway: GatewayProcess) -> None:
    with closing(gateway.connect()) as connection:
        ports = []
        for text in ("one", "two"):
            answer = asked(connection, f"/bot{TOKEN}/sendMessage", {"chat_id": next(chats), "text": text})
            assert (answer.status, answer.json["result"]["text"]) == (200, text)
            ports.append(connection.sock.getsockname()[1])

    assert ports[0] == ports[1]


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("noSuchMethod", {}),
        ("sendMessage", {"text": "to nobody"}),
        ("sendMessage", {"chat_id": "x y", "text": "to nobody"}),
        ("getChat", {"chat_id": 0}),
        ("editMessageText", {"chat_id": 1, "message_id": 10**9, "text": "x"}),
    ],
)
def test_errors_are_those_of_telegram_byte_by_byte(
    gateway: GatewayProcess, address: str, method: str, params: dict[str, Any]
) -> None:
    host, _, port = address.removeprefix("http://").partition(":")
    with closing(http.client.HTTPConnection(host, int(port), timeout=PATIENCE)) as connection:
        direct = asked(connection, f"/bot{TOKEN}/{method}", params)
    through = gateway.ask(method, params)

    assert through.status >= 400
    assert (through.status, through.body) == (direct.status, direct.body)


def test_a_megabyte_goes_up_and_comes_down_again(gateway: GatewayProcess) -> None:
    content = bytes(range(256)) * 4_096
    body, headers = upload(next(chats), content)
    with closing(gateway.connect()) as connection:
        connection.request("POST", f"/bot{TOKEN}/sendDocument", body, headers)
        document = read_answer(connection).json["result"]["document"]
        found = asked(connection, f"/bot{TOKEN}/getFile", {"file_id": document["file_id"]})
        path = found.json["result"]["file_path"]
        connection.request("GET", f"/file/bot{TOKEN}/{path}")
        file = read_answer(connection)
        connection.request("GET", f"/file/bot{TOKEN}/files/none")
        missing = read_answer(connection)

    assert document["file_size"] == len(content)
    assert (file.status, file.body == content) == (200, True)
    assert file.headers["content-length"] == str(len(content))
    assert (missing.status, missing.json["error_code"]) == (404, 404)


def test_a_page_of_a_proxy_is_passed_on_as_it_is(gateway: GatewayProcess) -> None:
    answer = gateway.ask("sendMessage", {"chat_id": 1, "text": "x"}, token=BROKEN_BOT)

    assert (answer.status, answer.body) == (502, b"<html>502 Bad Gateway</html>")
    assert answer.headers["content-type"] == "text/html"


def test_a_file_that_breaks_off_is_not_taken_for_a_whole_one(gateway: GatewayProcess) -> None:
    with closing(gateway.connect()) as connection:
        connection.request("GET", f"/file/bot{BROKEN_BOT}/photos/a.jpg")
        answer = connection.getresponse()
        with pytest.raises(http.client.IncompleteRead) as cut:
            answer.read()

    assert (answer.status, cut.value.partial) == (200, b"half")
    wait_until(lambda: any("/file/bot43:… broke off" in line for line in gateway.said))


def test_a_telegram_that_cannot_be_reached_is_said_in_the_form_of_the_bot_api(
    gateway: GatewayProcess,
) -> None:
    call = gateway.ask("sendMessage", {"chat_id": 1, "text": "x"}, token=AWAY_BOT)
    with closing(gateway.connect()) as connection:
        connection.request("GET", f"/file/bot{AWAY_BOT}/photos/a.jpg")
        file = read_answer(connection)

    text = "Bad Gateway: Telegram cannot be reached (connect)"
    assert call.json == {"ok": False, "error_code": 502, "description": f"{text}: the call was not made"}
    assert file.json == {"ok": False, "error_code": 502, "description": text}


def test_a_client_that_still_sends_too_much_sees_the_refusal(gateway: GatewayProcess) -> None:
    body, headers = upload(next(chats), b"x" * 3_000_000)
    with closing(gateway.connect()) as connection:
        connection.request("POST", f"/bot{TOKEN}/sendDocument", body, headers)  # all of it, before it reads
        answer = read_answer(connection)

    assert answer.json == {"ok": False, "error_code": 413, "description": "Request Entity Too Large"}
    assert (answer.status, answer.headers["connection"]) == (413, "close")


@pytest.mark.parametrize("kind", ["application/json", f"multipart/form-data; boundary={BOUNDARY}"])
def test_a_client_that_stalls_is_answered_and_cut_off(gateway: GatewayProcess, kind: str) -> None:
    head = f"POST /bot{TOKEN}/sendMessage HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: 90"
    with socket.create_connection(("127.0.0.1", gateway.port), PATIENCE) as connection:
        connection.sendall(f"{head}\r\n\r\n--".encode())
        began = CLOCK.monotonic()
        answer = b"".join(iter(lambda: connection.recv(65_536), b""))
        lasted = CLOCK.monotonic() - began

    assert answer.startswith(b"HTTP/1.1 408 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error_code"] == 408
    assert STALL <= lasted < 5.0


def test_a_client_that_goes_away_leaves_its_turn_to_the_next(gateway: GatewayProcess, address: str) -> None:
    chat = next(chats)
    gateway.ask("sendMessage", {"chat_id": chat, "text": "first"})
    with closing(gateway.connect()) as connection:
        body = json.dumps({"chat_id": chat, "text": "nobody waits for it"})
        headers = {"Content-Type": "application/json"}
        connection.request("POST", f"/bot{TOKEN}/sendMessage", body, headers)
        threading.Event().wait(0.2)  # it is read, and waits for its turn
    second = gateway.ask("sendMessage", {"chat_id": chat, "text": "second"})

    assert second.status == 200
    assert [entry["text"] for entry in log_of(address, chat)] == ["first", "second"]


def test_a_header_queues_a_call_and_the_ticket_comes_in_one(gateway: GatewayProcess, address: str) -> None:
    chat = next(chats)
    header = {"X-Tidegate": "queue; priority=low; dedup=order-17"}
    answers = [
        gateway.ask("sendMessage", {"chat_id": chat, "text": "later"}, headers=header) for _ in range(2)
    ]
    wait_until(lambda: bool(log_of(address, chat)))

    assert {answer.json["result"]["message_id"] for answer in answers} == {0}
    assert len({answer.headers["x-tidegate-ticket"] for answer in answers}) == 1
    assert [entry["text"] for entry in log_of(address, chat)] == ["later"]


def test_access_tokens_health_and_metrics(gateway: GatewayProcess, folder: Path) -> None:
    secret = new_token(folder, STORE)
    access, chat = f"42:{secret}", next(chats)
    gateway.ask("getMe")  # so that the bot is known
    sent = gateway.ask("sendMessage", {"chat_id": chat, "text": "with an access token"}, token=access)
    urgent = gateway.ask(
        "sendMessage", {"chat_id": chat, "text": "at once"}, token=access, headers={"X-Tidegate": "urgent"}
    )
    revoked = gateway.ask("getMe", token=f"42:tg_{'x' * 43}")
    ready, metrics, locked = (
        seen(gateway.health_port, "/readyz"),
        seen(gateway.health_port, "/metrics", secret),
        seen(gateway.health_port, "/metrics"),
    )
    with closing(gateway.connect()) as connection:
        connection.request("GET", "/healthz")
        alive = read_answer(connection)

    assert (sent.status, urgent.status, revoked.status) == (200, 200, 401)
    assert (ready.status, alive.status, locked.status) == (200, 200, 401)
    assert delivered_by(metrics) >= 1
    assert secret[9:] not in "".join(gateway.said)


def test_calls_that_wait_when_it_stops_are_answered(tmp_path: Path, address: str) -> None:
    with gateway_of(tmp_path, address) as running, ThreadPoolExecutor() as pool:
        chat = next(chats)
        running.ask("sendMessage", {"chat_id": chat, "text": "first"})
        waiting = pool.submit(running.ask, "sendMessage", {"chat_id": chat, "text": "second"})
        poll = pool.submit(running.ask, "getUpdates", {"timeout": 50})
        threading.Event().wait(0.3)  # both have come
        began = CLOCK.monotonic()
        code = running.stop()
        lasted = CLOCK.monotonic() - began

    assert code == 0
    assert (waiting.result().status, waiting.result().json["result"]["text"]) == (200, "second")
    assert poll.result().json == {"ok": True, "result": []}
    assert lasted < 10


@pytest.mark.usefixtures("a_command_may_block")
def test_what_it_cannot_serve_is_said_at_once(folder: Path, gateway: GatewayProcess) -> None:
    def complaint(*arguments: str) -> str:
        code, out, error = run_here("gateway", *arguments, folder=folder)
        assert (code != 0, out) == (True, "")
        return error

    assert "name the bots that may use the gateway with --allow" in complaint("--listen", "0.0.0.0:0")
    assert "is no address: write it as 127.0.0.1:8081" in complaint("--listen", "8081")
    assert "write the address before /bot<token>" in complaint("--telegram", f"http://x/bot{TOKEN}{'x' * 30}")
    assert "a pattern has /bot{token} and {method} in it" in complaint("--telegram", "http://x/{token}")
    assert "one process that sends" in complaint("--processes", "2", "--store", STORE)
    taken = complaint("--listen", "127.0.0.1:0", "--store", STORE)  # the gateway of these tests is its sender
    assert str(gateway.process.pid) in taken


def test_processes_on_redis_share_the_limits_and_are_replaced_without_a_refused_call(
    tmp_path: Path, empty_redis_url: str, address: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    arguments = (
        "--store",
        empty_redis_url,
        "--processes",
        "2",
        "--max-wait",
        "20",
        "--health-port",
        str(port),
    )
    secret = new_token(tmp_path, empty_redis_url)
    before = report(address)
    with gateway_of(tmp_path, address, *arguments) as running, ThreadPoolExecutor(24) as pool:
        people = [next(chats) for _ in range(75)]

        def send(chat: int) -> int:
            return running.ask("sendMessage", {"chat_id": chat, "text": "x"}).status

        answers = [pool.submit(send, chat) for chat in people[:25]]
        running.process.send_signal(signal.SIGHUP)
        answers += [pool.submit(send, chat) for chat in people[25:]]
        statuses = [answer.result() for answer in answers]
        wait_until(lambda: any("all processes are replaced" in line for line in running.said))
        after_reload = send(next(chats))
        # Of all processes, also of those that were replaced.
        wait_until(lambda: delivered_by(seen(port, "/metrics", secret)) == len(people) + 1)
    after = report(address)

    assert statuses == [200] * 75
    assert after_reload == 200
    assert after["refused"] == before["refused"]


def report(address: str) -> dict[str, Any]:
    with urlopen(f"{address}/sim/report", timeout=PATIENCE) as answer:  # noqa: S310  (loopback)
        found: dict[str, Any] = json.load(answer)
    return found
