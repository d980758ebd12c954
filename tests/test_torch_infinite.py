"""Infinite losses say nothing, NaN reaches the user: value and gradient of corrected losses."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import sigua
from sigua_torch import SIGUALoss

INF = float("inf")
LN = np.log
T = sigua.TransitionMatrix
PAIR = T.pair(0.3, 3)
BLOCKS = T([[0.8, 0.2, 0, 0], [0.4, 0.6, 0, 0], [0, 0, 0.7, 0.3], [0, 0, 0.3, 0.7]])
MATRICES = {
    "pair": PAIR,
    "symmetric": T.symmetric(0.3, 3),
    "dense": T([[0.7, 0.2, 0.1], [0.3, 0.6, 0.1], [0.1, 0.2, 0.7]]),
}
BACKWARD = {
    "backward": sigua.backward_correction,
    "nn": sigua.nn_backward_correction,
    "label": sigua.sigua_bc,
    "batch": lambda T: sigua.sigua_bc(T, over="batch"),
    "small loss": lambda T: sigua.custom(sigua.SmallLoss(0.5, 0.25, 0), 0.5, "backward", T),
}


def run(criterion, logits, labels, **extra):
    logits = torch.as_tensor(logits).clone().requires_grad_()
    value = criterion(logits, torch.as_tensor(labels), **extra)
    value.sum().backward()
    return value.detach(), logits.grad


@pytest.fixture(params=["short", "general", "device"])
def way(request, monkeypatch):
    """Each way through the criterion, by options for its calls."""
    if request.param == "device":
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    return {} if request.param == "short" else {"num_items_in_batch": torch.tensor(4)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("where", [[1], [2], [1, 2], [0], [0, 1]], ids=str)
@pytest.mark.parametrize("make", BACKWARD)
@pytest.mark.parametrize("kind", MATRICES)
def test_a_class_of_probability_0_leaves_the_others_as_they_are(kind, make, where, dtype, way):
    """Rows with -inf equal the spec, and the step is that of the other rows, over four."""
    method = BACKWARD[make](MATRICES[kind])
    logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), dtype=dtype)
    logits[0, where], labels = -INF, torch.tensor([0, 1, 2, 0])
    criterion = SIGUALoss(method).to(dtype)
    value, gradient = run(criterion, logits, labels, **way)
    want = sigua.reference.step(method, logits.double().numpy(), labels.numpy())
    assert criterion.split.good.tolist() == want.split.good.tolist()
    assert criterion.split.bad.tolist() == want.split.bad.tolist()
    assert not criterion.split.good[0]
    assert not criterion.split.bad[0]
    slack = 100 * torch.finfo(dtype).eps
    assert value.item() == pytest.approx(want.objective, rel=slack, abs=slack)
    np.testing.assert_allclose(gradient.numpy(), want.gradient, rtol=0, atol=slack)
    assert (gradient[0] == 0).all()


def test_a_coefficient_of_0_drops_an_infinite_loss(way):
    """T^-1 of blocks: the label's row has nothing of class 3, and 1.5, -.5 of the first two.

    The corrected loss is 1.5 ln 2 - .5 ln 2 = ln 2 for p = (1/2, 1/2, 0, 0); it is told among
    four examples, of which the others have logits 0: there every loss is ln 4.
    """
    logits = torch.zeros(4, 4, dtype=torch.float64)
    logits[0, 2:] = -INF
    criterion = SIGUALoss(sigua.backward_correction(BLOCKS)).double()
    value, gradient = run(criterion, logits, [0, 0, 0, 0], **way)
    assert value.item() == pytest.approx((LN(2) + 3 * LN(4)) / 4, rel=1e-13)
    np.testing.assert_allclose(gradient[0], [-0.25, 0.25, 0, 0], atol=1e-15)
    assert criterion.split.good.all()


@pytest.mark.parametrize("kind", MATRICES)
def test_a_nan_among_the_logits_reaches_the_user(kind, way):
    logits = torch.zeros(4, 3)
    logits[0, 1] = float("nan")
    for method in (sigua.sigua_bc(MATRICES[kind]), sigua.forward_correction(MATRICES[kind])):
        assert run(SIGUALoss(method), logits, [0, 1, 2, 0], **way)[0].isnan()


def test_a_class_without_weight_makes_no_nan_of_an_infinite_loss(way):
    """Class 2 is never meant: weight 0 and logit -inf. As weights do not decide, none is good."""
    weight = torch.tensor([1.0, 2.0, 0.0])
    logits = torch.zeros(4, 3)
    logits[:, 2] = -INF
    for method in map(sigua.backward_correction, MATRICES.values()):
        value, gradient = run(SIGUALoss(method, weight), logits, [0, 1, 0, 1], **way)
        assert value.isfinite()
        assert gradient.isfinite().all()


def test_another_loss_that_is_infinite_says_nothing_either(way):
    """-log p by hand: against class 1, to which T^-1 gives another sign, it is infinite."""

    def base(input, target):
        return F.nll_loss(input.log_softmax(1), target, reduction="none")

    logits = torch.zeros(4, 3)
    logits[0, 1] = -INF
    for T in MATRICES.values():
        criterion = SIGUALoss(sigua.sigua_bc(T), base=base)
        plain = SIGUALoss(sigua.sigua_bc(T))
        got, want = (run(each, logits, [0, 1, 2, 0], **way) for each in (criterion, plain))
        torch.testing.assert_close(got, want)
        assert not (criterion.split.good | criterion.split.bad)[0]


SPARSE = {
    "data": [0.7, 0.3] * 2 + [0.3, 0.7],
    "indices": [0, 1, 1, 2, 0, 2],
    "indptr": [0, 2, 4, 6],
}
FORWARD = {
    "pair": PAIR,
    "few zeros": T([[0.7, 0.3, 0], [0.2, 0.6, 0.2], [0.1, 0.2, 0.7]]),
    "sparse": T.from_dict(SPARSE),
    "identity": T(np.eye(3)),
    "symmetric 0": T.symmetric(0.0, 3),
}
ONE_HOT = torch.eye(3)[[2, 2, 2, 2]]


@pytest.mark.parametrize("large", [10.0, 100.0, 300.0])
@pytest.mark.parametrize("T", FORWARD.values(), ids=FORWARD)
def test_forward_correction_is_exact_for_one_hot_rows_where_p_underflows(T, large, way):
    """As for the index, whose value is log-space arithmetic: -log sum_i T[i, 2] p_i.

    Logits (a, 0, 0): p_1 = p_2 = e^-a / (1 + 2 e^-a), so that it is a + log(1 + 2 e^-a) - log c,
    with c what T leads from classes 1 and 2 to 2, as nothing leads there from class 0.
    """
    logits = torch.tensor([[large, 0.0, 0.0]] * 4)
    loss = large + np.log1p(2 * np.exp(-large)) - LN(T.rows[1:, 2].sum())
    criterion = SIGUALoss(sigua.forward_correction(T))
    at_index = run(criterion, logits, [2, 2, 2, 2], **way)
    got = run(criterion, logits, ONE_HOT, **way)
    by_base = SIGUALoss(sigua.forward_correction(T), base=nn.CrossEntropyLoss(reduction="none"))
    for value, gradient in (got, run(by_base, logits, ONE_HOT, **way), at_index):
        assert value.item() == pytest.approx(loss, rel=2e-6)
        torch.testing.assert_close(gradient, at_index[1], rtol=0, atol=1e-7 + 1e-8 * large)
    assert at_index[1][0, 0].item() == pytest.approx(0.25, rel=1e-4)  # it is climbed out of


def test_forward_correction_with_smoothing_where_p_underflows(way):
    """Logits (100, 0, 0), pair .3: T'p = (.7, .3, e^-100), q = (.1, .1, .8) for smoothing .3."""
    loss = 0.1 * -LN(0.7) + 0.1 * -LN(0.3) + 0.8 * 100
    criterion = SIGUALoss(sigua.forward_correction(PAIR), label_smoothing=0.3)
    logits = torch.tensor([[100.0, 0.0, 0.0]] * 4)
    value, gradient = run(criterion, logits, [2, 2, 2, 2], **way)
    assert value.item() == pytest.approx(loss, rel=1e-6)
    assert gradient[0, 0].item() == pytest.approx(0.2, rel=1e-4)


