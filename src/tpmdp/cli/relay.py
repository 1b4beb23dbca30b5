"""The command that runs a relay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import click

from tpmdp.cli.options import is_supervised, supervised
from tpmdp.errors import InputError

_LOG_HELP: Final = "json: a line on standard error for every message, refusal and completed session."
_FILE: Final = click.Path(path_type=Path, readable=False)  # our reader gives better errors


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8400, show_default=True, type=click.IntRange(0, 65535), help="0: any free port.")
@click.option("--store", default="relay.sqlite", show_default=True, type=_FILE, help="File that keeps the messages.")
@click.option("--certificate", type=_FILE, help="TLS certificate chain, PEM.")
@click.option("--private-key", type=_FILE, help="Private key of the certificate, PEM, not encrypted.")
@click.option("--plain-http", is_flag=True, help="No TLS although others can connect, such as behind a TLS proxy.")
@click.option("--message-max", type=int, help="Bytes of the longest message. Default: 64 MiB.")
@click.option("--study", "studies", multiple=True, type=_FILE, help="Serve only this study; may be given repeatedly.")
@click.option("--rate", type=float, help="Requests per second of one party, in the long run. Default: 100.")
@click.option(
    "--forwarded-by", multiple=True, metavar="ADDRESS", help="Trust X-Forwarded-For of this proxy; repeatable."
)
@click.option("--log", type=click.Choice(["quiet", "json"]), default="quiet", show_default=True, help=_LOG_HELP)
@click.option("--public-metrics", is_flag=True, help="Serve /metrics to other machines, too.")
@click.option("--open", "is_open", is_flag=True, help="Serve every study, although others can connect.")
@supervised
def relay(
    host: str,
    port: int,
    store: Path,
    certificate: Path | None,
    private_key: Path | None,
    plain_http: bool,
    message_max: int | None,
    studies: tuple[Path, ...],
    rate: float | None,
    forwarded_by: tuple[str, ...],
    log: str,
    public_metrics: bool,
    is_open: bool,
) -> None:
    """Run a relay: a mailbox between the parties of a study that nobody needs to trust.

    It sees public keys, headers, ciphertext and signatures, and keeps them in one file. Ctrl-C or SIGTERM stops it;
    started again with the same file, it goes on where it was.

    Example: tpmdp relay --host 0.0.0.0 --certificate relay.pem --private-key relay.key --study study.toml
    """
    check_exposure(host, certificate is not None or private_key is not None, plain_http)
    check_open(host, bool(studies), is_open)
    from tpmdp.engines.relay.limits import RelaySettings, parsed_address
    from tpmdp.engines.relay.server import serve
    from tpmdp.study.model import Study

    limits: dict[str, Any] = {"log": log == "json", "public_metrics": public_metrics}
    for address in forwarded_by:
        if parsed_address(address) is None:
            remedy = "name the address the proxy connects from"
            raise InputError("--forwarded-by", address, "must be an address such as 192.0.2.1", remedy)
    limits["forwarded_by"] = frozenset(forwarded_by)
    if studies:
        limits["sessions"] = frozenset(Study.read(path).session_id for path in studies)
    if message_max is not None:
        limits["message_max"] = message_max
    if rate is not None:
        # The bursts stay at their defaults: how often a party is woken does not depend on its rate.
        limits |= {"party_rate": rate, "address_rate": rate}
    settings = RelaySettings(**limits)
    reports = is_supervised()

    def ready(url: str) -> None:
        click.echo(json.dumps({"listening": url}) if reports else f"relay listening on {url}")

    serve(host, port, store, settings=settings, certificate=certificate, private_key=private_key, ready=ready)


def check_exposure(host: str, tls: bool, plain_http: bool) -> None:
    """Refuse to listen to other machines without TLS, unless the user asked for it.

    >>> check_exposure("127.0.0.1", tls=False, plain_http=False)
    >>> check_exposure("0.0.0.0", tls=False, plain_http=False)
    Traceback (most recent call last):
        ...
    tpmdp.errors.InputError: --host = 0.0.0.0 can be reached by others and needs TLS: give --certificate and
    --private-key, or --plain-http if something in front of the relay does TLS
    """
    if tls and plain_http:
        raise InputError("--plain-http", "(given)", "contradicts --certificate and --private-key", "drop one of them")
    from tpmdp.engines.relay.wire import is_loopback

    if not tls and not plain_http and not is_loopback(host):
        remedy = "give --certificate and --private-key, or --plain-http if something in front of the relay does TLS"
        raise InputError("--host", host, "can be reached by others and needs TLS", remedy)


def check_open(host: str, has_studies: bool, is_open: bool) -> None:
    """Refuse to store messages for strangers on other machines, unless the user asked for it.

    >>> check_open("127.0.0.1", has_studies=False, is_open=False)
    >>> check_open("192.0.2.1", has_studies=False, is_open=False)
    Traceback (most recent call last):
        ...
    tpmdp.errors.InputError: --host = 192.0.2.1 can be reached by others, who could fill the relay:
    name the studies it serves with --study, or --open to serve anybody
    """
    from tpmdp.engines.relay.wire import is_loopback

    if has_studies and is_open:
        raise InputError("--open", "(given)", "contradicts --study", "drop one of them")
    if not has_studies and not is_open and not is_loopback(host):
        remedy = "name the studies it serves with --study, or --open to serve anybody"
        raise InputError("--host", host, "can be reached by others, who could fill the relay", remedy)
