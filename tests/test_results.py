"The published records: whole, made by a clean clone, and what this code still measures."
import pytest
from conftest import ROOT
from robustness_nb.datasets import digits, split
from robustness_nb.evaluation import corruption_report
from robustness_nb.models import fit
from robustness_nb.records import fingerprint, load
from robustness_nb.runs import read_parameters, resolve

RESULTS = sorted((ROOT / "results").glob("*.json"))


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_records_are_whole_and_traceable(path):
    record = load(path)
    assert record.file_name == path.name
    assert all(code["commit"] and code["dirty"] is False for code in record.code.get("runs", [record.code]))
    experiment = record.experiment.removesuffix("_sweep") # as `collect` makes it
    assert record.parameters.keys() == read_parameters(experiment).keys() - {"preset", "rerun"}
    assert record.rows and all("right" in row or row["low"] <= row["value"] <= row["high"] and row["n"] > 0 for row in record.rows)


@pytest.mark.parametrize("model", ["svc", "knn"])
def test_the_digits_record_is_measured_again(model):
    parameters = resolve("digits_gap", dict(preset="laptop"))
    [record] = [r for r in map(load, RESULTS) if r.parameters == parameters]
    train, test = split(digits(), parameters["test_size"], parameters["split_seed"])
    assert record.data == fingerprint(train, test)
    seed = parameters["seeds"][-1]
    rows = corruption_report({model: fit(model, train)}, test, corruptions=parameters["corruptions"], severities=parameters["severities"], seeds=[seed]).rows()
    assert rows == [row for row in record.rows if row["model"] == model and row["seed"] in (None, seed)]
