"""Reports: what is read back, tables beside the published ones, computed verdicts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lab_runs import quick

from fastfill.errors import FileError, InputError
from fastfill.lab.claims import CLAIMS, FAILS, HOLDS, PARTLY, beats, judge_claims
from fastfill.lab.experiments import EXPERIMENTS, choose_experiments
from fastfill.lab.markdown_report import authors, body, provenance, write_report
from fastfill.lab.published_tables import PUBLISHED, published_for
from fastfill.lab.results import ExperimentResults, read_results
from fastfill.lab.tables import gap_fraction, main_table

Areas = dict[str, tuple[float, ...]]  # of each seed

MAIN: Areas = {
    "FCT": (0.50, 0.52),
    "FastFill-random": (0.54, 0.55),
    "FastFill": (0.56, 0.58),
    "FastFill-oracle": (0.58, 0.60),
    "BCT": (0.57, 0.54),
}


def comparison(name: str, low: float, high: float) -> dict[str, Any]:
    """FastFill's lead over a system, as a run keeps it."""
    middle = (low + high) / 2
    return {"metric": "map", "a": "FastFill", "b": name, "difference": middle, "low": low,
            "high": high, "level": 0.95, "p_value": 0.01}  # fmt: skip


def made(areas: Areas, seed: int, experiment: str = "main") -> dict[str, Any]:
    """A result in which every curve is a level line."""
    curve = {
        name: {
            "uses": "the new gallery (cheating)" if "oracle" in name else "pairs only",
            "curves": {
                metric: {
                    "area": values[seed],
                    "mean": values[seed],
                    "fractions": [0.0, 0.5, 1.0],
                    "values": [values[seed]] * 3,
                }
                for metric in ("cmc@1", "cmc@5", "map")
            },
        }
        for name, values in areas.items()
    }
    level = {"old/old": 0.30, "new/new": 0.60}
    plain = {name: dict.fromkeys(("cmc@1", "cmc@5", "map"), x) for name, x in level.items()}
    compared = [comparison("FCT", 0.01, 0.03), comparison("BCT", -0.02, 0.03)]
    test = {"images": 100, "plain": plain, "systems": curve, "comparisons": compared}
    return {"format": 1, "experiment": experiment, "data": "digits", "seed": seed,
            "command": "fastfill lab run main --data digits", "device": "cpu",
            "models": {"old": {"model": "tiny", "epochs": 2}},
            "map": {"method": "residual", "epochs": 1}, "tests": {"all": test}}  # fmt: skip


@pytest.fixture
def results() -> ExperimentResults:
    """Two seeds of `main`."""
    return ExperimentResults(
        EXPERIMENTS["main"], "digits", tuple(made(MAIN, seed) for seed in (0, 1))
    )


def write(folder: Path, result: dict[str, Any]) -> None:
    """Put a result where a run would."""
    path = folder / result["data"] / f"{result['experiment']}-seed{result['seed']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result))


def test_a_report_shows_views_and_what_models_have_memorised() -> None:
    """Results from before there were views were learned from fixed features."""
    plain, viewed = made(MAIN, 0), made(MAIN, 0)
    viewed["map"]["views"] = 20
    viewed["models"]["old"] |= {"train_accuracy": 0.996, "test_accuracy": 0.75}
    first, second = (
        provenance(ExperimentResults(EXPERIMENTS["main"], "digits", (one,)))
        for one in (plain, viewed)
    )
    assert "1 epochs, fixed features; models: old tiny (2 epochs)." in first
    assert "20 views of each image; models: old tiny (2 epochs, accuracy 99.6 % train" in second