def test_a_label_that_is_impossible_says_nothing_and_one_of_share_0_drops_out(way):
    """Nothing leads to class 2 from class 0 alone; a target that is class 0 has -log .7 there."""
    logits = torch.tensor([[0.0, -INF, -INF]] * 4)
    criterion = SIGUALoss(sigua.forward_correction(PAIR))
    value, gradient = run(criterion, logits, ONE_HOT, **way)
    assert value == 0
    assert (gradient == 0).all()
    value, gradient = run(criterion, logits, torch.eye(3)[[0, 0, 0, 2]], **way)
    assert value.item() == pytest.approx(-LN(0.7) * 3 / 4, rel=1e-6)
    assert gradient.isfinite().all()
    assert criterion.split.good.tolist() == [True, True, True, False]


@pytest.mark.parametrize("large", [10.0, 60.0, 75.0, 90.0, 200.0])
def test_forward_correction_is_exact_in_a_batch_in_which_one_p_underflows(large, way):
    """Rows (a, 0, 0) at label 2, to which nothing leads from class 0, beside usual ones."""
    logits = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    logits[3], labels = torch.tensor([large, 0.0, 0.0]), [0, 1, 2, 2, 1, 0, 1, 2]
    method = sigua.forward_correction(PAIR)
    value, gradient = run(SIGUALoss(method), logits, labels, **way)
    if way:  # it divides by four
        value, gradient = value / 2, gradient / 2
    want = sigua.reference.step(method, logits.double().numpy(), np.array(labels))
    assert value.item() == pytest.approx(want.objective, rel=1e-6)
    np.testing.assert_allclose(gradient, want.gradient, rtol=0, atol=1e-7 + 1e-8 * large)
