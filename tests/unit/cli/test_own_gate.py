"""`tidegate up MODULE:GATE`: what cannot be imported is told as the user's, in one line."""

from pathlib import Path

import pytest

from tidegate.cli.up import load_gate
from tidegate.errors import BadInputError

MODULES = {
    "needs_bot": "import nowhere_to_be_found",
    "raises_bot": "1 / 0",
    "broken_bot": "def handler(:",
    "other_bot": "gate = 5",
}


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("no_such_bot:gate", "there is no module no_such_bot in "),
        ("needs_bot:gate", "needs_bot needs nowhere_to_be_found, which is not installed"),
        ("raises_bot:gate", "raises_bot cannot be imported: ZeroDivisionError: division by zero ("),
        ("broken_bot", "broken_bot cannot be imported: SyntaxError: invalid syntax (broken_bot.py, line 1)"),
        ("other_bot", "gate of other_bot is not a Tidegate: write MODULE:GATE"),
        ("other_bot:app", "app of other_bot is not a Tidegate: write MODULE:GATE"),
        ("other_bot.py:gate", "other_bot.py is a file: write its module, other_bot"),
        (":gate", "':gate' names no gate: write MODULE:GATE, such as mybot:gate"),
        ("..:gate", "'..:gate' names no gate: write MODULE:GATE, such as mybot:gate"),
        ("", "'' names no gate: write MODULE:GATE, such as mybot:gate"),
    ],
)
def test_a_mistake_in_the_users_module_is_not_called_a_bug_of_tidegate(
    named: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, code in MODULES.items():
        (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BadInputError) as raised:
        load_gate(named)
    assert str(raised.value).startswith(told)
