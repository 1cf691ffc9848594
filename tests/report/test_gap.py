"""The gap between training and unseen graphs."""

import pytest

from graphbench.report import result_tables
from graphbench.report.gap import gap_section, looked_at_test
from graphbench.report.page import render

HEADER = "epoch,step,split,measure,train,unseen,gap,stage\n"


def write(folder, *rows):
    (folder.diagnostics / "train_test_gap.csv").write_text(HEADER + "".join(f"{row}\n" for row in rows))


def test_without_a_table_there_is_no_section(make_run):
    folder = make_run("a")
    table = result_tables([folder])[0]
    assert gap_section(table, "g") is None
    write(folder)
    assert gap_section(result_tables([folder])[0], "g") is None


def test_validation_is_a_panel_and_the_last_test_a_sentence(make_run):
    folders = [make_run(f"g{seed}", seed=seed) for seed in range(2)]
    for seed, folder in enumerate(folders):
        write(
            folder,
            "1,10,val,MAE,0.9,1.0,0.1,fit",
            "1,10,val,loss,0.9,1.0,0.1,fit",
            "2,20,val,MAE,0.5,0.8,0.3,fit",
            "2,20,test,MAE,0.1,0.1,0.0,test",
            f"{2 - seed},20,test,MAE,0.5,{0.9 + 0.2 * seed},{0.4 + 0.2 * seed},test",
        )
    section = gap_section(result_tables(folders)[0], "g")
    assert len(section.panels) == 1
    (note,) = section.notes
    assert note == (
        "GPS, tested checkpoints of epochs 1, 2: MAE 0.5000 on the training graphs, 1.0000 on the test split, "
        "gap 0.5000 ± 0.1414 over 2 runs."
    )


@pytest.mark.parametrize(("epoch", "said"), [(3, "tested checkpoint of epoch 3"), (0, "tested checkpoint")])
def test_the_sentence_names_the_epoch_of_the_tested_checkpoint(make_run, epoch, said):
    folder = make_run("a")
    write(folder, f"{epoch},20,test,MAE,0.5,0.9,0.4,test")
    (note,) = gap_section(result_tables([folder])[0], "g").notes
    assert note.startswith(f"GPS, {said}: MAE 0.5000")


def test_broken_rows_are_left_out(make_run):
    folder = make_run("a")
    write(folder, "1,10,val,MAE,x,y,z,fit", "2,20,val,MAE,0.5,0.8,0.3,fit", ",,,,,,,")
    section = gap_section(result_tables([folder])[0], "g")
    assert len(section.panels) == 1


@pytest.mark.slow
def test_a_test_split_looked_at_in_training_has_its_own_panel_and_is_marked(make_run):
    folder, other = make_run("a"), make_run("b", architecture="GIN")
    write(folder, "1,10,val,MAE,0.5,0.8,0.3,fit", "1,10,test,MAE,0.5,0.9,0.4,fit", "2,20,test,MAE,0.5,0.7,0.2,fit")
    write(other, "1,10,val,MAE,0.5,0.8,0.3,fit", "1,10,test,MAE,0.5,0.9,0.4,test")
    table = result_tables([folder, other])[0]
    section = gap_section(table, "g")
    titles = [panel.figure for panel in section.panels]
    assert len(titles) == 2
    assert "test split, looked at in training over epochs of GPS" in titles[1]
    assert [note.partition(",")[0] for note in section.notes] == ["GIN"], "no test of a checkpoint for GPS"
    assert [looked_at_test(group) for group in table.groups] == [group.label == "GPS" for group in table.groups]
    page = render([table])
    assert "GPS: the test split was looked at while training" in page
    assert "GIN: the test split" not in page
