"""`tpmdp status`: how far a session is, without taking part."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import click

from tpmdp.cli.options import as_flags
from tpmdp.cli.query import queries_option
from tpmdp.cli.study import read_study, read_terms

_FILE: Final = click.Path(path_type=Path, readable=False)  # our own reader words the errors
_FLAGS: Final = {"relay": "--relay", "key": "--key"}


@click.command()
@click.argument("study_file", metavar="STUDY", type=_FILE)
@click.option("--key", "key_file", required=True, type=_FILE, help="The key file of any party of the study.")
@click.option("--relay", "url", required=True, help="Address of the relay, such as https://relay.example.org.")
@click.option("--session", type=int, help="Number of the session. Default: what the study says.")
@click.option("--terms", "terms_file", type=_FILE, help="For parties that join with this plan, from tpmdp terms.")
@queries_option
@click.option("--ca", "authority", type=_FILE, help="Certificate to trust for the relay, if it is not a public one.")
@click.option("--plain-http", is_flag=True, help="Do without TLS to a relay on another machine.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@as_flags(_FLAGS)
def status(
    study_file: Path,
    key_file: Path,
    url: str,
    session: int | None,
    terms_file: Path | None,
    queries_file: Path | None,
    authority: Path | None,
    plain_http: bool,
    as_json: bool,
) -> None:
    """Show who has joined the session of a STUDY, sent a key, submitted, and been sent an answer.

    For any party of the study, before, during and after it takes part. It shows what the relay holds: nothing is
    joined, charged, sent or changed.
    """
    from tpmdp.engines.relay.mailbox import check_url
    from tpmdp.study.identity import read_key
    from tpmdp.study.status import study_status

    study = read_study(study_file, session, None, queries_file=queries_file)
    identity = read_key(key_file)
    terms = read_terms(terms_file) if terms_file is not None else None
    relay = check_url(url, plain_http)
    state = study_status(study, identity, relay, certificate_authority=authority, terms=terms)
    if as_json:
        click.echo(json.dumps(state.plain()))
        return
    from tpmdp.cli.output import print_with
    from tpmdp.report.status import print_status

    print_with(lambda console: print_status(state, console))
