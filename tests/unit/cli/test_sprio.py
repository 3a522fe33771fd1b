"""sprio's columns, from parts that the controller reckoned."""

from __future__ import annotations

import io

import pytest
from msgspec.structs import replace

from spritz.cli.call.already_reported import AlreadyReported
from spritz.cli.call.context import Context
from spritz.cli.listings.priority.listing import PriorityListing
from spritz.cli.sprio import main
from spritz.model.cluster.priority import PriorityFactors, PriorityWeights
from spritz.model.queries.priorities import Priorities

WEIGHTS = PriorityWeights(age=1000, job_size=400, tres=(("cpu", 100.0), ("gres/gpu", 50.0)))


def factors(job_id: int, user: str, age: float, priority: int, nice: int = 0) -> PriorityFactors:
    return PriorityFactors(
        job_id=job_id,
        partition="main",
        user=user,
        account="ml",
        qos="normal",
        age=age,
        job_size=0.25,
        tres=(("cpu", 0.5), ("gres/gpu", 0.1)),
        nice=nice,
        priority=priority,
    )


PIECES = [
    Priorities(now=0.0, weights=WEIGHTS, rows=[factors(7, "ann", 0.5, 655)]),
    Priorities(now=0.0, weights=WEIGHTS, rows=[factors(3, "bob", 0.25, 395, nice=10)]),
]


def shown(**given: str) -> list[str]:
    out = io.StringIO()
    context = Context("sprio", {}, "/", io.StringIO(), out, io.StringIO())
    PriorityListing(given, context).show({"": PIECES})
    return out.getvalue().splitlines()


def test_a_job_of_a_federation_is_shown_once_or_with_every_copy() -> None:
    answers = {"one": PIECES, "two": [replace(PIECES[0], weights=PriorityWeights(age=10))]}

    def lines(**given: str) -> list[list[str]]:
        out = io.StringIO()
        context = Context("sprio", {}, "/", io.StringIO(), out, io.StringIO())
        PriorityListing(given, context).show(answers)
        return [line.split() for line in out.getvalue().splitlines()[1:]]

    assert lines(format="%i %c %A") == [["3", "one", "250"], ["7", "one", "500"]]
    # Each with the weights of its own cluster.
    assert lines(format="%i %c %A", sibling="") == [["3", "one", "250"], ["7", "one", "500"], ["7", "two", "5"]]
    assert [row[:3] for row in lines(sibling="")] == [["3", "main", "one"], ["7", "main", "one"], ["7", "main", "two"]]


def test_there_is_a_column_for_each_factor_that_weighs_anything() -> None:
    assert shown() == [
        "          JOBID PARTITION   PRIORITY       SITE        AGE    JOBSIZE                 TRES",
        "              3 main             395          0        250        100    cpu=50,gres/gpu=5",
        "              7 main             655          0        500        100    cpu=50,gres/gpu=5",
    ]


def test_long_shows_all_of_them_with_users_and_nice_values() -> None:
    heading, first, _ = shown(long="")
    assert heading.split() == (
        [
            "JOBID",
            "PARTITION",
            "USER",
            "PRIORITY",
            "SITE",
            "AGE",
            "ASSOC",
            "FAIRSHARE",
            "JOBSIZE",
            "PARTITION",
            "QOS",
            "NICE",
            "TRES",
        ]
    )
    assert first.split()[:13] == [
        "3",
        "main",
        "bob",
        "395",
        "0",
        "250",
        "0",
        "0",
        "100",
        "0",
        "0",
        "10",
        "cpu=50,gres/gpu=5",
    ]


def test_norm_shows_factors_before_their_weights() -> None:
    assert shown(norm="")[:2] == [
        "          JOBID PARTITION PRIORITY   AGE        JOBSIZE    TRES                ",
        "              3 main      0.00000009 0.2500000  0.2500000  cpu=0.50,gres/gpu=0.",
    ]
    assert shown(norm="", weights="")[1] == f"        Weights{' ' * 22}1000       400{' ' * 28}"


