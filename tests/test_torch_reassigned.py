"""What is changed on a criterion after it was made is obeyed as if made so, or cannot be set."""

import copy
import functools
import pickle

import pytest
import torch
from torch import nn

import sigua
from sigua_torch import SIGUALoss
from sigua_torch.losses import focal

PAIR = sigua.TransitionMatrix.pair(0.3, 4)
METHODS = {
    "sl": sigua.sigua_sl(0.4, delta=0.2, gamma=0.3, warmup=0),  # each has a short way, but the last
    "ag": sigua.sigua_ag(warmup=0, gamma=0.3),
    "bc": sigua.sigua_bc(PAIR),
    "floor": sigua.sigua_nf(0.4, 4),
}
CLONES = {
    "itself": lambda criterion: criterion,
    "deepcopy": copy.deepcopy,
    "pickle": lambda criterion: pickle.loads(pickle.dumps(criterion)),
}


def batch():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(40, 4, generator=generator, requires_grad=True)
    return logits, torch.randint(0, 4, (40,), generator=generator)


def made_and_changed(method, name, value, clone=CLONES["itself"]):
    """Return a criterion made with an option, and one that gets it after a first call."""
    changed = SIGUALoss(method)
    changed(*batch())
    if changed.confidence is not None:
        changed.confidence.state = None  # as before the call
    setattr(changed, name, value)
    return SIGUALoss(method, **{name: value}), clone(changed)


@pytest.mark.parametrize("clone", CLONES.values(), ids=CLONES)
@pytest.mark.parametrize("reduction", ["none", "sum"])
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_another_reduction_is_obeyed(method, reduction, clone):
    """In training as in evaluation, where PyTorch's own is asked for it, too."""
    made, changed = made_and_changed(method, "reduction", reduction, clone)
    assert torch.equal(changed(*batch()), made(*batch()))
    assert torch.equal(changed.eval()(*batch()), made.eval()(*batch()))
    changed.reduction = "mean"
    want = nn.functional.cross_entropy(*batch())
    torch.testing.assert_close(changed(*batch()), want)


def test_a_graph_obeys_another_reduction():
    criterion = SIGUALoss(METHODS["sl"])
    compiled = torch.compile(criterion, backend="eager")
    mean = compiled(*batch())
    criterion.reduction = "none"
    torch.testing.assert_close(compiled(*batch()).sum() / 40, mean)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_reduction_that_there_is_not_is_refused_in_the_call(method):
    criterion = SIGUALoss(method)
    criterion.reduction = "avg"
    with pytest.raises(ValueError, match=r"^reduction: must be one of 'mean', .* got 'avg'"):
        criterion(*batch())
    assert criterion.split is None


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("sl", "label_smoothing", 0.3),
        ("ag", "label_smoothing", 0.3),
        ("sl", "base", functools.partial(focal, gamma=1.0)),
        ("ag", "base", functools.partial(focal, gamma=1.0)),
        ("sl", "rank_by", nn.MultiMarginLoss(reduction="none")),
        ("sl", "ignore_index", 2),
        ("ag", "ignore_index", 2),
    ],
)
def test_other_options_are_obeyed(kind, name, value):
    made, changed = made_and_changed(METHODS[kind], name, value)
    for _ in range(2):  # the second is judged by the confidence that the first has left
        assert torch.equal(changed(*batch()), made(*batch()))


@pytest.mark.parametrize("name", ["method", "per_class", "per_image", "epoch"])
def test_what_is_settled_when_it_is_made_cannot_be_set(name):
    criterion = SIGUALoss(METHODS["sl"])
    before = getattr(criterion, name)
    with pytest.raises(AttributeError, match=f"'{name}' of 'SIGUALoss' object has no setter"):
        setattr(criterion, name, True)
    assert getattr(criterion, name) == before
