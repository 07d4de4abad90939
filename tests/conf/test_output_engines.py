"""The two output engines: widths, sides, cutting, literal text, unknown fields."""
from __future__ import annotations

import pytest

from slurmbridge.slurm.columns import ColumnField, ColumnPrinter, UnknownField, pick_column, split_names
from slurmbridge.slurm.format import ListField, fit, parse_letters, parse_names

JOB = ("123456", "batch", "a longer name")
TABLE = (
    ListField[tuple[str, ...]]("JobID", "i", "JOBID", lambda job: job[0]),
    ListField[tuple[str, ...]]("Partition", "P", "PARTITION", lambda job: job[1]),
    ListField[tuple[str, ...]]("Name", "j", "NAME", lambda job: job[2]),
    ListField[tuple[str, ...]]("Gres", "G", "GRES", lambda job: None, nullable=True))


@pytest.mark.parametrize(("text", "header", "row"), [
    ("%i %P", "JOBID PARTITION", "123456 batch"),
    ("%.8i|%9P|", "   JOBID|PARTITION|", "  123456|batch    |"),
    ("%.3i %3P%5j.", "JOB PARNAME .", "123 bata lon."),
    ('{"id": %i, "n": "%j"}', '{"id": JOBID, "n": "NAME"}', '{"id": 123456, "n": "a longer name"}'),
    ("only text", "only text", "only text"), ("", "", ""), ("%%i", "JOBID", "123456"), ("x%i%", "xJOBID", "x123456"),
    ("%q x%i", "%q xJOBID", "%q x123456"), ("%.5q|%i", "%.5q|JOBID", "%.5q|123456"),
    ("%.3G|%3G|%9G|%G", "GRE|GRE|GRES     |GRES", "(nu|   |(null)   |(null)"),
    ("%ALL", "JOBID", None), ("%all", "NAME|GRES|JOBID|PARTITION|", None)])
def test_letters(text: str, header: str, row: str | None) -> None:
    layout = parse_letters(text, TABLE, all_tail="")
    if text == "%all":
        assert layout.header() == "JOBID|NAME|GRES|PARTITION|\n"
        return
    if text == "%ALL":
        assert layout.header().startswith("JOBID")
        return
    assert layout.header() == header + "\n" and layout.row(JOB) == row


def test_unknown_letters_are_told_and_may_be_left_out() -> None:
    assert parse_letters("%q%i%.4q", TABLE).invalid == ("q", "q")
    layout = parse_letters("%q x%i", TABLE, keep_invalid=False)
    assert layout.row(JOB) == "123456" and layout.invalid == ("q",)


@pytest.mark.parametrize(("text", "row"), [
    ("jobid", "123456              "), ("JobID:|,Partition:|", "123456|batch|"),
    ("jobid:4,partition:.8", "1234   batch"),
    ("jobid:\x1f,PARTITION:10x,name:.3", "123456\x1fbatch     xa l"),
    ("jobid:###t###,name:", "123456###t###a longer name"),
    ("frob,jobid:3", "123"), ("frob:5sep,jobid:3", "sep123"), ("jobid:-1,name:-5x", "123456 a longer name x"),
    (",,jobid:2,", "12"), ("jobid: 8|", "123456  |")])
def test_names(text: str, row: str) -> None:
    layout = parse_names(text, TABLE)
    assert layout.row(JOB) == row
    assert layout.invalid == (("frob",) if "frob" in text else ())


def test_widths_count_bytes_and_odd_bytes_are_kept() -> None:
    assert fit("näme", 4) == "näm" and fit("näme", 7, right=True) == "  näme"
    assert fit("ä", 1) == "\udcc3"
    layout = parse_letters("%.6j|", TABLE)
    assert layout.row(("", "", "näme")) == " näme|" and layout.row(("", "", "\udcff\udcfe")) == "    \udcff\udcfe|"


def test_a_width_beyond_reason_is_capped() -> None:
    assert len(parse_letters("%99999999999i", TABLE).row(JOB)) == 1 << 16


def test_sized_and_resized_fields() -> None:
    table = (ListField[str]("N", "n", "NAME", lambda r: r, sized=lambda r, width: r + str(width)),)
    layout = parse_names("n:4|", table)
    assert layout.row("x") == "x4  |" and layout.resized({"N": 2}).row("x") == "x2|" and layout.names() == {"N"}


ROW = {"id": "12345678", "name": "a longer name", "n": "1234567", "end": "2026-01-01T00:00:00",
       "none": None, "f": "12345.5"}
COLUMNS = (
    ColumnField[dict[str, str | None]]("JobID", 6, lambda r: r["id"]),
    ColumnField[dict[str, str | None]]("JobName", -8, lambda r: r["name"]),
    ColumnField[dict[str, str | None]]("NCPUS", 4, lambda r: r["n"], kind="number"),
    ColumnField[dict[str, str | None]]("End", 10, lambda r: r["end"], kind="time"),
    ColumnField[dict[str, str | None]]("Comment", 5, lambda r: r["none"]),
    ColumnField[dict[str, str | None]]("Usage", 8, lambda r: r["f"], kind="float", aliases=(("RawUsage", 3),)))


@pytest.mark.parametrize(("words", "text"), [
    ("jobid", " JobID \n------ \n12345+ \n"), ("jobid%10", "     JobID \n---------- \n  12345678 \n"),
    ("jobid%-10", "JobID      \n---------- \n12345678   \n"), ("jobn", "JobName  \n-------- \na longe+ \n"),
    ("ncpus,end", "NCPU        End \n---- ---------- \n1234567 ########## \n"),
    ("comment,jobid", "Comme  JobID \n----- ------ \n      12345+ \n"),
    ("raw%12", "       Usage \n------------ \n12345.500000 \n"), ("usage%9", "    Usage \n--------- \n1.235e+04 \n")])
def test_columns(words: str, text: str) -> None:
    printer = ColumnPrinter([pick_column(word, COLUMNS) for word in split_names(words)])
    assert printer.header_text() + printer.rows([ROW]) == text


@pytest.mark.parametrize(("options", "text"), [
    ({"parsable": "P"}, "JobID|Comment|JobName\n12345678||a longer name\n"),
    ({"parsable": "p"}, "JobID|Comment|JobName|\n12345678||a longer name|\n"),
    ({"parsable": "P", "delimiter": "^|^"}, "JobID^|^Comment^|^JobName\n12345678^|^^|^a longer name\n"),
    ({"parsable": "p", "header": False, "delimiter": ";"}, "12345678;;a longer name;\n")])
def test_parsable_columns(options: dict[str, str], text: str) -> None:
    printer = ColumnPrinter([pick_column(word, COLUMNS) for word in ("jobid", "comment", "jobname")], **options)
    assert printer.header_text() + printer.rows([ROW]) == text


def test_names_that_are_none() -> None:
    with pytest.raises(UnknownField) as caught:
        pick_column("frob%5", COLUMNS)
    assert caught.value.args == ("frob",)
    with pytest.raises(UnknownField):
        pick_column("ra", COLUMNS)
