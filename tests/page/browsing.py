"""What a browser would send back, read from the HTML of a page."""

from __future__ import annotations

import re
import warnings
from html import unescape

with warnings.catch_warnings():  # it asks for a newer client, which the pins do not have
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient as TestClient

ORIGIN = "http://127.0.0.1:8401"
TOKEN = "aaaa-bbbb-cccc-dddd-eeee"  # noqa: S105
_ATTRIBUTE = re.compile(r'([\w-]+)="([^"]*)"')


def part(html: str, name: str) -> str:
    """The new contents of an element, in an answer to a form."""
    match = re.search(rf'<template data-part="{re.escape(name)}">(.*?)</template>', html, re.DOTALL)
    assert match is not None, f"no part {name} in {html[:300]}"
    return match[1]


def fields(html: str) -> dict[str, list[str]]:
    """The fields of all forms on a page, as a browser would send them unchanged."""
    sent: dict[str, list[str]] = {}
    for match in re.finditer(r"<input ([^>]*)>", html):
        attributes = dict(_ATTRIBUTE.findall(match[1]))
        name, kind = attributes.get("name"), attributes.get("type", "text")
        is_off = kind in ("checkbox", "radio") and "checked" not in attributes
        if name is None or kind == "file" or is_off or "disabled" in attributes:
            continue
        sent.setdefault(name, []).append(unescape(attributes.get("value", "")))
    for match in re.finditer(r"<select ([^>]*)>(.*?)</select>", html, re.DOTALL):
        options = [dict(_ATTRIBUTE.findall(each)) for each in re.findall(r"<option ([^>]*)>", match[2])]
        chosen = [each for each in options if "selected" in each] or options[:1]
        name = dict(_ATTRIBUTE.findall(match[1])).get("name")
        if name and chosen:
            sent.setdefault(name, []).append(unescape(chosen[0].get("value", "")))
    for match in re.finditer(r"<textarea ([^>]*)>(.*?)</textarea>", html, re.DOTALL):
        name = dict(_ATTRIBUTE.findall(match[1])).get("name")
        if name:
            sent.setdefault(name, []).append(unescape(match[2]))
    return sent
