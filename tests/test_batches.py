"""Mini-batches that begin with checked examples."""

from collections import Counter

import numpy as np
import pytest

import sigua

CHECKED = np.arange(50) % 10 == 0  # five of fifty


def parts(batches):
    """Return what an epoch has of checked examples and of others, in each mini-batch."""
    m = batches.num_checked
    return [(batch[:m], batch[m:]) for batch in batches]


@pytest.mark.parametrize(("size", "share"), [(8, 0.5), (8, 0.25), (7, 0.5), (2, 0.5), (49, 0.1)])
def test_an_epoch_has_each_other_example_once_and_checked_ones_in_their_share(size, share):
    """All of them as often, or once more; and no mini-batch is larger than was said."""
    found = parts(sigua.CheckedBatches(CHECKED, size, share=share, seed=0))
    firsts, others = ([i for part in column for i in part] for column in zip(*found, strict=True))
    assert sorted(others) == np.flatnonzero(~CHECKED).tolist()
    assert CHECKED[firsts].all()
    times = Counter(firsts).values()
    assert max(times) - min(times) <= 1
    assert {len(first) for first, _ in found} == {max(round(size * share), 1)}
    sizes = {len(first) + len(other) for first, other in found}
    assert max(sizes) <= size
    assert max(sizes) - min(sizes) <= 1


def test_each_epoch_is_drawn_anew_and_a_seed_draws_the_same_ones():
    one, other = (sigua.CheckedBatches(CHECKED, 8, seed=3) for _ in range(2))
    first, second = list(one), list(one)
    assert first != second
    assert [list(other), list(other)] == [first, second]


def test_mini_batches_by_number_are_those_of_the_epoch_that_has_begun():
    batches = sigua.CheckedBatches(CHECKED, 8, seed=0)
    epoch = list(batches)
    assert [batches[i] for i in range(len(batches))] == epoch
    batches.shuffle()
    assert [batches[i] for i in range(len(batches))] != epoch


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (([3, 4], 8), r"checked: must be a bool mask .* got shape \(2,\) of int64; try np.isin"),
        ((np.ones(3, bool), 8), "checked: must leave examples unchecked, got all of 3"),
        ((CHECKED, 1), "batch_size: must be a whole number of at least 2, got 1; try 64"),
    ],
)
def test_what_cannot_be_is_refused(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        sigua.CheckedBatches(*arguments)


def test_a_mini_batch_that_holds_all_others_has_no_more_checked_than_its_share():
    """Sixteen others, and half of each mini-batch is checked: sixteen, however large it may be."""
    for size in (1_024, 10**9):
        batches = sigua.CheckedBatches(np.arange(20) < 4, size)
        assert (len(batches), batches.num_checked, len(batches[0])) == (1, 16, 32)
