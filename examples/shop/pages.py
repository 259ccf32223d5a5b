"""The pages of the shop, as text and rows of buttons, independent of the bot library."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from shop.book import Counts, Line, Order
from shop.texts import Product, Texts
from tidegate import Tidegate


class Button(NamedTuple):
    text: str
    data: str


class Page(NamedTuple):
    text: str
    buttons: Sequence[Sequence[Button]] = ()


class Pages:
    def __init__(self, texts: Texts, products: Mapping[str, Product]) -> None:
        self.texts = texts
        self.products = products

    def greeting(self, name: str) -> Page:
        return Page(self.texts("greeting", name=name), self._goods())

    def menu(self) -> Page:
        return Page(self.texts("menu"), self._goods())

    def card(self, product: Product) -> Page:
        price = self.texts.price(product.price)
        text = self.texts("product", name=product.name, price=price, about=product.about)
        return Page(text, [[Button(self.texts("buy"), f"buy:{product.id}"), self._to_cart()]])

    def cart(self, cart: Mapping[str, int]) -> Page:
        menu = [Button(self.texts("show_menu"), "menu")]
        if not self.lines(cart):
            return Page(self.texts("cart_empty"), [menu])
        rows = [
            [
                Button(self.texts("fewer"), f"fewer:{name}"),
                Button(product.name, f"show:{name}"),
                Button(self.texts("more"), f"more:{name}"),
            ]
            for name, product in self.products.items()
            if name in cart
        ]
        text = f"{self.texts('cart')}\n{self._bill(self.lines(cart))}"
        return Page(text, [*rows, [Button(self.texts("check_out"), "checkout")], menu])

    def summary(self, cart: Mapping[str, int], address: str, recipient: str) -> Page:
        head = self.texts("summary", address=address, recipient=recipient)
        buttons = [Button(self.texts("confirm"), "confirm"), Button(self.texts("cancel"), "cancel")]
        return Page(f"{head}\n{self._bill(self.lines(cart))}", [buttons])

    def receipt(self, order: Order) -> bytes:
        head = self.texts("receipt", number=order.number, placed_at=order.placed_at)
        return f"{head}\n\n{self._bill(order.lines)}\n".encode()

    def history(self, orders: Sequence[Order]) -> str:
        if not orders:
            return self.texts("no_orders")
        lines = [
            self.texts(
                "order", number=order.number, placed_at=order.placed_at, price=self.texts.price(order.total)
            )
            for order in orders
        ]
        return "\n".join([self.texts("orders"), *lines])

    async def stats(self, counts: Counts, gate: Tidegate) -> str:
        """Show the figures of the shop and the waiting messages."""
        now = await gate.stats()
        return self.texts(
            "stats",
            **counts._asdict(),
            waiting=now.waiting,
            delivered=now.delivered,
            dead=now.dead,
            refused=now.refused,
        )

    def lines(self, cart: Mapping[str, int]) -> list[Line]:
        """Return the total of the products that are still sold."""
        sold = [(product, cart[name]) for name, product in self.products.items() if name in cart]
        return [Line(product.name, count, product.price) for product, count in sold]

    def _goods(self) -> list[list[Button]]:
        rows = [[Button(product.name, f"show:{name}")] for name, product in self.products.items()]
        return [*rows, [self._to_cart()]]

    def _to_cart(self) -> Button:
        return Button(self.texts("show_cart"), "cart")

    def _bill(self, lines: Sequence[Line]) -> str:
        prices = [line.amount * line.price for line in lines]
        rows = [
            self.texts("line", count=line.amount, name=line.name, price=self.texts.price(price))
            for line, price in zip(lines, prices, strict=True)
        ]
        return "\n".join([*rows, self.texts("total", price=self.texts.price(sum(prices)))])
