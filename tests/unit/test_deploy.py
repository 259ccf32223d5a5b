"""The files of deploy/, as far as they can be checked without an engine: they parse, and fit the code."""

import logging.config
import os
import re
import runpy
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from configparser import RawConfigParser
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from command_lines import parse
from tidegate.broadcast.audience_upload import MAX_UPLOAD
from tidegate.cli.process_group import STOP_WITHIN
from tidegate.inbound.server import SHUTDOWN_GRACE
from tidegate.ops.log_format import JsonLineFormatter, StderrHandler
from tidegate.settings import Settings

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"
COMPOSE: Final[dict[str, Any]] = yaml.safe_load((DEPLOY / "compose.yml").read_text())
SERVICES: Final[dict[str, dict[str, Any]]] = COMPOSE["services"]
OURS: Final = {name: one for name, one in SERVICES.items() if one["image"].startswith("tidegate:")}
UNITS: Final = sorted((DEPLOY / "systemd").glob("*.service"))
SETTINGS: Final = {name.upper() for name in Settings.model_fields}
MADE_BY_OPERATORS: Final = {"./jobs", "./prometheus/tidegate-token"}


def test_the_composition_has_every_part() -> None:
    ours = {"api", "worker", "scheduler", "gateway", "celery"}
    assert set(SERVICES) == ours | {"redis", "postgres", "rabbitmq", "prometheus", "grafana"}
    assert set(OURS) == ours


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_is_pinned_restarted_and_watched(name: str) -> None:
    service = SERVICES[name]
    tag = service["image"].rpartition(":")[2]
    assert re.fullmatch(r"v?\d+\.?\d*(\.\d+)*(-\w+)?", tag)
    assert service["restart"] == "unless-stopped"
    assert service["healthcheck"]["test"][0] in {"CMD", "CMD-SHELL"}
    assert service["logging"]["options"]["max-size"]


@pytest.mark.parametrize("name", SERVICES)
def test_no_port_is_open_beyond_this_machine(name: str) -> None:
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[name].get("ports", []))
    assert SERVICES[name].get("network_mode") is None


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_waits_until_the_others_are_healthy(name: str) -> None:
    for other, wanted in SERVICES[name].get("depends_on", {}).items():
        assert wanted == {"condition": "service_healthy"}
        profiles = SERVICES[other].get("profiles", [])
        assert not profiles or profiles == SERVICES[name]["profiles"]


@pytest.mark.parametrize("name", SERVICES)
def test_every_volume_is_declared_and_every_file_is_there(name: str) -> None:
    for source in (one.partition(":")[0] for one in SERVICES[name].get("volumes", [])):
        is_there = (DEPLOY / source).exists() or source in MADE_BY_OPERATORS
        assert is_there if source.startswith(".") else source in COMPOSE["volumes"]


