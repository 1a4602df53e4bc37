"The page on VISAT, in miniature: every block is measured, kept in parts, and replayed."
import pytest
from robustness_nb.claims import claims, judge_all
from robustness_nb.runs import experiments, read_parameters, resolve, run

TINY = dict(n_train=256, n_test=16, width=2, vit_width=8, vit_depth=1, epochs=1, frozen_epochs=1, pretraining_epochs=1, size=16, steps=2, step_size=.1, severities=[1, 5], corruptions=["gaussian_noise", "contrast"])

@pytest.mark.slow
def test_a_miniature_measures_all_four_blocks_and_is_replayed(tmp_path):
    pytest.importorskip("torch")
    done = run("visat_recorr", TINY, output=tmp_path, progress=False)
    metrics, rows = done.record.metrics, done.record.rows
    assert set(metrics["clean"]) == {"RBFT", "VBFT", "RMFT", "VMFT", "RMFTL", "VMFTL"}
    for mode in "eval", "train":
        pairs = metrics["attacks"][mode]
        assert len(pairs) == 12 and pairs["RMFT>VMFT"]["text"]["target"] == "text" and set(pairs["RBFT>VBFT"]) == {"clean", "class"}
    assert metrics["attacks"]["eval"]["VMFT>RMFT"] == metrics["attacks"]["train"]["VMFT>RMFT"] # no batch normalisation, no difference
    assert set(metrics["shift"]["RMFT"]) == {"clean", *(f"{c}/{s}" for c in TINY["corruptions"] for s in (1, 5))}
    assert len(metrics["examples"]) >= 1 + 4 + 2 and set(metrics["examples"][0]["answers"]) == {"colour", "shape", "symbol", "text"}
    assert rows and all(row["low"] <= row["value"] <= row["high"] and row["n"] == 16 for row in rows)
    assert run("visat_recorr", TINY, output=tmp_path, progress=False).replayed
    assert len(list((tmp_path/"parts").glob("visat_recorr-*.json"))) == 6 + 6 + 1 + 1

def test_every_claim_of_the_sheet_is_there():
    found = claims("visat_recorr")
    assert {claim.statement.split(":")[0] for claim in found} == {str(n) for n in range(1, 16)}
    assert len({claim.id for claim in found}) == len(found)
    assert all(verdict.verdict == "not tested at this preset" for verdict in judge_all("visat_recorr", {}))

@pytest.mark.parametrize("change, words", [(dict(dataset="imagenet"), "dataset"), (dict(modes=["eval", "eval"]), "twice"), (dict(networks=["resnet18"]), "networks"), (dict(eps=2.), "eps"),
                                           (dict(corruptions=["rain"]), "corruption"), (dict(seeds=[]), "seeds"), (dict(size=8), "size"), (dict(pretraining="mnist"), "pretraining")])
def test_bad_parameters(change, words):
    with pytest.raises(ValueError, match=words): resolve("visat_recorr", dict(preset="quick") | change)

def test_presets_name_two_networks_and_known_parameters():
    for preset in experiments()["visat_recorr"]["presets"].values():
        assert preset.keys() <= read_parameters("visat_recorr").keys() and len(preset["networks"]) == 2