def test_a_report_says_how_long_a_seed_took_where_nothing_was_reused() -> None:
    """Training of the models, of every seed; all of it only of seeds that trained their models."""
    seeds = [made(MAIN, seed) for seed in (0, 1)]
    for result, seconds in zip(seeds, (40.0, 60.0), strict=True):
        result["models"]["old"]["seconds"] = seconds
    seeds[0]["seconds"] = {"all": 90.0, "stages": {"training of tiny, seed 0": 40.0}}
    seeds[1]["seconds"] = {"all": 20.0, "stages": {"curve FastFill, seed 1": 3.0}}
    said = provenance(ExperimentResults(EXPERIMENTS["main"], "digits", tuple(seeds)))
    assert "in 50 s a seed; from backbones to tables 90 s a seed (1 of them)." in said
    before = provenance(ExperimentResults(EXPERIMENTS["main"], "digits", (made(MAIN, 0),)))
    assert "s a seed" not in before


def test_a_report_names_every_command_of_its_seeds() -> None:
    """Each once, so that the whole table can be made again; what `--without` leaves out is said."""
    seeds = [made({name: area * 2 for name, area in MAIN.items()}, seed) for seed in range(3)]
    for result, first in zip(seeds, (0, 1, 1), strict=True):
        result["command"] = f"fastfill lab run main --data digits --first-seed {first}"
    said = provenance(ExperimentResults(EXPERIMENTS["main"], "digits", tuple(seeds)))
    indented = [line.strip() for line in said.splitlines() if line.startswith("    ")]
    assert indented == [seeds[0]["command"], seeds[1]["command"]]
    assert "leaves models out" not in said
    seeds[2]["command"] += " --without bct"
    said = provenance(ExperimentResults(EXPERIMENTS["main"], "digits", tuple(seeds)))
    assert said.endswith("leaves models out of all tables but those of `main` and `top5`.")


def test_the_gap_closed_is_relative_to_fct_and_the_new_model(results: ExperimentResults) -> None:
    """(0.56 − 0.50)/(0.60 − 0.50) and (0.58 − 0.52)/(0.60 − 0.52), averaged."""
    closed = results.closed("all", "FastFill", "map")
    assert closed.mean == pytest.approx((0.6 + 0.75) / 2)
    assert results.closed("all", "BCT", "map").mean == pytest.approx((0.7 + 0.25) / 2)


def test_without_a_gap_nothing_is_closed() -> None:
    """Where FCT is as good as the new model, no share is made up."""
    level = {**MAIN, "FCT": (0.598, 0.599)}
    results = ExperimentResults(EXPERIMENTS["main"], "digits", (made(level, 0), made(level, 1)))
    assert str(results.closed("all", "FastFill", "map")) == "–"


def test_the_main_table_has_spread_significance_and_published_figures(
    results: ExperimentResults,
) -> None:
    """Mean ± deviation, the best that can be run in bold, leads with counts, the paper's rows."""
    table = main_table(results, "all")
    rows = {line.split("|")[1].strip(): line for line in table.splitlines()}
    assert "**57.0 ± 1.4**" in rows["FastFill"]
    assert "59.0 ± 1.4" in rows["FastFill-oracle"]
    assert "**" not in rows["FastFill-oracle"]
    assert "+2.00 (2/2)" in rows["FCT"]
    assert "+0.50 (0/2)" in rows["BCT"]
    assert "62.8 / 40.5" in rows["FCT"]
    assert "56.5 / 77.0 / 36.3" in rows["new/new"]


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [([("FastFill", "FCT")], HOLDS), ([("FCT", "FastFill")], FAILS),
     ([("FastFill", "BCT")], PARTLY), ([("FastFill", "FCT"), ("FCT", "FastFill")], PARTLY)],
)  # fmt: skip
def test_a_verdict_needs_every_seed(
    results: ExperimentResults, pairs: list[tuple[str, str]], expected: str
) -> None:
    """Ahead in all seeds holds, behind on average does not, anything between holds in part."""
    assert beats(results, "all", "Claim.", pairs)[0].verdict == expected


def test_a_claim_about_a_system_that_was_not_run_is_not_made(results: ExperimentResults) -> None:
    """No row, no sentence."""
    assert beats(results, "all", "Claim.", [("FastFill", "RACT-entropy")]) == []


