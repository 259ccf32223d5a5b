"""Encryption of bot tokens at rest, with keys from TIDEGATE_KEY or from a key file beside the store."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from pydantic import SecretStr

from tidegate.bots.key_file import KeyFile, is_key
from tidegate.bots.port import BotRecord
from tidegate.errors import BadInputError, WrongKeyError
from tidegate.scrubber import hide

MISSING: Final = (
    "TIDEGATE_KEY is not set, and a store that is no file has no key file for bot tokens: "
    "make a key with `tidegate key new`, keep it with your secrets, and set it wherever this store is used"
)


def new_key() -> str:
    """A key for TIDEGATE_KEY."""
    return Fernet.generate_key().decode()


class TokenCipher:
    """The newest key encrypts, all of them decrypt. No text made from this holds a key.

    Every verb reads the key file anew, if that is where the keys are, and so blocks on the disk: call them
    in a thread. `encrypt` and `rotate` belong inside the transaction that writes what they give: then no
    token is stored with a key that a rotation, in another process, has just dropped.
    """

    def __init__(self, given: Sequence[str] | None, file: KeyFile | None) -> None:
        self._given = given
        self._file = file

    @classmethod
    def of(cls, settings_key: SecretStr | None, store: Path | None) -> Self:
        """Return the keys of TIDEGATE_KEY, `new,old`; without it those of the key file, made when needed.

        A store that is no file (None) has no key file: nothing is encrypted or opened without the variable.
        What TIDEGATE_KEY holds is looked at when a key is needed: who only looks needs none.
        """
        file = None if store is None else KeyFile(store)
        if settings_key is None:
            return cls(None, file)
        given = [key.strip() for key in settings_key.get_secret_value().split(",")]
        return cls([key for key in given if key], file)

    def check(self) -> None:
        """Raises BadInputError if nothing can be encrypted: before work is done that would be in vain."""
        self._known()

    def encrypt(self, text: str) -> bytes:
        if not self._known() and self._file is not None:
            self._file.make(new_key())
        return self._ring().encrypt(text.encode())

    def decrypt(self, data: bytes) -> str:
        """Raises WrongKeyError if no key fits, or the data is damaged, which looks the same."""
        return self._opened(lambda ring: ring.decrypt(data)).decode()

    def rotate(self, data: bytes) -> bytes:
        """The same, encrypted with the newest key. Raises as `decrypt` does."""
        return self._opened(lambda ring: ring.rotate(data))

    @contextmanager
    def rotating(self) -> Iterator[str]:
        """Change the key while the body lets `rotate` go over all that is stored; gives the newest's place.

        In the key file a new key comes first and, once the body is done, the old ones go. Killed at any
        instant or failed, the keys still open everything, and doing it again ends it. With TIDEGATE_KEY
        whoever sets it adds the new key, and takes out the old one afterwards.
        """
        if self._given is not None:
            if len(_checked(self._given)) == 1:
                advice = "set TIDEGATE_KEY=new,old with one from `tidegate key new` before the old one"
                raise BadInputError(f"TIDEGATE_KEY holds one key only: {advice}, and do this again")
            yield "TIDEGATE_KEY"
            return
        if self._file is None:
            raise BadInputError(MISSING)
        with self._file.alone():
            old = self._known()
            if old:
                self._file.replace([new_key(), *old])
            yield str(self._file.path)
            if old:
                self._file.replace(self._known()[:1])

    def _known(self) -> list[str]:
        if self._given is not None:
            return _checked(self._given)
        if self._file is None:
            raise BadInputError(MISSING)
        keys = self._file.read()
        hide(*keys)
        return keys

    def _ring(self) -> MultiFernet:
        keys = self._known()
        if not keys:
            raise WrongKeyError(self._no_key_fits())
        return MultiFernet([Fernet(key) for key in keys])

    def _opened(self, act: Callable[[MultiFernet], bytes]) -> bytes:
        ring = self._ring()
        try:
            return act(ring)
        except InvalidToken:
            raise WrongKeyError(self._no_key_fits()) from None

    def _no_key_fits(self) -> str:
        """Return advice, the most likely cause first."""
        path = None if self._file is None else self._file.path
        again = "or add the bots again with `tidegate bot add`"
        if self._given is not None or path is None:
            where = f" ({path} may hold it)" if path is not None and path.exists() else ""
            return (
                "TIDEGATE_KEY does not open the stored bot tokens: add the key they were stored with"
                f"{where} after a comma, TIDEGATE_KEY=new,old; {again}"
            )
        found = f"{path} does not open" if path.exists() else f"there is no key file {path} to open"
        ways = f"restore the key file, set TIDEGATE_KEY if they were stored with it, {again}"
        return f"{found} the stored bot tokens: {ways}"

    def __repr__(self) -> str:
        return f"Keys({'key file' if self._given is None else 'TIDEGATE_KEY'})"


def rotate_token(keys: TokenCipher, bot: BotRecord) -> bytes:
    """Encrypt the token of a bot anew. Raises WrongKeyError that names the bot."""
    try:
        return keys.rotate(bot.sealed)
    except WrongKeyError as error:
        way = f"If only this one is unreadable, register it again or remove it: tidegate bot remove {bot.id}"
        raise WrongKeyError(f"bot {bot.id}: {error}. {way}") from error


def _checked(given: Sequence[str]) -> list[str]:
    """Raises BadInputError that names no key."""
    if not given:
        raise BadInputError("TIDEGATE_KEY holds no key: make one with `tidegate key new`")
    for position, key in enumerate(given, 1):
        if not is_key(key):
            which = f"number {position} of its {len(given)} keys" if len(given) > 1 else "what it holds"
            raise BadInputError(f"TIDEGATE_KEY: {which} is no key: make one with `tidegate key new`")
    return list(given)
