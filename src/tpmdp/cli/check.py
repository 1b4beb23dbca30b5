"""`tpmdp check`: everything that a party can know before it takes part in a study."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import click

from tpmdp.cli.options import as_flags
from tpmdp.cli.query import queries_option
from tpmdp.errors import InputError, TpmdpError

_FILE: Final = click.Path(path_type=Path, readable=False)  # our own reader words the errors
_FLAGS: Final = {"party": "--as", "ledger": "--ledger", "data": "--data"}


@click.command()
@click.argument("study_file", metavar="STUDY", type=_FILE)
@click.option("--as", "name", required=True, help="Which party of the study you are.")
@click.option(
    "--data", "data_file", type=_FILE, help="Your records: a .csv or .parquet file, or a .toml that says where."
)
@click.option("--key", "key_file", type=_FILE, help="Your key file; without it the key is not checked.")
@click.option("--ledger", "ledger_file", type=_FILE, help="Your ledger. Default: the key file's name with .ledger.")
@click.option("--session", type=int, help="Number of the session. Default: what the study says.")
@click.option("--terms", "terms_file", type=_FILE, help="The plan that you would sign, from tpmdp terms.")
@click.option(
    "--peers", "peers_file", type=_FILE, help="Names and public keys that you know. Default: peers.toml beside the key."
)
@queries_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
@as_flags(_FLAGS)
def check(
    study_file: Path,
    name: str,
    data_file: Path | None,
    key_file: Path | None,
    ledger_file: Path | None,
    session: int | None,
    terms_file: Path | None,
    peers_file: Path | None,
    queries_file: Path | None,
    as_json: bool,
) -> None:
    """Check your data, the cost and the risk of a STUDY before you take part.

    Shows bad and clipped values, what the session costs and leaves, the error to expect, and who would have to collude
    against you. Nothing is charged, sent or written. What is shown about your records is for your eyes only.

    Exit codes: 0 if nothing on your side stands in the way (the study may still lack public keys); 2 if something
    does, and what.
    """
    from tpmdp.cli.output import print_with
    from tpmdp.cli.study import read_study, read_terms
    from tpmdp.report.check import check_json, print_check
    from tpmdp.study.party_folder import PartyFiles

    study = read_study(study_file, session, None, queries_file=queries_file)
    study.index(name)  # refuses a party that is not in the study
    files = PartyFiles(
        study,
        name,
        key_file,
        data=data_file,
        ledger=ledger_file,
        peers=peers_file,
        terms=None if terms_file is None else lambda: read_terms(terms_file),
    )
    result = files.check()
    if as_json:
        click.echo(json.dumps(check_json(result), allow_nan=False))
    else:
        print_with(lambda console: print_check(study, result, console))
    if result.own_problems:
        first = result.own_problems[0]
        raise first if isinstance(first, InputError) else TpmdpError(str(first))  # a missed deadline would be code 3
