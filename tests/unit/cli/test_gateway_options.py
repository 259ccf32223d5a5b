"""Options of `tidegate gateway` about shared updates: what cannot be meant is refused with advice."""

import pytest

from tidegate.cli import main
from tidegate.cli.gateway import sharing_options, sharing_words
from tidegate.gateway.shared_updates import SharingOptions


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["--webhook", "https://bot.example"], "add --share-updates"),
        (["--allow-webhook", "shop.internal"], "add --share-updates"),
        (["--share-updates", "--webhook", "http://bot.example"], "https:// addresses only"),
        (["--share-updates", "--webhook", "bot.example"], "https:// addresses only"),
        (["--share-updates", "--allow-webhook", "http://shop.internal/hook"], "write the name of a host"),
    ],
)
def test_options_that_cannot_be_meant_are_refused_with_advice(
    arguments: list[str], advice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gateway", *arguments]) == 2
    assert advice in capsys.readouterr().err


def test_members_of_a_group_get_the_options_of_their_parent() -> None:
    given = sharing_options("https://bot.example", ["B.internal", "a.internal"], is_on=True)

    words = sharing_words(given)

    assert given == SharingOptions("https://bot.example", frozenset({"a.internal", "b.internal"}))
    assert words[:3] == ["--share-updates", "--webhook", "https://bot.example"]
    assert words[3:] == ["--allow-webhook", "a.internal", "--allow-webhook", "b.internal"]
    assert sharing_words(sharing_options(None, None, is_on=False)) == []
    assert sharing_words(sharing_options(None, [], is_on=True)) == ["--share-updates"]
