"""OpenADMET's challenges from small files in the published layout: splits, scales, gaps and unusable files."""

from __future__ import annotations

import math

import pandas as pd
import pytest
import torch
from ring_molecules import SMILES

from graphbench.benchmarks import OpenADMET
from graphbench.errors import BadInput, CorruptData, MissingData

EXPANSION = ["LogD", "KSOL", "HLM CLint", "MLM CLint", "Caco-2 Permeability Papp A>B", "Caco-2 Permeability Efflux",
             "MPPB", "MBPB", "MGMB"]  # fmt: skip
#: Target columns, and whether challenges score their logarithm.
LAYOUTS = {
    "expansionrx": dict.fromkeys(EXPANSION, True) | {"LogD": False},
    "pxr": {"pEC50": False},
    "antiviral-admet": {"MLM": True, "HLM": True, "KSOL": True, "LogD": False, "MDR1-MDCKII": True},
    "antiviral-potency": {"pIC50 (MERS-CoV Mpro)": False, "pIC50 (SARS-CoV-2 Mpro)": False},
}


def measured(column, number):
    """Return the value of molecule `number`: every fifth is missing, and some are below zero, as from noise."""
    return None if (number + len(column)) % 5 == 0 else number - 2.0


def write(folder, challenge):
    """Write the files of a challenge: molecules 0 to 19 train, 20 to 29 test."""
    folder.mkdir(parents=True)
    rows = [
        {"Molecule Name": f"E-{number}", "SMILES": smiles}
        | {column: measured(column, number) for column in LAYOUTS[challenge]}
        for number, smiles in enumerate(SMILES[:30])
    ]
    table = pd.DataFrame(rows)
    if challenge.startswith("antiviral"):
        table["Set"] = ["Train"] * 20 + ["Test"] * 10
        table["CXSMILES"] = table.pop("SMILES") + " |o1:0|"
        names = {"antiviral-admet": "ADMET.csv", "antiviral-potency": "Potency.csv"}
        table.to_csv(folder / names[challenge], index=False)
    elif challenge == "pxr":
        table["pEC50_std.error (-log10(molarity))"] = 0.1
        table[:20].to_csv(folder / "pxr-challenge_TRAIN.csv", index=False)
        table[20:24].to_csv(folder / "pxr-challenge_TEST_PHASE_1_UNBLINDED.csv", index=False)
        table[24:].to_csv(folder / "pxr-challenge_TEST_PHASE_2_UNBLINDED.csv", index=False)
    else:
        table[:20].to_csv(folder / "expansion_data_train.csv", index=False)
        table[20:].to_csv(folder / "expansion_data_test.csv", index=False)


def opened(root, challenge, **options):
    write(root / "OpenADMET" / challenge, challenge)
    data = OpenADMET(challenge, root=str(root), **options)
    data.setup()
    return data


@pytest.mark.parametrize("challenge", LAYOUTS)
def test_parts_targets_and_gaps_are_those_of_the_files(challenge, tmp_path):
    data = opened(tmp_path, challenge)
    layout = LAYOUTS[challenge]
    names = {f"log {name}" if logged else name: (name, logged) for name, logged in layout.items()}
    assert set(data.spec.target_names) == set(names)
    seen = {}
    for split, numbers in (("train", range(20)), ("val", range(20)), ("test", range(20, 30))):
        for name, row in zip(data.ids(split), data.tables[split].columns["y"], strict=True):
            number = int(name.removeprefix("E-"))
            assert number in numbers
            seen[number] = split
            for target, value in zip(data.spec.target_names, row.tolist(), strict=True):
                column, logged = names[target]
                truth = measured(column, number)
                if truth is None:
                    assert math.isnan(value)
                else:
                    assert value == pytest.approx(math.log10(max(truth, 0) + 1) if logged else truth)
    known = {n for n in range(30) if any(measured(column, n) is not None for column in layout)}
    assert set(seen) == known, "molecules without any value are left out, all others appear once"
    assert sum(split == "val" for split in seen.values()) in (2, 3), "a ninth of training and validation"


def test_a_chosen_endpoint_has_its_molecules_alone(tmp_path):
    data = opened(tmp_path, "expansionrx", target="KSOL", split="scaffold")
    assert data.spec.target_names == ("log KSOL",)
    assert not torch.cat([data.tables[split].columns["y"] for split in data.tables]).isnan().any()
    whole = OpenADMET("expansionrx", root=str(tmp_path))
    whole.setup()
    assert len(whole.tables["train"]) > len(data.tables["train"])
    assert whole.fingerprint() != data.fingerprint()


def test_another_release_of_the_files_counts(tmp_path):
    before = opened(tmp_path, "pxr")
    path = tmp_path / "OpenADMET" / "pxr" / "pxr-challenge_TRAIN.csv"
    table = pd.read_csv(path)
    table.assign(pEC50=table["pEC50"] + 1).to_csv(path, index=False)
    after = OpenADMET("pxr", root=str(tmp_path))
    after.setup()
    means = [data.tables["train"].columns["y"].nanmean().item() for data in (before, after)]
    assert means[1] - means[0] == pytest.approx(1)


def test_what_is_not_there_is_named(tmp_path):
    with pytest.raises(BadInput, match=r"KSol.*'KSOL'"):
        OpenADMET("expansionrx", target="KSol")
    with pytest.raises(BadInput, match=r"expansion.*pxr"):
        OpenADMET("expansion")
    with pytest.raises(MissingData) as caught:
        OpenADMET("pxr", root=str(tmp_path)).check_source()
    for name in ("pxr-challenge_TRAIN.csv", "PHASE_1_UNBLINDED.csv", "PHASE_2_UNBLINDED.csv"):
        assert name in str(caught.value), "one message lists all files"
    folder = tmp_path / "OpenADMET" / "antiviral-potency"
    write(folder, "antiviral-potency")
    table = pd.read_csv(folder / "Potency.csv")
    table.assign(Set=table["Set"].str.lower()).to_csv(folder / "Potency.csv", index=False)
    with pytest.raises(CorruptData, match="'Set'"):
        OpenADMET("antiviral-potency", root=str(tmp_path)).setup()
    folder = tmp_path / "OpenADMET" / "antiviral-admet"
    write(folder, "antiviral-admet")
    pd.read_csv(folder / "ADMET.csv").drop(columns=["HLM"]).to_csv(folder / "ADMET.csv", index=False)
    with pytest.raises(CorruptData, match="HLM"):
        OpenADMET("antiviral-admet", root=str(tmp_path)).setup()
