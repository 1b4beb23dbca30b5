"""`tpmdp init`, `invite`, `accept`, `keygen` and `key show`: from an idea to a study with all its parties."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from tpmdp.cli.options import as_flags
from tpmdp.cli.query import queries_option
from tpmdp.cli.sections import WholeSummaries
from tpmdp.errors import InputError

_FILE: Final = click.Path(path_type=Path, readable=False)  # our own reader words the errors
_SUFFIX: Final = ".key"
_TRIES: Final = 3  # of a prompt
_INIT_FLAGS: Final = {
    "name": "--name",
    "parties": "--parties",
    "threshold": "--threshold",
    "receivers": "--receivers",
    "records": "--records",
    "delta": "--delta",
    "regression": "--regression",
}
_SHAPES_TEXT: Final = (
    "count COLUMN AT_LEAST, mean COLUMN LOW HIGH, histogram COLUMN EDGES, or "
    "regression COLUMN LOW HIGH on COLUMN LOW HIGH"
)
T = TypeVar("T")


@click.command()
@click.argument("folder", type=_FILE)
@click.option("--name", help="What the study is called. Default: the folder's name.")
@click.option("--parties", help="Names of the parties, with commas between them.")
@click.option("--epsilon", help="Privacy budget of every party, or one for each, with commas. Default: 1.")
@click.option("--records", help="Number of records of every party, or one for each, with commas. Default: 500.")
@click.option("--threshold", type=int, help="How many parties may collude. Default: half of them.")
@click.option("--receivers", help="Who learns the answer: names with commas, or all. Default: all.")
@click.option("--count", "counts", nargs=2, multiple=True, metavar="COLUMN AT_LEAST", help="Ask how many are so large.")
@click.option(
    "--mean", "means", nargs=3, multiple=True, metavar="COLUMN LOW HIGH", help="Ask for a mean within bounds."
)
@click.option(
    "--histogram", "histograms", nargs=2, multiple=True, metavar="COLUMN EDGES", help="Ask how values are distributed."
)
@click.option(
    "--regression",
    "regressions",
    multiple=True,
    metavar="TEXT",
    help="Ask how a column depends on others, such as 'stay 0 60 on age 0 110, sex 0 1', each with its bounds.",
)
@click.option("--delta", type=float, default=1e-6, show_default=True, help="The chance that a promise may fail.")
@click.option("--again", is_flag=True, help="Make the trial anew, for the study.toml that FOLDER has.")
@queries_option
@click.option("--sample/--no-sample", default=None, help="Make up records for the trial. Default: yes.")
@click.option("--yes", is_flag=True, help="Ask nothing: take the flags, and defaults for the rest.")
@as_flags(_INIT_FLAGS)
def init(
    folder: Path,
    name: str | None,
    parties: str | None,
    epsilon: str | None,
    records: str | None,
    threshold: int | None,
    receivers: str | None,
    counts: tuple[tuple[str, str], ...],
    means: tuple[tuple[str, str, str], ...],
    histograms: tuple[tuple[str, str], ...],
    regressions: tuple[str, ...],
    delta: float,
    again: bool,
    queries_file: Path | None,
    sample: bool | None,
    yes: bool,
) -> None:
    """Start a study in a FOLDER: a commented study.toml, and a trial that runs.

    Asks for what no flag gives. The folder `trial` has a folder for every party with a key, a ledger and, if you want,
    made-up records. After you have changed the study, --again makes a new trial for it. Real parties make their own
    keys: see tpmdp invite.

    Example: tpmdp init flu --parties north,south,west --count age 65 --yes
    """
    from tpmdp.queries.custom import load_queries
    from tpmdp.study.identity import check_name
    from tpmdp.study.template import STUDY_FILE, Draft, renew_trial, write_study

    asked = _queries(counts, means, histograms, regressions=regressions)
    if again:
        if any(value not in (None, []) for value in (name, parties, epsilon, records, threshold, receivers, asked)):
            remedy = "change study.toml, and leave out the other flags"
            raise InputError("--again", str(folder), "takes the study as it is", remedy)
        renew_trial(folder, sample is not False, load_queries(queries_file))
        click.echo(f"wrote {folder / 'trial'} anew, for {folder / STUDY_FILE}. Next:")
        click.echo(f"  tpmdp run {folder / STUDY_FILE}")
        return
    if queries_file is not None:
        raise InputError("--queries", str(queries_file), "is for --again", "add the queries to the study file later")
    if not yes and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InputError("--yes", "(not given)", "is needed where there is no terminal to ask", "add it to the flags")
    ask = _Asker(yes)
    title = ask("Name of the study", name, folder.resolve().name or "study", parse=str)
    names = ask("Names of the parties, with commas", parties, "north, south, west", parse=_names(check_name))
    count = len(names)
    budgets = ask(
        "Privacy budget epsilon (one for all, or one per party)", epsilon, "1", parse=_each("epsilon", count, _positive)
    )
    sizes = ask(
        "Records of a party (one for all, or one per party)", records, "500", parse=_each("records", count, _whole)
    )
    most = None if threshold is None else str(threshold)
    collude = ask("How many parties may collude", most, str(max(1, count // 2)), parse=_whole("threshold"))
    learn = ask("Who learns the answer (names, or all)", receivers, "all", parse=_split)
    queries = asked or ask(
        f"Ask for ({_SHAPES_TEXT}; several with ;)",
        None,
        "count age 65; mean age 0 100",
        parse=_parse_queries,
    )
    wants = (
        sample if sample is not None else ask("Make up records for the trial (yes or no)", None, "yes", parse=_truth)
    )
    draft = Draft(
        title, names, budgets, records=sizes, threshold=collude, receivers=learn, queries=queries, delta=delta
    )
    write_study(folder, draft, wants)
    click.echo(f"wrote {folder / STUDY_FILE} and {folder / 'trial'}. Next:")
    if wants:
        click.echo(f"  tpmdp run {folder / STUDY_FILE}")
    else:
        click.echo(
            f"  put each party's records at {folder / 'trial'}/NAME/NAME.csv, then tpmdp run {folder / STUDY_FILE}"
        )
    click.echo(f"  tpmdp init {folder} --again  (a new trial, after you have changed the study)")
    click.echo(f"  tpmdp invite {folder / STUDY_FILE} --out {folder / 'invitations'}")


class _Asker:
    """Asks for one value after another; a value that is refused is asked for again."""

    def __init__(self, silent: bool) -> None:
        self._silent = silent

    def __call__(self, text: str, given: str | None, default: str, *, parse: Callable[[str], T]) -> T:
        if given is not None:
            return parse(given)
        if self._silent:
            return parse(default)
        for _ in range(_TRIES - 1):
            try:
                return parse(self._prompt(text, default))
            except InputError as error:
                click.echo(f"tpmdp: {error}", err=True)
        return parse(self._prompt(text, default))

    def _prompt(self, text: str, default: str) -> str:
        return str(click.prompt(text, default=default, err=True))


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _names(check: Callable[[str, object], str]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        names = [check("name of a party", name) for name in _split(text)]
        if len(names) < 2:
            raise InputError("parties", len(names), "must be at least 2", "name them with commas between them")
        return names

    return parse


def _each(field: str, count: int, parse: Callable[[str], Callable[[str], T]]) -> Callable[[str], list[T]]:
    """One value for all parties, or one per party."""

    def parse_all(text: str) -> list[T]:
        values = [parse(field)(part) for part in _split(text)]
        if len(values) not in (1, count):
            rule = f"must be one number for all {count} parties, or {count} numbers"
            raise InputError(field, text, rule, "put commas between them")
        return values * count if len(values) == 1 else values

    return parse_all


def _positive(field: str) -> Callable[[str], float]:
    def parse(text: str) -> float:
        value = _number(field)(text)
        if not value > 0:
            raise InputError(field, text, "must be more than 0", "1 is usual")
        return value

    return parse


def _number(field: str) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise InputError(field, text, "is not a number", "write digits, such as 0.5")
        return value

    return parse


def _whole(field: str) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"\d{1,12}", text.strip(), re.ASCII):
            raise InputError(field, text, "must be a whole number", "write digits, such as 2")
        return int(text)

    return parse


def _truth(text: str) -> bool:
    answers = {"y": True, "yes": True, "n": False, "no": False}
    if text.strip().lower() not in answers:
        raise InputError("answer", text, "must be yes or no", "write one of them")
    return answers[text.strip().lower()]


def _queries(
    counts: Sequence[Sequence[str]],
    means: Sequence[Sequence[str]],
    histograms: Sequence[Sequence[str]],
    regressions: Sequence[str],
) -> list[dict[str, Any]]:
    queries: list[dict[str, Any]] = []
    for column, least in counts:
        value = _number(f"AT_LEAST of {column}")(least)
        queries.append({"name": f"{column} at least {value:g}", "kind": "count", "column": column, "at_least": value})
    for column, low, high in means:
        bounds = {"low": _number(f"LOW of {column}")(low), "high": _number(f"HIGH of {column}")(high)}
        queries.append({"name": f"mean {column}", "kind": "mean", "column": column, **bounds})
    for column, edges in histograms:
        values = [_number(f"EDGES of {column}")(edge) for edge in _split(edges)]
        queries.append({"name": f"histogram of {column}", "kind": "histogram", "column": column, "edges": values})
    return queries + [_regression(text) for text in regressions]


def _regression(text: str) -> dict[str, Any]:
    """The query of a text such as stay 0 60 on age 0 110, sex 0 1."""
    target, word, inputs = text.partition(" on ")
    parts = [part.split() for part in (target, *inputs.split(","))]
    if not word or any(len(part) != 3 for part in parts):
        rule = "must name a column, the word on, and other columns, each with its bounds"
        raise InputError("regression", text, rule, "write such as stay 0 60 on age 0 110, sex 0 1")
    bounds = {name: [_number(f"LOW of {name}")(low), _number(f"HIGH of {name}")(high)] for name, low, high in parts}
    names = [name for name, _, _ in parts]
    title = f"{names[0]} by {', '.join(names[1:])}"
    return {"name": title, "kind": "linear_regression", "target": names[0], "bounds": bounds}


def _parse_queries(text: str) -> list[dict[str, Any]]:
    shapes = {"count": 2, "mean": 3, "histogram": 2}
    words = [part.split() for part in text.split(";") if part.strip()]
    for each in words:
        if each[0] != "regression" and (each[0] not in shapes or len(each) != 1 + shapes[each[0]]):
            remedy = "add other queries to the study file later"
            raise InputError("query", " ".join(each), f"must be {_SHAPES_TEXT}", remedy)
    chosen = {kind: [each[1:] for each in words if each[0] == kind] for kind in shapes}
    regressions = [" ".join(each[1:]) for each in words if each[0] == "regression"]
    queries = _queries(chosen["count"], chosen["mean"], chosen["histogram"], regressions=regressions)
    if not queries:
        raise InputError("query", text, "is missing", "write such as count age 65")
    return queries


@click.command()
@click.argument("study_file", metavar="STUDY", type=_FILE)
@click.option("--out", type=_FILE, help="Folder for the files. Default: invitations, beside the study.")
@click.option("--relay", "url", help="Address of the relay, for the command that each party runs.")
@click.option("--session", type=int, help="Number of the session. Default: what the study says.")
@queries_option
def invite(study_file: Path, out: Path | None, url: str | None, session: int | None, queries_file: Path | None) -> None:
    """Write a file for every party of a STUDY: the study, its fingerprint and the exact command to join.

    Send each party its file. A party without a public key is asked to make one; add what it returns with tpmdp accept,
    and invite again.
    """
    from tpmdp.cli.study import read_study
    from tpmdp.engines.relay.mailbox import check_url
    from tpmdp.study.invitation import write_invitations

    study = read_study(study_file, session, None, queries_file=queries_file)
    with as_flags({"relay": "--relay"}):
        relay = None if url is None else check_url(url, False)
    folder = out if out is not None else study_file.parent / "invitations"
    paths = write_invitations(study, folder, relay=relay)
    lacking = [party.name for party in study.parties if party.public_key is None]
    for path in paths:
        click.echo(f"wrote {path}")
    if lacking:
        text = f"no public key yet of {', '.join(lacking)}: add each with tpmdp accept, and invite again"
        click.echo(f"tpmdp: {text}", err=True)


@click.command()
@click.argument("study_file", metavar="STUDY", type=_FILE)
@click.argument("name")
@click.argument("public_key", required=False)
@click.option("--replace", is_flag=True, help="Take another key than the one that the study has.")
@queries_option
def accept(study_file: Path, name: str, public_key: str | None, replace: bool, queries_file: Path | None) -> None:
    """Write the PUBLIC_KEY that a party NAME has returned into a STUDY file.

    Also takes the whole line that tpmdp keygen prints, in quotes, in place of NAME and PUBLIC_KEY. Comments in the file
    stay.

    Example: tpmdp accept flu/study.toml 'north = "ed25519:..."'
    """
    from tpmdp.queries.custom import load_queries
    from tpmdp.study.invitation import accept_key, key_for, parse_key_line
    from tpmdp.study.model import Study

    with as_flags({"public key": "PUBLIC_KEY"}):
        name, public_key = parse_key_line(name) if public_key is None else (name, key_for(name, public_key))
    kinds = load_queries(queries_file)
    changed = accept_key(study_file, name, public_key, replace=replace, kinds=kinds)
    click.echo(
        f"wrote the key of {name} to {study_file}" if changed else f"{study_file} has this key of {name} already"
    )
    lacking = [party.name for party in Study.read(study_file, kinds).parties if party.public_key is None]
    click.echo(f"still without a key: {', '.join(lacking)}" if lacking else "all parties have keys")


@click.command()
@click.argument("name")
@click.option("--out", type=_FILE, help="Where to write the key file. Default: NAME.key.")
def keygen(name: str, out: Path | None) -> None:
    """Make a key for the party NAME, and print its name and public key.

    The key file is secret and only you can read it. Send the printed line to the author of the study.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from tpmdp.study.identity import check_name, write_key
    from tpmdp.study.peers import peer_line

    checked = check_name("NAME", name)
    path = out if out is not None else Path(checked + _SUFFIX)
    identity = Ed25519PrivateKey.generate()
    write_key(path, identity)
    click.echo(
        f"wrote {path}; keep it secret. For the author of the study (tpmdp key show {path} prints it again):", err=True
    )
    click.echo(peer_line(checked, identity.public_key().public_bytes_raw()))


@click.group(cls=WholeSummaries)
def key() -> None:
    """What a key file holds, without its secret."""


@key.command()
@click.argument("key_file", metavar="KEY", type=_FILE)
@click.option("--name", help="Name of the party. Default: the file's name without .key.")
def show(key_file: Path, name: str | None) -> None:
    """Print name and public key, as tpmdp keygen did."""
    from tpmdp.study.identity import check_name, read_key
    from tpmdp.study.peers import peer_line

    identity = read_key(key_file)
    checked = check_name("--name", key_file.stem if name is None else name)
    click.echo(peer_line(checked, identity.public_key().public_bytes_raw()))
