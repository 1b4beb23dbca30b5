"""The page as a process: its address, its token, TLS with a password, and what it refuses to do."""

from __future__ import annotations

import datetime
import ipaddress
import os
import signal
import ssl
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.page.conftest import RunningPage, running_page
from tests.patience import HANG_S

pytestmark = pytest.mark.process

PASSWORD = "correct horse battery"  # noqa: S105


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for this machine that it signed itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    names: list[x509.GeneralName] = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "page.pem", folder / "page.key"
    paths[0].write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return paths


def refusal(*arguments: str, **environment: str) -> str:
    """What the command says, in one line, before it listens."""
    command = [sys.executable, "-m", "tpmdp", "page", "--no-browser", *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=HANG_S, env={**os.environ, **environment}, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_it_listens_on_loopback_and_ends_when_asked(page_process: RunningPage) -> None:
    assert page_process.url.startswith("http://127.0.0.1:")
    assert httpx.get(page_process.url + "/plan").status_code == 401
    page_process.process.send_signal(signal.SIGTERM)
    page_process.process.wait(HANG_S)
    assert page_process.process.returncode in (0, -signal.SIGTERM, 143)


def test_others_connect_with_tls_and_a_password_only(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    public, private = certificate(tmp_path)
    monkeypatch.setenv("TPMDP_PAGE_PASSWORD", PASSWORD)
    files = ["--certificate", str(public), "--private-key", str(private)]
    with running_page(folder, "--host", "0.0.0.0", "--name", "localhost", *files) as running:  # noqa: S104
        trust = ssl.create_default_context(cafile=str(public))
        with httpx.Client(base_url=running.url, verify=trust) as client:
            assert running.url.startswith("https://localhost:")
            assert "Password of this page" in client.get("/plan").text
            wrong = client.post("/enter", data={"secret": "wrong"}, headers={"origin": running.url})
            assert wrong.status_code == 403
            right = client.post("/enter", data={"secret": PASSWORD}, headers={"origin": running.url})
            assert "Secure" in right.headers["set-cookie"]
            assert "Expected error" in client.get("/plan").text


def test_what_others_could_reach_needs_tls_a_name_and_a_password(tmp_path: Path) -> None:
    public, private = certificate(tmp_path)
    files = ["--certificate", str(public), "--private-key", str(private)]
    everywhere = ["--host", "0.0.0.0"]  # noqa: S104
    assert "needs TLS" in refusal(*everywhere)
    assert "--name" in refusal(*everywhere, *files)
    short = refusal(*everywhere, *files, "--name", "localhost", TPMDP_PAGE_PASSWORD="short")  # noqa: S106
    assert "must have at least 12 characters" in short
    assert "short" not in short.replace("(not shown)", "")
    assert "leave it out" in refusal("--name", "localhost")


def test_a_taken_port_and_a_bad_folder_are_one_line(page_process: RunningPage, tmp_path: Path) -> None:
    port = page_process.url.rpartition(":")[2]
    assert f"--port = {port} is in use" in refusal("--port", port, "--folder", str(tmp_path))
    (tmp_path / "file").write_text("x")
    assert "cannot be used" in refusal("--folder", str(tmp_path / "file"))
