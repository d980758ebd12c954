"""Probabilities are read in blocks: the same numbers as at once, and no copy of them all."""

import tracemalloc

import numpy as np
import pytest
from test_estimate import sampled

import sigua
from sigua import _inputs

METHODS = ["surest", "anchor", "confident"]


def results(p, y):
    """Return the numbers of every function that reads probabilities."""
    found = [sigua.estimate_transition(p, y, method=method).rows for method in METHODS]
    found += [sigua.estimate_noise_rate(p, y, method=method) for method in METHODS]
    found += [sigua.estimate_noise_rate(p, method="anchor")]  # by the mean of the probabilities
    found += [sigua.label_losses(p, y), sigua.label_margins(p, y)]
    diagnosis = sigua.diagnose(p, y)
    return [*found, diagnosis.T.rows, str(diagnosis)]


@pytest.mark.filterwarnings("ignore:two ways to estimate")
@pytest.mark.parametrize("rows", [1, 7, 119])
@pytest.mark.parametrize("order", ["C", "F"])
def test_every_number_is_the_same_in_blocks_as_at_once(monkeypatch, rows, order):
    """Of 120 rows: neither 7 nor 119 divides it."""
    p, y = sampled(0, 9, 120)
    p = np.asarray(p, np.float32, order=order)
    monkeypatch.setattr(_inputs, "ENTRIES", p.size)
    at_once = results(p, y)
    monkeypatch.setattr(_inputs, "ENTRIES", rows * 9 + 3)
    for found, expected in zip(results(p, y), at_once, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.filterwarnings("ignore:two ways to estimate")
def test_a_memory_map_of_float32_is_never_held_as_a_whole(monkeypatch, tmp_path):
    """100 bytes an example do, where a row has 200 in float32 and 400 in float64."""
    monkeypatch.setattr(_inputs, "ENTRIES", 5_000)
    p, y = sampled(0, 50, 10_000)
    np.save(tmp_path / "p.npy", p.astype(np.float32))
    p = np.load(tmp_path / "p.npy", mmap_mode="r")
    tracemalloc.start()
    for method in METHODS:
        sigua.estimate_transition(p, y, method=method)
        sigua.estimate_noise_rate(p, y, method=method)
    for function in (sigua.diagnose, sigua.label_losses, sigua.label_margins):
        function(p, y)
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert held < 100 * len(y)


@pytest.mark.parametrize(("row", "total"), [([0.6, 0.5], r"1\.1"), ([np.nan, 0.5], "nan")])
def test_what_is_wrong_in_a_later_block_is_named_by_its_row(monkeypatch, row, total):
    monkeypatch.setattr(_inputs, "ENTRIES", 6)
    p = np.full((20, 2), 0.5)
    p[17] = row
    others = sigua.estimate_noise_rate, sigua.diagnose
    for call in (sigua.label_losses, sigua.label_margins, *others):
        with pytest.raises(ValueError, match=rf"probabilities\[17\] with sum {total} and entries"):
            call(p, np.zeros(20, int))


def test_a_ranking_takes_an_epoch_at_a_time():
    """Ten epochs of float32 are 40 bytes an example, and 80 in float64."""
    margins = np.random.default_rng(0).uniform(-1, 1, (10, 50_000)).astype(np.float32)
    tracemalloc.start()
    scores = sigua.rank_label_issues(margins=margins).scores
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_allclose(scores, (1 - margins.astype(float).mean(axis=0)) / 2, rtol=1e-13)
    assert held < 60 * 50_000