def test_what_weighs_nothing_is_not_reckoned() -> None:
    row = replace(factors(3, "bob", 0.25, 395), qos_factor=0.5)
    out = io.StringIO()
    context = Context("sprio", {}, "/", io.StringIO(), out, io.StringIO())
    PriorityListing({"format": "%a %q", "noheader": ""}, context).show(
        {"": [Priorities(now=0.0, weights=WEIGHTS, rows=[row])]}
    )
    assert out.getvalue() == "0.2500000 0.0000000\n"


def test_an_unknown_letter_is_left_out_with_the_text_behind_it() -> None:
    assert shown(format="x%.5Zab|%i;%Y", noheader="") == ["x3;395", "x7;655"]


@pytest.mark.parametrize("noheader", [False, True])
def test_jobs_that_do_not_wait_are_not_found(noheader: bool) -> None:
    given = {"jobs": "9"} | ({"noheader": ""} if noheader else {})
    out = io.StringIO()
    context = Context("sprio", {}, "/", io.StringIO(), out, io.StringIO())
    PriorityListing(given, context).show({"": [Priorities(now=0.0, weights=WEIGHTS, rows=[])]})
    assert out.getvalue() == "Unable to find jobs matching user/id(s) specified\n"


def test_weights_are_shown_without_jobs() -> None:
    assert shown(weights="")[1:] == [
        "        Weights                               1       1000        400  cpu=100,gres/gpu=50"
    ]


@pytest.mark.parametrize(
    ("sort", "order"), [("i", ["3", "7"]), ("-y", ["7", "3"]), ("u", ["7", "3"]), ("-A", ["7", "3"])]
)
def test_rows_can_be_sorted(sort: str, order: list[str]) -> None:
    assert [line.split()[0] for line in shown(sort=sort, noheader="")] == order


@pytest.mark.parametrize(("letter", "wanted"), [("%T", "cpu=50"), ("%t", "cpu=0.50")])
def test_what_a_job_does_not_ask_for_is_no_part_of_its_priority(letter: str, wanted: str) -> None:
    row = replace(factors(3, "bob", 0.25, 395), tres=(("cpu", 0.5), ("gres/gpu", 0.0)))
    out = io.StringIO()
    context = Context("sprio", {}, "/", io.StringIO(), out, io.StringIO())
    PriorityListing({"format": letter, "noheader": ""}, context).show(
        {"": [Priorities(now=0.0, weights=WEIGHTS, rows=[row])]}
    )
    assert out.getvalue().strip() == wanted


def test_a_letter_that_is_none_sorts_nothing() -> None:
    with pytest.raises(AlreadyReported) as ended:
        shown(sort="zz")
    assert ended.value.exit_code == 1


@pytest.mark.parametrize("argv", [["-j", "3"], ["-j3"], ["--jobs=3"], ["--jobs", "3"], ["-h", "-j", "3", "-l"]])
def test_jobs_are_named_behind_a_blank_too(argv: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[dict[str, str]] = []

    def asked(given: dict[str, str], _: Context, several: object) -> int:
        said.append(given)
        return 0

    monkeypatch.setattr("spritz.cli.sprio._run", asked)
    assert main(argv, Context("sprio", {}, "/", io.StringIO(), io.StringIO(), io.StringIO())) == 0
    assert said[0]["jobs"] == "3"


def test_verbose_says_what_was_asked_for() -> None:
    """As 22.05 prints it."""
    out = io.StringIO()
    context = Context("sprio", {}, "/", io.StringIO(), out, io.StringIO())
    main(["-vv", "-j", "1", "--users=ann", "--sort=nosuch,,"], context)
    rule = "-" * 29
    assert out.getvalue().startswith(
        f"{rule}\nformat     = (null)\njob_flag   = 1\njobs       = 1\npartition  = (null)\nusers      = ann\n"
        f"verbose    = 2\n{rule}\n\n\n"
    )
