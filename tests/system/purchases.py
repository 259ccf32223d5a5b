"""What people do in the shops of `examples/`, and what they must see: the same for every bot library."""

from tidegate.sim.telegram import Person
from tidegate.sim.telegram.entities import Json


async def says(person: Person, text: str) -> str:
    """What is answered."""
    person.says(text)
    return str((await person.hears(30))["text"])


async def presses(person: Person, button: str) -> Json:
    """What is shown or changed after it."""
    person.presses(button)
    return await person.hears()


async def fill_cart(person: Person) -> Json:
    """Two packets of tea. The message with the cart."""
    await says(person, "/start")
    await presses(person, "show:tea")
    person.presses("buy:tea")
    await presses(person, "cart")
    return await presses(person, "more:tea")


async def order(person: Person) -> str:
    """What is said to it."""
    await presses(person, "checkout")
    await says(person, "Harbour Street 1")
    await says(person, "Ann")
    return str((await presses(person, "confirm"))["text"])