@pytest.mark.parametrize(
    ("rows", "said", "missing"),
    [((), "FastFill is better than FCT.", "; BCT and RACT were not run"),
     (("BCT",), "FastFill is better than BCT and FCT.", "; RACT was not run"),
     (("BCT", "RACT-random"), "FastFill is better than BCT, RACT and FCT.", "")],
)  # fmt: skip
def test_a_verdict_names_only_what_was_run(rows: tuple[str, ...], said: str, missing: str) -> None:
    """What the paper compares with too, and was left out, is named as not run."""
    areas = {name: area for name, area in MAIN.items() if name != "BCT"}
    areas |= dict.fromkeys(rows, (0.40, 0.40))
    one = ExperimentResults(EXPERIMENTS["main"], "digits", tuple(made(areas, s) for s in (0, 1)))
    claim = judge_claims(one)[0]
    assert (claim.paper, claim.verdict) == (said, HOLDS)
    assert "FastFill against FCT +6.00 CMC top-1" in claim.found
    assert claim.found.endswith(missing)
    assert ("not run" in claim.found) == bool(missing)


HEADS = ("FastFill-entropy", "FastFill-margin", "FastFill-least-confidence")


@pytest.mark.parametrize(
    ("seen", "unseen", "expected"),
    [((-0.010, -0.010), (0.010, 0.020), HOLDS),
     ((-0.010, -0.010), (-0.007, -0.005), PARTLY),  # nearer, but no lead
     ((-0.010, -0.010), (0.010, -0.005), PARTLY),  # a lead in one seed
     ((0.010, 0.010), (0.005, 0.005), FAILS)],
)  # fmt: skip
def test_a_lead_that_is_larger_is_a_lead(
    seen: tuple[float, float], unseen: tuple[float, float], expected: str
) -> None:
    """σ must be ahead on classes never seen, not only less behind than on the others."""
    results = []
    for seed in (0, 1):
        result = made({"FastFill": (0.50, 0.50)}, seed, "unseen")
        result["tests"] = {
            test: made({"FCT": (0.4, 0.4), "FastFill": (0.5, 0.5)} | dict.fromkeys(
                HEADS, (0.5 - leads[0], 0.5 - leads[1])), seed)["tests"]["all"]
            for test, leads in (("[:5]", seen), ("[5:]", unseen))
        }  # fmt: skip
        results.append(result)
    claims = judge_claims(ExperimentResults(EXPERIMENTS["unseen"], "digits", tuple(results)))
    larger = next(claim for claim in claims if "is larger on classes never seen" in claim.paper)
    assert larger.verdict == expected
    assert ("where it is no lead" in larger.found) == (sum(unseen) <= 0)


def test_sentences_carry_their_figures(results: ExperimentResults) -> None:
    """The order by σ gains two points over random, half of what the oracle gains."""
    found = {claim.paper: claim for claim in judge_claims(results)}
    order = found["The order by σ is better than a random one."]
    assert "+2.50 mAP" in order.found
    near = next(claim for paper, claim in found.items() if "cheating" in paper)
    assert near.verdict == HOLDS
    assert "56 % of the oracle's gain in mAP" in near.found


def test_the_gap_between_groups_is_reached_at_the_first_fraction() -> None:
    """Half a point of tolerance around the new model's own gap; None if it never is."""
    groups = {"plain": {"new": {"majority": 0.9, "minority": 0.88}},
              "a": {"gap": [0.2, 0.1, 0.024, 0.03, 0.02]}, "b": {"gap": [0.2, 0.1]}}  # fmt: skip
    assert gap_fraction(groups, "a") == pytest.approx(0.5)
    assert gap_fraction(groups, "b") is None


def test_the_authors_relative_result_follows_from_their_figures() -> None:
    """61 % of the top-1 gap and 47 % of the mAP gap."""
    assert "61 % of the top-1 gap and 47 % of the mAP gap" in authors()


def test_published_tables_name_rows_that_are_run() -> None:
    """Every published row has its counterpart among the systems of the experiment."""
    for name, sources in PUBLISHED.items():
        known = {system.name for system in EXPERIMENTS[name].systems} | {"old/old", "new/new"}
        for source in sources:
            assert set(source.rows) <= known
    assert [published_for("unseen", i)[0].test for i in range(3)] == ["[:500]", "[500:]", "all"]


