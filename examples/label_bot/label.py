"""Draws a shipping label of 100 x 150 mm. The same order gives the same bytes."""

import io
from functools import cache
from pathlib import Path
from typing import Final

from reportlab.graphics.barcode.code128 import Code128
from reportlab.lib.units import mm
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.pdfgen.canvas import Canvas

from label_bot.orders import Order, Parcel

SIZE: Final = (100 * mm, 150 * mm)
SENDER: Final = ("Tidegate Parcels", "Harbour Street 1", "20457 Hamburg")
PLAIN_FONT: Final = "Helvetica"
PLAIN_CODEC: Final = "cp1252"  # the letters of this font


def can_print(parcel: Parcel, font: Path | None) -> bool:
    """Return whether the font has the letters of an address; a font of your own is trusted."""
    try:
        f"{parcel.name}{parcel.street}{parcel.town}".encode(PLAIN_CODEC)
    except UnicodeEncodeError:
        return font is not None
    return True


def draw_label(order: Order, tracking: str, font: Path | None = None) -> bytes:
    """Return the PDF. Blocks: this is the work that must not be done in the event loop."""
    file, parcel, used = io.BytesIO(), order.parcel, _font_name(font)
    canvas = Canvas(file, pagesize=SIZE, pageCompression=0, invariant=1)
    canvas.setTitle(f"Label {order.id}")
    canvas.rect(4 * mm, 4 * mm, SIZE[0] - 8 * mm, SIZE[1] - 8 * mm)
    _write(canvas, used, 7, 142, SENDER)
    _write(canvas, used, 13, 115, (parcel.name, parcel.street, parcel.town))
    _write(canvas, used, 10, 80, (f"{parcel.service.upper()}   {parcel.weight:g} kg", f"Order {order.id}"))
    barcode = Code128(tracking, barHeight=28 * mm, barWidth=0.35 * mm, quiet=False)
    barcode.drawOn(canvas, (SIZE[0] - barcode.width) / 2, 22 * mm)
    canvas.setFont(PLAIN_FONT, 10)
    canvas.drawCentredString(SIZE[0] / 2, 14 * mm, tracking)
    canvas.showPage()
    canvas.save()
    return file.getvalue()


def _write(canvas: Canvas, font: str, size: int, top: int, lines: tuple[str, ...]) -> None:
    """`top`: millimetres from the lower edge."""
    canvas.setFont(font, size)
    for number, line in enumerate(lines):
        canvas.drawString(8 * mm, top * mm - number * size * 1.4, line)


@cache
def _font_name(font: Path | None) -> str:
    if font is None:
        return PLAIN_FONT
    pdfmetrics.registerFont(TTFont("label", str(font)))
    return "label"
