"""Who may use the page: hosts, origins, tokens, sizes, headers."""

from __future__ import annotations

import pytest

from tests.page.browsing import ORIGIN, TOKEN, TestClient
from tpmdp.page.gate import BODY_MAX, HEADERS, Keeper, new_token
from tpmdp.page.layout import VIEWS


def test_without_the_token_nothing_is_shown(stranger: TestClient) -> None:
    for path in ("/", *VIEWS, "/static/page.js", "/nothing"):
        answer = stranger.get(path)
        assert answer.status_code == 401
        assert "hospital" not in answer.text
    assert "Token of this page" in stranger.get("/plan").text
    assert stranger.get("/static/page.css").status_code == 200


def test_a_wrong_token_gives_no_cookie(stranger: TestClient) -> None:
    stranger.headers["origin"] = ORIGIN
    for secret in ("", "x", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "\0", "é" * 300):
        answer = stranger.post("/enter", data={"secret": secret})
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers
        assert TOKEN not in answer.text


def test_after_ten_wrong_tokens_the_right_one_waits(stranger: TestClient) -> None:
    stranger.headers["origin"] = ORIGIN
    for _ in range(10):
        stranger.post("/enter", data={"secret": "wrong"})
    answer = stranger.post("/enter", data={"secret": TOKEN})
    assert answer.status_code == 403
    assert "wait a minute" in answer.text


def test_the_cookie_is_strict_and_not_the_token(stranger: TestClient) -> None:
    stranger.headers["origin"] = ORIGIN
    cookie = stranger.post("/enter", data={"secret": f" {TOKEN}\n"}).headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert TOKEN not in cookie
    assert cookie.startswith("tpmdp-8401=")  # browsers share cookies between ports


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8401", "127.0.0.1:8402", "127.0.0.1", "", "LOCALHOST"])
def test_another_host_is_refused(client: TestClient, host: str) -> None:
    """A name of a foreign site that resolves to this machine (DNS rebinding)."""
    answer = client.get("/plan", headers={"host": host})
    assert answer.status_code == 421
    assert "hospital" not in answer.text


@pytest.mark.parametrize(
    "origin", [None, "null", "http://evil.example", "https://127.0.0.1:8401", "http://127.0.0.1:1"]
)
def test_another_origin_changes_nothing(client: TestClient, origin: str | None) -> None:
    del client.headers["origin"]
    headers = {} if origin is None else {"origin": origin}
    for path in ("/plan", "/plan/plan.json", "/enter", "/study", "/join", "/verify", "/watch"):
        assert client.post(path, headers=headers).status_code == 403


def test_parts_of_the_page_cannot_be_used_by_other_sites(client: TestClient) -> None:
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-dest": "script"}
    assert client.get("/static/page.js", headers=headers).status_code == 403
    assert client.get("/plan", headers={"sec-fetch-site": "cross-site", "sec-fetch-dest": "iframe"}).status_code == 403


def test_every_answer_has_the_headers(stranger: TestClient, client: TestClient) -> None:
    answers = [
        client.get("/plan"),
        client.get("/nothing"),
        client.post("/plan", data={}),
        client.get("/plan", headers={"host": "evil"}),
        client.get("/static/page.js"),
    ]
    for answer in answers:
        for name, value in HEADERS.items():
            assert answer.headers[name] == value
    policy = HEADERS["content-security-policy"]
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy


def test_pages_have_no_script_or_style_of_their_own(client: TestClient) -> None:
    for path in VIEWS:
        html = client.get(path).text
        assert " style=" not in html
        assert "<style" not in html
        assert " onclick=" not in html
        assert html.count("<script") == 1
        assert "//" not in html.replace("https://www.w3.org", "").replace("https://relay", "").replace(
            "https://RELAY", ""
        ).replace("http://127.0.0.1", "")


def test_a_large_form_is_refused(client: TestClient) -> None:
    answer = client.post("/plan", content=b"a=" + b"x" * BODY_MAX)
    assert answer.status_code == 413
    many = "&".join(f"f{place}=1" for place in range(30_000))
    assert client.post("/plan", content=many.encode()).status_code == 422


def test_other_methods_and_paths_do_not_exist(client: TestClient) -> None:
    assert client.put("/plan").status_code == 405
    assert client.delete("/plan").status_code == 405
    assert client.get("/static/../app.py").status_code == 404
    assert client.get("/static/app.py").status_code == 404
    assert client.get("/static/%2e%2e%2fapp.py").status_code == 404


def test_a_mistake_of_ours_shows_no_traceback(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr("tpmdp.page.plan_view.page_of", fail)
    client._transport.raise_server_exceptions = False
    answer = client.get("/plan")
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text


def test_secrets_have_no_repr() -> None:
    keeper = Keeper(new_token())
    assert keeper.secret not in repr(keeper)
    assert keeper.cookie not in repr(keeper)
    assert len({new_token() for _ in range(100)}) == 100
