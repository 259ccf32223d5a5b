"""A sender that was started with its token among its arguments tells it to nobody."""

import asyncio
import sys
from pathlib import Path

import pytest

import fork_server
from system.killing import line_of, running
from tidegate import Tidegate
from tidegate.errors import NotTheSenderError

SECRET = "AAEEqwertyuiopasdfghjklzxcvbnm-_123"
BOT = """
import asyncio, sys
from tidegate import Tidegate

async def main():
    gate = Tidegate(sys.argv[2])
    gate.add_bot(sys.argv[1].partition("=")[2])
    await gate.start()
    print("sends", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_token_among_the_arguments_of_a_sender_is_in_no_file_error_or_report(tmp_path: Path) -> None:
    store, script = tmp_path / "tidegate.db", tmp_path / "bot.py"
    await asyncio.to_thread(script.write_text, BOT)

    async with running(f"--token=42:{SECRET}", str(store), script=str(script)) as sender:
        assert await line_of(sender) == "sends"
        async with Tidegate(store) as gate:
            gate.add_bot(f"42:{SECRET}")
            with pytest.raises(NotTheSenderError) as refused:
                async with gate.worker():
                    pass
        stats = await asyncio.to_thread(_run, "queue", "stats", "--json", "--store", str(store))
        worker = await asyncio.to_thread(_run, "worker", "--store", str(store))
        kept = await asyncio.to_thread(_read_all, tmp_path)

    assert f"process {sender.pid} (bot.py) sends for" in str(refused.value)
    assert "bot.py" in stats
    for text in (str(refused.value), stats, worker, *kept):
        assert SECRET not in text


def _run(*arguments: str) -> str:
    done = fork_server.run(
        [sys.executable, "-m", "tidegate", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    return f"{done.stdout}{done.stderr}"


def _read_all(folder: Path) -> list[str]:
    return [path.read_bytes().decode("latin-1") for path in folder.iterdir() if path.name != "bot.py"]
