"""From rows to tables: means, deviations and epochs computed by hand, and the paper's beside."""

from dataclasses import asdict

from demo_files import of_the_paper

experiments, report, stores = of_the_paper("experiments", "report", "store")
CPU = experiments.Options(preset="cpu")


def row(run, curves, when=0.0, **more):
    epochs = len(curves["test"])
    return {
        "id": run.id,
        "run": asdict(run),
        "epochs": epochs,
        "finished": epochs == run.epochs,
        "seconds": 2.0 * epochs,
        "device": "a chip",
        "threads": 1,
        "versions": {"torch": "0"},
        "when": when,
        "curves": curves,
    } | more


def cells(name, panel, method, seeds, options=CPU):
    every = [c for seed in seeds for c in experiments.EXPERIMENTS[name].cells(seed, options)]
    return [cell for cell in every if (cell.panel, cell.method) == (panel, method)]


def rows_of(chosen, curves):
    return {c.run.id: row(c.run, {"test": t}) for c, t in zip(chosen, curves, strict=True)}


def test_table_holds_mean_and_deviation_over_seeds_of_the_last_ten_epochs_and_the_papers():
    """By hand: the ends are 91 and 93, so 92 and sqrt(2); earlier epochs do not count."""
    chosen = cells("gap", "sym-50", "SIGUA_SL", (0, 1))
    ends = [[0.0] * 15 + [90.0, 92.0] * 5, [50.0] * 15 + [93.0] * 10]
    groups = stores.grouped(chosen, rows_of(chosen, ends))
    table = report.accuracy_table("gap", groups).splitlines()
    assert table[0] == "| method | sym-50 | paper |"
    assert table[2] == "| SIGUA_SL | 92.00 (1.41) | 98.10 (0.30) |"


def test_figure_1_in_numbers_is_read_at_the_shift_and_at_the_end():
    """By hand: 75 epochs before the shift in the cpu preset; all in memory from epoch 61 on."""
    chosen = cells("fig1", "deep", "SIGUA", (0,))
    curves = {
        "test": [20.0] * 75 + [95.0] * 45,
        "intact": [100.0] * 120,
        "flipped": [50.0] * 60 + [100.0] * 15 + [1.0] * 45,
    }
    groups = stores.grouped(chosen, {c.run.id: row(c.run, curves) for c in chosen})
    lines = report.memory_table(groups).splitlines()
    assert lines[2] == "| deep | SIGUA | 20.00 | 95.00 | 100.00 | 1.00 | 100.00 | 61 |"
    assert lines[3].startswith("| deep | SIGUA, the paper's | 23 | 95 |")


def test_page_is_honest_about_seeds_preset_and_unfinished_runs(tmp_path):
    chosen = cells("set1-mnist", "sym-20", "standard", (0, 3))
    assert not report.write("set1-mnist", "title", chosen, {}, tmp_path)
    assert not list(tmp_path.iterdir())  # nothing was trained
    rows = rows_of(chosen, [[80.0] * 25, [70.0] * 12])
    assert report.write("set1-mnist", "title", chosen, rows, tmp_path)
    page = (tmp_path / "title.md").read_text()
    assert "Seeds 0, 3; precision float32." in page
    assert "does not claim to be the paper's experiment" in page
    assert "1 of 2 runs are not finished: they end after 12 of 25 epochs" in page
    assert "2 runs on a chip (1 threads, torch 0), 2.00 s an epoch." in page
    assert (tmp_path / "title.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_finished_rows_win_over_unfinished_and_newer_ones_over_older(tmp_path):
    (cell,) = cells("set1-mnist", "sym-20", "standard", (0,))
    store = stores.Store(tmp_path)
    for name, epochs, when in [("a", 3, 1.0), ("b", 25, 2.0), ("a", 25, 3.0), ("a", 7, 4.0)]:
        store.append(name, row(cell.run, {"test": [0.0] * epochs}, when=when))
    assert store.rows()[cell.run.id]["when"] == 3.0
    assert len((tmp_path / "a.jsonl").read_text().splitlines()) == 3  # only ever appended to
