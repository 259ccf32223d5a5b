"""Order numbers that are easy to read aloud: TG-7K3M-9QXC."""

import hashlib
from typing import Final

ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's: no letters that look alike
LETTERS: Final = 8  # 40 bits: among a million orders, one more has a chance of one in a million to be taken


def order_id(cause: str, taken: int = 0) -> str:
    """Return the number of a cause, which is one visit of one user to the state `ordering`.

    `taken`: how many numbers of this cause belong to other orders.
    """
    digest = hashlib.blake2b(f"{cause} {taken}".encode(), digest_size=8).digest()
    number = int.from_bytes(digest)
    letters = "".join(ALPHABET[number >> 5 * place & 31] for place in range(LETTERS))
    return f"TG-{letters[:4]}-{letters[4:]}"
