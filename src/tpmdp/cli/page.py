"""`tpmdp page`: plan, take part and check in a browser."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tpmdp.cli.options import as_flags
from tpmdp.errors import InputError

if TYPE_CHECKING:
    from tpmdp.page.gate import Keeper

_FILE: Final = click.Path(path_type=Path, readable=False)  # our own reader words the errors
_PASSWORD: Final = "TPMDP_PAGE_PASSWORD"  # noqa: S105
_PASSWORD_MIN: Final = 12


@click.command()
@click.option("--folder", default=Path("."), type=_FILE, help="Where your studies, keys, ledgers and data are.")
@click.option("--port", default=8401, show_default=True, type=click.IntRange(0, 65535), help="0: any free port.")
@click.option("--browser/--no-browser", default=True, help="Open the page in your browser.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--name", "names", multiple=True, help="Host name under which others reach it; may be given repeatedly.")
@click.option("--certificate", type=_FILE, help="TLS certificate chain, PEM; needed where others can connect.")
@click.option("--private-key", type=_FILE, help="Private key of the certificate, PEM, not encrypted.")
@as_flags({"host": "--host", "port": "--port"})
def page(
    folder: Path,
    port: int,
    browser: bool,
    host: str,
    names: tuple[str, ...],
    certificate: Path | None,
    private_key: Path | None,
) -> None:
    """Plan, take part and check in a browser.

    Starts a page on this machine and opens it. It asks for the token that is printed here. It reads and writes files in
    the folder only; keys, ledgers and data stay on this machine. Ctrl-C ends it; a session that was begun goes on with
    tpmdp join or when the page is started again.

    Others can connect only with --host, --name, --certificate and --private-key; the page then asks for the password in
    the environment variable TPMDP_PAGE_PASSWORD.

    Example: tpmdp page --folder flu
    """
    from tpmdp.engines.relay.wire import is_loopback
    from tpmdp.page.folder import Folder
    from tpmdp.page.gate import Keeper, new_token
    from tpmdp.page.server import open_browser, serve_page

    is_local = is_loopback(host)
    if is_local:
        keeper = Keeper(new_token())
        if names:
            raise InputError("--name", names[0], "is for pages that others can reach", "leave it out, or give --host")
    else:
        keeper = _with_password(host, names, certificate)

    def ready(url: str) -> None:
        click.echo(f"page on {url}")
        if is_local:
            click.echo(f"token: {keeper.secret}")
        if browser and is_local:
            open_browser(url)

    opened = Folder.of(folder)
    serve_page(
        opened,
        keeper,
        host=host,
        port=port,
        names=names,
        certificate=certificate,
        private_key=private_key,
        ready=ready,
    )


def _with_password(host: str, names: tuple[str, ...], certificate: Path | None) -> Keeper:
    from tpmdp.page.gate import Keeper

    if certificate is None:
        raise InputError(
            "--host", host, "can be reached by others and needs TLS", "give --certificate and --private-key"
        )
    if not names:
        raise InputError("--name", "(none)", "is missing", "give the host name under which others reach the page")
    password = os.environ.get(_PASSWORD, "")
    if len(password) < _PASSWORD_MIN:
        rule = f"must have at least {_PASSWORD_MIN} characters where others can connect"
        raise InputError(_PASSWORD, "(not shown)", rule, "set this environment variable")
    return Keeper(password, asks_for="password")