@pytest.mark.parametrize("name", OURS)
def test_our_services_may_do_nothing_that_they_need_not(name: str) -> None:
    service = OURS[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "user" not in service  # that of the image, which is not root
    assert "privileged" not in service


@pytest.mark.parametrize("name", OURS)
def test_our_services_get_settings_that_exist_and_no_secret_that_is_written_there(name: str) -> None:
    environment: dict[str, str] = OURS[name]["environment"]
    assert set(environment) - SETTINGS <= {"PYTHONPATH"}
    for variable, value in environment.items():
        if any(word in variable for word in ("KEY", "TOKEN", "URL", "DSN")):
            assert "${" in value


@pytest.mark.parametrize("name", sorted(set(OURS) - {"celery"}))
def test_our_services_run_commands_that_exist_and_are_asked_at_their_port(name: str) -> None:
    check = OURS[name]["healthcheck"]["test"]
    command = [re.sub(r"\$\{\w+:-(.*)\}", r"\1", word) for word in OURS[name]["command"]]
    parse(command)
    option = {"api": "--port", "gateway": "--listen"}.get(name, "--health-port")
    port = command[command.index(option) + 1].rpartition(":")[2]
    assert check == ["CMD", "python", "/opt/tidegate/healthcheck.py", port]


def test_services_have_the_time_to_finish_what_is_in_flight() -> None:
    for service in OURS.values():
        assert int(service["stop_grace_period"].removesuffix("s")) > max(STOP_WITHIN, SHUTDOWN_GRACE)


def test_the_worker_of_celery_is_started_as_its_module_says() -> None:
    service = OURS["celery"]
    assert service["entrypoint"] == ["celery", "-A", "tidegate.jobs.celery"]
    assert find_spec("tidegate.jobs.celery") is not None


def test_the_example_of_settings_has_every_variable_of_the_composition_and_no_secret() -> None:
    used = set(re.findall(r"\$\{(\w+)", (DEPLOY / "compose.yml").read_text()))
    lines = (DEPLOY / "env.example").read_text().splitlines()
    given = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    assert set(given) == used
    assert {name for name, value in given.items() if value} == {
        "DB_POOL_SIZE",
        "DB_MAX_OVERFLOW",
        "TIDEGATE_HISTORY",
        "TIDEGATE_LOG_LEVEL",
    }


def test_prometheus_asks_every_service_at_its_port() -> None:
    file = DEPLOY / "prometheus" / "prometheus.yml"
    [job] = yaml.safe_load(file.read_text())["scrape_configs"]
    targets = {target for one in job["static_configs"] for target in one["targets"]}
    assert targets == {"api:8080", "worker:8090", "scheduler:8090"}


def test_alerts_lead_to_a_section_of_the_runbook() -> None:
    file = DEPLOY / "prometheus" / "rules.yml"
    page = (ROOT / "docs" / "howto" / "runbook.md").read_text()
    headings = {title.lower().replace(" ", "-") for title in re.findall(r"^#+ (.+)$", page, re.MULTILINE)}
    links = re.findall(r"runbook_url: docs/howto/runbook\.md#(\S+)", file.read_text())
    assert links
    assert set(links) <= headings


DOCKERFILE: Final = (DEPLOY / "Dockerfile").read_text()


def instructions() -> list[tuple[str, str]]:
    joined = re.sub(r"\\\n\s*", " ", DOCKERFILE)
    lines = [line for line in joined.splitlines() if line and not line.startswith("#")]
    return [(word.upper(), rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def test_the_image_is_built_in_stages_from_pinned_images_and_a_lock_with_hashes() -> None:
    bases = [rest for word, rest in instructions() if word == "FROM"]
    assert bases == ["python:${PYTHON}-slim-bookworm AS build", "python:${PYTHON}-slim-bookworm"]
    assert ("ARG", "PYTHON=3.11") in instructions()
    installs = [rest for word, rest in instructions() if word == "RUN" and " install " in rest]
    assert len(installs) == 2
    assert "--require-hashes" in installs[0]
    assert "--no-deps --no-build-isolation ." in installs[1]  # the package itself, with what the lock has
    assert all("--no-cache-dir" in line for line in installs)


def test_the_image_runs_as_a_user_with_a_fixed_number_who_is_not_root() -> None:
    final = instructions()[[word for word, _ in instructions()].index("FROM", 3) :]
    assert [rest for word, rest in final if word == "USER"] == ["10001:10001"]
    assert [word for word, _ in final].index("USER") < [word for word, _ in final].index("WORKDIR")
    assert not any(word in {"ADD", "MAINTAINER"} for word, _ in instructions())


def test_the_image_holds_no_secret_and_nothing_but_what_it_is_built_from() -> None:
    for word, rest in instructions():
        assert word not in {"ENV", "ARG"} or not re.search("TOKEN|PASSWORD|KEY|SECRET|DSN", rest)
    copied = {
        source
        for word, rest in instructions()
        if word == "COPY" and "--from" not in rest
        for source in rest.split()[:-1]
    }
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignore[1] == "*"
    assert {line[1:] for line in ignore if line.startswith("!")} == copied
    assert all((ROOT / source).exists() for source in copied)


def test_the_image_starts_a_command_that_exists_and_says_whether_it_lives() -> None:
    known = dict(instructions())
    assert known["ENTRYPOINT"] == '["tidegate"]'
    command = yaml.safe_load(known["CMD"])
    parse(command)
    port = command[command.index("--port") + 1]
    assert known["EXPOSE"] == port
    assert f'CMD ["python", "/opt/tidegate/healthcheck.py", "{port}"]' in known["HEALTHCHECK"]


def test_the_lock_of_the_image_has_all_that_its_extras_need_as_the_tests_use_it() -> None:
    lock, tested = blocks(DEPLOY / "requirements.lock"), blocks(ROOT / "requirements-dev.lock")
    assert all(lock[name] == tested[name] for name in lock)
    assert all("--hash=sha256:" in block for block in lock.values())
    needed = packages_of(Requirement("tidegate[aiogram,celery,redis,sentry,service]"))
    assert needed & set(tested) <= set(lock)
    assert {"redis", "asyncpg", "celery", "fastapi", "sentry-sdk", "hatchling"} <= set(lock)


def blocks(lock: Path) -> dict[str, str]:
    """The lines of a lock for each package."""
    parts = re.split(r"^(?=[a-z0-9])", lock.read_text(), flags=re.MULTILINE)[1:]
    return {canonicalize_name(part.partition("==")[0].partition("[")[0]): part for part in parts}


def packages_of(wanted: Requirement) -> set[str]:
    """It and all that it needs here, with the extras that are asked for."""
    found, todo = set[tuple[str, str]](), [wanted]
    while todo:
        one = todo.pop()
        for extra in ("", *one.extras):
            if (key := (canonicalize_name(one.name), extra)) in found:
                continue
            found.add(key)
            try:
                needs = [Requirement(text) for text in requires(one.name) or ()]
            except PackageNotFoundError:  # for another system
                needs = []
            todo += [need for need in needs if need.marker is None or need.marker.evaluate({"extra": extra})]
    return {name for name, _ in found} - {"tidegate"}


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_the_health_check_succeeds_if_the_process_says_that_it_lives(
    status: int, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with answering(status) as port:
        assert health_check(port, monkeypatch) == code


def test_the_health_check_fails_where_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(200) as port:
        pass
    assert health_check(port, monkeypatch) == 1


def health_check(port: int, monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setattr(sys, "argv", ["healthcheck.py", str(port)])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(DEPLOY / "healthcheck.py"), run_name="__main__")
    return ended.value.code


@contextmanager
def answering(status: int) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/healthz" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def unit_of(file: Path) -> RawConfigParser:
    unit = RawConfigParser(strict=True, delimiters=("=",))
    unit.optionxform = str  # type: ignore[assignment, method-assign]  # names keep their case
    unit.read_string(file.read_text())
    return unit


@pytest.mark.parametrize("file", UNITS, ids=lambda file: file.stem)
def test_units_run_commands_that_exist_as_a_user_without_rights(file: Path) -> None:
    service = unit_of(file)["Service"]
    program, *arguments = service["ExecStart"].split()
    assert program == "/opt/tidegate/bin/tidegate"
    parse(arguments)
    assert service["User"] == "tidegate"
    assert service["ProtectSystem"] == "strict"
    assert service["NoNewPrivileges"] == "yes"
    assert service["CapabilityBoundingSet"] == ""
    assert service["Restart"] == "on-failure"
    assert int(service["TimeoutStopSec"]) > max(STOP_WITHIN, SHUTDOWN_GRACE)
    # SIGHUP would end any other command, and systemd would not start it again.
    assert ("ExecReload" in service) == (arguments[0] == "api")


def test_units_of_one_machine_share_no_port() -> None:
    commands = [unit_of(file)["Service"]["ExecStart"].split() for file in UNITS]
    options = ("port", "--listen")
    ports = [
        line[index + 1] for line in commands for index, word in enumerate(line) if word.endswith(options)
    ]
    apart = {file.stem for file in UNITS if unit_of(file)["Unit"].get("Conflicts") == "tidegate.service"}
    # The two at 8080 are never both there.
    assert sorted(ports) == ["127.0.0.1:8081", "8080", "8080", "8090", "8091", "8092"]
    assert apart == {"tidegate-api", "tidegate-worker", "tidegate-scheduler"}


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    if (analyze := shutil.which("systemd-analyze")) is None:
        pytest.skip("systemd-analyze is not installed")
    for file in UNITS:  # with a program and a user that exist here
        text = file.read_text().replace("/opt/tidegate/bin/tidegate", "/bin/true")
        (tmp_path / file.name).write_text(re.sub(r"(?m)^(User|Group)=tidegate$", r"\1=root", text))
    ran = subprocess.run(  # noqa: S603  (our own files)
        [analyze, "verify", *map(str, sorted(tmp_path.glob("*.service")))],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_gunicorn_logs_as_our_own_commands_do_and_makes_the_application_by_its_factory() -> None:
    known = runpy.run_path(str(DEPLOY / "gunicorn.conf.py"))
    module, _, factory = known["wsgi_app"].partition(":")
    assert (module, factory) == ("tidegate.ops.service", "make_app()")
    assert known["bind"].startswith("127.0.0.1:")
    assert known["accesslog"] is None
    config = known["logconfig_dict"]
    configurator = logging.config.DictConfigurator(config)
    assert isinstance(configurator.configure_formatter(config["formatters"]["line"]), JsonLineFormatter)
    assert configurator.resolve(config["handlers"]["stderr"]["class"]) is StderrHandler


def test_nginx_gets_blocks_that_are_closed_and_passes_no_metrics_on() -> None:
    text = re.sub(r"#.*", "", (DEPLOY / "nginx.conf").read_text())
    statements = [line.strip() for line in re.split(r"(?<=[;{}])", text) if line.strip()]
    assert statements[-1] == "}"
    assert text.count("{") == text.count("}")
    assert all(line[-1] in ";{}" for line in statements)
    assert "location = /metrics { return 404; }" in " ".join(text.split())
    assert text.index("log_format combined_without_query") < text.index("access_log")
    assert "$request_uri" not in text.split("listen 443")[1]


def test_nginx_accepts_its_file_and_lets_audiences_of_any_size_through(tmp_path: Path) -> None:
    text = (DEPLOY / "nginx.conf").read_text()
    upload = text.split("/upload$")[1].partition("}")[0]
    assert f"client_max_body_size {MAX_UPLOAD // 2**20}m;" in upload
    assert "proxy_request_buffering off;" in upload
    if (nginx := shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")) is None:
        pytest.skip("nginx is not installed")
    # Without certificates and places that only root has.
    text = re.sub(r"(?m)^ *ssl_.*\n| ssl(?=;)", "", text).replace("/var/log/nginx", str(tmp_path))
    text = re.sub(r"(?<=listen )(.*?)(80|443);", r"\g<1>8\2;", text)
    (tmp_path / "tidegate.conf").write_text(text)
    main = f"pid {tmp_path}/pid; error_log stderr; events {{}} http {{ include {tmp_path}/tidegate.conf; }}"
    (tmp_path / "nginx.conf").write_text(main)
    checked = subprocess.run(  # noqa: S603  (our own file)
        [nginx, "-t", "-q", "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (checked.returncode, checked.stderr) == (0, "")
