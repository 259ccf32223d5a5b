"""Tokens at rest open with the right keys only, whatever happens to the key file, and no text shows a key."""

import os
import stat
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from tidegate.bots.encryption import TokenCipher, new_key
from tidegate.bots.key_file import KeyFile
from tidegate.errors import BadInputError, StoreError, TidegateError, WrongKeyError

TOKEN = "42:hush-hush"
A_KEY = "aGFyYm91ciB3YXRlciwgdGhpcnR5LXR3byBieXRlcyE="


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "tidegate.db"


def from_variable(*keys: str, store: Path = Path("tidegate.db")) -> TokenCipher:
    return TokenCipher.of(SecretStr(",".join(keys)), store)


def from_file(store: Path) -> TokenCipher:
    return TokenCipher.of(None, store)


def key_lines(store: Path) -> list[str]:
    return KeyFile(store).path.read_text().split()


@given(st.text())
def test_what_was_encrypted_comes_back(text: str) -> None:
    keys = from_variable(new_key())

    assert keys.decrypt(keys.encrypt(text)) == text


def test_no_part_of_a_token_is_in_what_is_stored() -> None:
    assert b"hush" not in from_variable(new_key()).encrypt(TOKEN)


def test_the_first_key_of_the_variable_encrypts_and_all_decrypt() -> None:
    new, old = new_key(), new_key()
    stored = from_variable(old).encrypt(TOKEN)

    both = from_variable(new, old)

    assert both.decrypt(stored) == TOKEN
    assert from_variable(new).decrypt(both.encrypt(TOKEN)) == TOKEN
    assert from_variable(new).decrypt(both.rotate(stored)) == TOKEN


def test_spaces_around_the_keys_of_the_variable_do_not_matter() -> None:
    new, old = new_key(), new_key()

    assert from_variable(f" {new} ", f"{old}\n", "").decrypt(from_variable(old).encrypt(TOKEN)) == TOKEN


@pytest.mark.parametrize("value", ["hush", ",", " ", f"{A_KEY},hush", A_KEY[:-1], f"{A_KEY}="])
def test_a_malformed_variable_is_named_without_its_value(value: str) -> None:
    with pytest.raises(BadInputError, match=r"TIDEGATE_KEY.*tidegate key new") as caught:
        from_variable(value).encrypt(TOKEN)

    for part in filter(str.strip, value.split(",")):
        assert part not in str(caught.value)


def test_the_key_file_is_made_at_the_first_token_for_its_owner_alone(store: Path) -> None:
    keys = from_file(store)
    with pytest.raises(WrongKeyError, match="there is no key file"):
        keys.decrypt(b"anything")
    assert list(store.parent.iterdir()) == []

    stored = keys.encrypt(TOKEN)

    (made,) = store.parent.iterdir()
    assert made.name == "tidegate.db.key"
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    assert from_file(store).decrypt(stored) == TOKEN


def test_a_link_to_a_store_has_the_keys_of_the_store(store: Path, tmp_path: Path) -> None:
    store.touch()
    link = tmp_path / "elsewhere" / "link.db"
    link.parent.mkdir()
    link.symlink_to(store)

    stored = from_file(link).encrypt(TOKEN)

    assert from_file(store).decrypt(stored) == TOKEN


def test_processes_that_start_at_once_agree_on_the_key(store: Path) -> None:
    together = threading.Barrier(8)

    def first_use(_: int) -> bytes:
        keys = from_file(store)
        together.wait()
        return keys.encrypt(TOKEN)

    with ThreadPoolExecutor(8) as pool:
        stored = list(pool.map(first_use, range(8)))

    assert {from_file(store).decrypt(data) for data in stored} == {TOKEN}
    assert len(key_lines(store)) == 1
    assert len(list(store.parent.iterdir())) == 1


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666, 0o620])
def test_a_key_file_for_others_is_refused_with_the_command_that_mends_it(store: Path, mode: int) -> None:
    keys = from_file(store)
    stored = keys.encrypt(TOKEN)
    path = KeyFile(store).path
    path.chmod(mode)

    for use in (lambda: keys.decrypt(stored), lambda: keys.encrypt(TOKEN)):
        with pytest.raises(BadInputError, match=f"run chmod 600 {path}"):
            use()

    path.chmod(0o400)
    assert keys.decrypt(stored) == TOKEN


@pytest.mark.parametrize("content", [b"", b"\n", b"hush\n", b"\xff\xfe\x00", A_KEY.encode() + b"\nhush"])
def test_a_spoilt_key_file_is_named_and_not_shown(store: Path, content: bytes) -> None:
    path = KeyFile(store).path
    path.write_bytes(content)
    path.chmod(0o600)

    with pytest.raises(BadInputError, match=r"tidegate.db.key is spoilt: restore it") as caught:
        from_file(store).encrypt(TOKEN)

    assert "hush" not in str(caught.value)


def test_a_wrong_key_says_what_to_do(store: Path) -> None:
    stored = from_file(store).encrypt(TOKEN)
    elsewhere = from_variable(new_key(), store=store)

    with pytest.raises(
        WrongKeyError, match=r"tidegate.db.key may hold it\) after a comma, TIDEGATE_KEY=new,old"
    ):
        elsewhere.decrypt(stored)
    with pytest.raises(WrongKeyError, match=r"tidegate.db.key does not open .* set TIDEGATE_KEY if"):
        from_file(store).decrypt(elsewhere.encrypt(TOKEN))
    with pytest.raises(WrongKeyError):
        from_file(store).rotate(stored[:-4] + b"AAA=")