def test_results_of_other_settings_are_not_mixed(tmp_path: Path) -> None:
    """A table whose seeds were trained for different epochs is refused."""
    other = made(MAIN, 1)
    other["models"]["old"]["epochs"] = 3
    write(tmp_path, made(MAIN, 0))
    write(tmp_path, other)
    with pytest.raises(InputError, match="seeds 0 and 1 were run with other models"):
        read_results(tmp_path)


def test_a_folder_without_results_says_how_to_get_some(tmp_path: Path) -> None:
    """The message holds a command that can be copied."""
    with pytest.raises(FileError, match="fastfill lab run main --data digits"):
        read_results(tmp_path)


@pytest.mark.parametrize("content", ["{", "[]", '{"format": 9}', '{"format": 1}'])
def test_a_file_that_is_no_result_is_refused(tmp_path: Path, content: str) -> None:
    """The file is named."""
    (tmp_path / "digits").mkdir()
    (tmp_path / "digits" / "main-seed0.json").write_text(content)
    with pytest.raises(FileError, match=r"main-seed0\.json: is no result"):
        read_results(tmp_path)


def test_every_experiment_is_reported_from_a_real_run(digits: Path, tmp_path: Path) -> None:
    """Tables, verdicts and figures of all experiments, in one page with existing pictures."""
    found = read_results(digits)
    assert [one.experiment.name for one in found] == list(EXPERIMENTS)
    assert set(CLAIMS) == set(EXPERIMENTS)
    written = write_report(found, tmp_path / "report")
    page = (tmp_path / "report" / "digits.md").read_text()
    for one in found:
        assert one.experiment.title in page
        assert judge_claims(one)
    links = [part.split(")")[0] for part in page.split("](")[1:]]
    assert len(links) == len(set(links)) >= 14
    assert all((tmp_path / "report" / link).is_file() for link in links)
    assert {path.suffix for path in written} == {".md", ".svg", ".png"}


def test_main_on_digits_has_every_baseline(digits: Path) -> None:
    """Old, BCT, RACT, FCT, FastFill, oracle and new/new, for two seeds."""
    main = next(one for one in read_results(digits) if one.experiment.name == "main")
    assert main.seeds == [0, 1]
    assert main.systems("all") == [system.name for system in EXPERIMENTS["main"].systems]
    text = body(main)
    assert text.count(" ± ") > 20
    for name in main.systems("all"):
        if main.uses("all", name).startswith("labels and") or name == "No map":
            continue  # these end at another model, or start at another space
        ends = [main.curve(result, "all", name, "map").end for result in main.per_seed]
        assert ends == pytest.approx(main.areas("all", "new/new", "map"), abs=1e-5)


def test_models_are_left_out_of_all_tables_but_main(digits: Path, tmp_path: Path) -> None:
    """What `--without` says of `main` and `top5`, and what the verdicts then say."""
    runner = quick(digits.parent, without=("bct", "ract"))
    chosen = choose_experiments(["main", "top5", "unseen"], "digits")
    assert runner.run(chosen, tmp_path, lambda line: None) == []
    main, unseen, top5 = read_results(tmp_path)
    assert all({"BCT", "RACT-entropy"} <= set(one.systems("all")) for one in (main, top5))
    assert not {"BCT", "RACT-entropy"} & set(unseen.systems("all"))
    found = [claim.found for claim in judge_claims(unseen) if "better than FCT" in claim.paper]
    assert [text.endswith("RACT was not run") for text in found] == [True] * 3


def test_the_oracle_is_marked_and_never_the_best(digits: Path) -> None:
    """Its row says that it looks at the new gallery."""
    main = next(one for one in read_results(digits) if one.experiment.name == "main")
    row = next(line for line in main_table(main, "all").splitlines() if "oracle" in line)
    assert "cheating" in row
    assert "**" not in row
