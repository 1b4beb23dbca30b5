"""HTML from text that may come from anybody: whatever is not marked as HTML is escaped."""

from __future__ import annotations

import html
from collections.abc import Collection, Iterable, Sequence


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def safe(value: object) -> Html:
    """The value as HTML: escaped, unless it is HTML already.

    >>> safe("<b>"), safe(Html("<b>")), safe(3)
    ('&lt;b&gt;', '<b>', '3')
    """
    return value if isinstance(value, Html) else Html(html.escape(str(value), quote=True))


def tag(name: str, /, *contents: object, **attributes: object) -> Html:
    """An element; `class_` stands for class, and `data_x` for data-x.

    >>> tag("p", "a < b", class_="note")
    '<p class="note">a &lt; b</p>'
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value), quote=True)}"'
        for key, value in attributes.items()
    )
    return Html(f"<{name}{written}>{joined(contents)}</{name}>")


def joined(contents: Iterable[object], between: str = "") -> Html:
    """Several pieces of HTML or text, one after the other.

    >>> joined(["a", Html("<br>"), "b"])
    'a<br>b'
    """
    return Html(html.escape(between).join(safe(each) for each in contents))


def name(text: str) -> Html:
    """A name from outside; right-to-left letters do not reorder what stands around it.

    >>> name("north & south")
    '<bdi>north &amp; south</bdi>'
    """
    return tag("bdi", text)


def names(texts: Sequence[str], most: int = 12) -> Html:
    """A list of names in a sentence.

    >>> names(["a", "b", "c"]), names([])
    ('<bdi>a</bdi>, <bdi>b</bdi> and <bdi>c</bdi>', 'nobody')
    """
    if not texts:
        return Html("nobody")
    shown = [name(text) for text in texts[:most]]
    if len(texts) > most:
        return Html(", ".join(shown) + f" and {len(texts) - most} more")
    return Html(", ".join(shown[:-1]) + " and " + shown[-1] if len(shown) > 1 else shown[0])


def table(
    headings: Sequence[object],
    rows: Iterable[Sequence[object]],
    numbers: Collection[int] = (),
    *,
    has_cards: bool = False,
) -> Html:
    """A table; `numbers` are the columns that are aligned to the right. On a narrow screen rows may become cards.

    >>> table(["party"], [["a&b"]])[-54:]
    '<tbody><tr><td>a&amp;b</td></tr></tbody></table></div>'
    """

    def line(kind: str, cells: Sequence[object]) -> Html:
        marked = []
        for place, (heading, cell) in enumerate(zip(headings, cells, strict=True)):
            style: dict[str, object] = {"class_": "number"} if place in numbers else {}
            if has_cards and kind == "td":
                style["data_label"] = heading
                cell = tag("span", cell) if str(cell) else cell
            marked.append(tag(kind, cell, **style))
        return tag("tr", *marked)

    body = tag("tbody", *(line("td", row) for row in rows))
    kind = "wide cards" if has_cards else "wide"
    return tag("div", tag("table", tag("thead", line("th", headings)), body), class_=kind)