def test_a_folder_that_cannot_be_used_is_a_store_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"cannot make the key file .*: no such file or directory"):
        from_file(tmp_path / "absent" / "tidegate.db").encrypt(TOKEN)
    (tmp_path / "tidegate.db.key").mkdir()
    with pytest.raises(StoreError, match=r"cannot read the key file .*: is a directory"):
        from_file(tmp_path / "tidegate.db").encrypt(TOKEN)


def test_rotation_changes_the_key_and_processes_that_run_notice(store: Path) -> None:
    running = from_file(store)
    stored = running.encrypt(TOKEN)
    (old,) = key_lines(store)

    with from_file(store).rotating() as place:
        new, beside = key_lines(store)
        assert beside == old
        assert running.decrypt(stored) == TOKEN
        stored = running.rotate(stored)

    assert place == str(KeyFile(store).path)
    assert key_lines(store) == [new]
    assert running.decrypt(stored) == TOKEN
    assert stat.S_IMODE(KeyFile(store).path.stat().st_mode) == 0o600


def test_a_rotation_that_fails_keeps_the_old_key_and_the_next_one_drops_it(store: Path) -> None:
    keys = from_file(store)
    stored = keys.encrypt(TOKEN)
    with pytest.raises(RuntimeError), keys.rotating():
        raise RuntimeError
    assert keys.decrypt(stored) == TOKEN

    with keys.rotating():
        stored = keys.rotate(stored)

    assert keys.decrypt(stored) == TOKEN
    assert len(key_lines(store)) == 1


def test_two_rotations_at_once_are_refused(store: Path) -> None:
    keys = from_file(store)
    keys.encrypt(TOKEN)

    with keys.rotating():
        with pytest.raises(StoreError, match="another process is changing"), from_file(store).rotating():
            pass  # never here
        assert len(key_lines(store)) == 2

    assert len(key_lines(store)) == 1


def test_before_the_first_token_there_is_nothing_to_rotate(store: Path) -> None:
    with from_file(store).rotating():
        stored = from_file(store).encrypt(TOKEN)  # another process adds a bot meanwhile

    assert from_file(store).decrypt(stored) == TOKEN


def test_the_variable_is_rotated_by_whoever_sets_it() -> None:
    with (
        pytest.raises(BadInputError, match="holds one key only: set TIDEGATE_KEY=new,old"),
        from_variable(new_key()).rotating(),
    ):
        pass  # never here
    with from_variable(new_key(), new_key()).rotating() as place:
        assert place == "TIDEGATE_KEY"


class Killed(BaseException):
    """As after kill -9: nothing more is done, not even cleaning up."""


STEPS = ("fsync", "open", "replace", "link", "unlink", "fdopen")


@pytest.fixture
def deadly(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The process dies before the step with this number, and does no step afterwards."""
    left = [0]

    def guard(name: str, real: Any) -> None:  # noqa: ANN401
        def step(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            return real(*args, **kwargs)

        monkeypatch.setattr(os, name, step)

    for name in STEPS:
        guard(name, getattr(os, name))
    yield left
    monkeypatch.undo()


def test_a_rotation_killed_at_any_step_loses_no_token(store: Path, deadly: list[int]) -> None:
    deadly[0] = 1_000
    stored = from_file(store).encrypt(TOKEN)
    finished, killed = False, 0
    while not finished:
        deadly[0] = killed
        try:
            with from_file(store).rotating():
                stored = from_file(store).rotate(stored)
            finished = True
        except Killed:
            killed += 1
        deadly[0] = 1_000
        assert from_file(store).decrypt(stored) == TOKEN

    assert killed > 4
    assert len(key_lines(store)) == 1


def test_a_first_use_killed_at_any_step_leaves_a_whole_key_file_or_none(
    store: Path, deadly: list[int]
) -> None:
    for survived in range(20):
        deadly[0] = 1_000
        KeyFile(store).path.unlink(missing_ok=True)
        deadly[0] = survived
        try:
            from_file(store).encrypt(TOKEN)
        except Killed:
            deadly[0] = 1_000
            assert from_file(store).decrypt(from_file(store).encrypt(TOKEN)) == TOKEN
        else:
            assert survived > 2
            return
    pytest.fail("it never finished")


def test_no_text_shows_a_key(store: Path) -> None:
    key = new_key()
    keys = from_variable(key, store=store)
    from_file(store).encrypt(TOKEN)
    (in_file,) = key_lines(store)

    with pytest.raises(TidegateError) as caught:
        keys.decrypt(from_file(store).encrypt(TOKEN))

    for text in (repr(keys), str(keys), f"{from_file(store)}", str(caught.value), repr(caught.value)):
        assert key not in text
        assert in_file not in text


def test_a_store_that_is_no_file_needs_the_variable_and_says_how_to_make_one() -> None:
    stored = from_variable(A_KEY).encrypt(TOKEN)
    without = TokenCipher.of(None, None)

    for act in (without.check, lambda: without.encrypt(TOKEN), lambda: without.decrypt(stored)):
        with pytest.raises(BadInputError, match=r"TIDEGATE_KEY is not set.*tidegate key new"):
            act()
    with pytest.raises(BadInputError, match="TIDEGATE_KEY is not set"), without.rotating():
        pass


def test_a_store_that_is_no_file_opens_and_rotates_with_the_variable() -> None:
    new = new_key()
    stored = TokenCipher.of(SecretStr(A_KEY), None).encrypt(TOKEN)

    with TokenCipher.of(SecretStr(f"{new},{A_KEY}"), None).rotating() as place:
        rotated = TokenCipher.of(SecretStr(f"{new},{A_KEY}"), None).rotate(stored)

    assert place == "TIDEGATE_KEY"
    assert TokenCipher.of(SecretStr(new), None).decrypt(rotated) == TOKEN
    with pytest.raises(WrongKeyError, match="does not open the stored bot tokens"):
        TokenCipher.of(SecretStr(new), None).decrypt(stored)
