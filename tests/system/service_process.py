"""`tidegate up` and `tidegate api` as processes that tests start, ask and stop."""

import http.client
import json
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fork_server
from system.operators import PATIENCE, TIDEGATE, environment, run_here


class ServiceProcess:
    """A command of the service, its lines, and requests to it."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.lines: list[str] = []
        self.log: list[str] = []
        self._ready = threading.Event()
        self.port = 0
        self._readers = [
            threading.Thread(target=self._read, args=(stream, lines), daemon=True)
            for stream, lines in ((process.stdout, self.lines), (process.stderr, self.log))
        ]
        for reader in self._readers:
            reader.start()
        assert self._ready.wait(3 * PATIENCE), self.log

    def _read(self, stream: Any, lines: list[str]) -> None:  # noqa: ANN401  (a pipe)
        for line in stream:
            lines.append(line.rstrip("\n"))
            if (found := re.search(r"^API +http://127\.0\.0\.1:(\d+)/", line)) is not None:
                self.port = int(found[1])
                self._ready.set()
        self._ready.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(
        self,
        method: str,
        path: str,
        token: str | None = None,
        **more: Any,  # noqa: ANN401  (of the request)
    ) -> tuple[int, Mapping[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        body = more.pop("body", None)
        if isinstance(body, dict):
            body, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        try:
            connection.request(method, path, body, headers | more.pop("headers", {}))
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def told(self, method: str, path: str, token: str, **more: Any) -> Any:  # noqa: ANN401  (JSON)
        status, _, body = self.ask(method, path, token, **more)
        assert status < 300, (status, body)
        return json.loads(body)

    def link(self) -> str:
        """The one-time link, without the address."""
        wait_until(lambda: any("/login?code=" in line for line in self.lines))
        return next(line for line in self.lines if "/login?code=" in line).removeprefix(self.url)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(PATIENCE)
        for reader in self._readers:
            reader.join(PATIENCE)
        return code


def wait_until(true: Callable[[], bool]) -> None:
    for _ in range(PATIENCE * 20):
        if true():
            return
        threading.Event().wait(0.05)
    raise AssertionError("this never came true")


@contextmanager
def serving(*arguments: str, folder: Path, port: int = 0, **variables: str) -> Iterator[ServiceProcess]:
    process = fork_server.popen(
        [*TIDEGATE, *arguments, "--port", str(port)],
        cwd=folder,
        env=environment() | {"TIDEGATE_LOG_FORMAT": "json", **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield ServiceProcess(process)
    finally:
        process.kill()
        process.communicate()


def new_token(folder: Path, role: str, *options: str) -> str:
    named = ("--role", role, "--name", role, "--store", "bot.db")
    code, out, err = run_here("token", "create", *named, *options, folder=folder)
    assert code == 0, err
    return out.strip()
