"""`corrected_losses` and `select`, by which one writes another reduction, ranking or loss."""

import numpy as np
import pytest
import torch
from contract import METHODS, N, assert_same, name, samples
from torch import nn
from torch.nn import functional as F

import sigua
from sigua import reference
from sigua_torch import SIGUALoss, corrected_losses, select

SL = sigua.sigua_sl(0.5, delta=0.2, gamma=0.3, warmup=0)
KNOWN, COUNTED = sigua.custom(sigua.Known(), gamma=0.2), sigua.sigua_ag(power=1)
AG = sigua.sigua_ag()


def batch():
    logits, labels = samples()
    return torch.tensor(logits, requires_grad=True), torch.tensor(labels)


@pytest.mark.parametrize("epoch", [0, 4, 10])
@pytest.mark.parametrize("method", METHODS, ids=name)
def test_the_two_are_the_criterion(method, epoch, names):
    """Value and gradient, to rounding; the masks are its own."""
    logits, labels = batch()
    losses = corrected_losses(logits, labels, method)
    chosen = select(losses, epoch, method, logits=logits, labels=labels)
    assert not any(part.requires_grad for part in chosen)
    value = (chosen.weights * losses.masked_fill(chosen.silent, 0)).sum() / N
    (gradient,) = torch.autograd.grad(value, logits)
    criterion = SIGUALoss(method)
    criterion.set_epoch(epoch)
    want = criterion(logits, labels)
    torch.testing.assert_close(value, want)
    torch.testing.assert_close(gradient, torch.autograd.grad(want, logits)[0])
    assert_same(chosen, criterion.split)


def test_losses_may_have_any_shape_and_half_precision(names):
    losses = torch.tensor([[4.0, 3.0], [2.0, 1.0]])
    for each in (losses, losses.half(), losses.double(), losses.reshape(4, 1)):
        good = select(each, 0, sigua.self_teaching(0.5, warmup=0, variant="official")).good
        assert good.shape == each.shape
        assert good.flatten().tolist() == [False, False, True, True]


@pytest.mark.parametrize("groups", ["class", "integers"])
def test_groups_and_who_takes_part(groups, names):
    logits, labels = batch()
    losses, where = corrected_losses(logits, labels, SL), torch.arange(N) % 4 > 0
    of = "class" if groups == "class" else 3 * labels - 7
    chosen = select(losses, 0, SL, labels=labels, where=where, groups=of)
    ranked = losses.detach().double().numpy()[where]
    want = reference.split(SL, ranked, groups=labels.numpy()[where])
    np.testing.assert_array_equal(chosen.good[where], want.good)
    np.testing.assert_array_equal(chosen.bad[where], want.bad)
    assert not chosen.weights[~where].any()
    assert chosen.silent[~where].all()


def test_marks_and_a_confidence(names):
    logits, labels = batch()
    losses = corrected_losses(logits, labels, KNOWN)
    marks = torch.arange(N) % 2 > 0
    assert torch.equal(select(losses, 0, KNOWN, trusted=marks).good, marks)
    pair = sigua.Split(marks, torch.arange(N) == 0)
    assert select(losses, 0, KNOWN, trusted=pair).bad.sum() == 1
    method, c = sigua.sigua_ag(warmup=0), np.linspace(0.2, 0.9, 10)
    state = torch.tensor(np.stack([c, np.ones(10)]))
    chosen = select(losses, 0, method, logits=logits, labels=labels, confidence=state)
    plain = logits.detach().numpy(), labels.numpy()
    want = reference.step(method, *plain, confidence=(c + 1e-6) / (1 + 1e-6)).split
    np.testing.assert_array_equal(chosen.good, want.good)
    without = select(losses, 0, method, logits=logits, labels=labels)
    assert not torch.equal(chosen.good, without.good)


def test_half_precision_is_judged_in_float32(names):
    logits, labels = batch()
    half, method = logits.detach().bfloat16(), sigua.sigua_ag(warmup=0)
    losses = corrected_losses(half, labels, sigua.standard())
    found = select(losses, 0, method, logits=half, labels=labels)
    want = reference.step(method, half.float().numpy(), labels.numpy()).split
    np.testing.assert_array_equal(found.good, want.good)


def test_who_has_no_label_takes_no_part(names):
    """A label of -100, whether it is left out by hand or not, and whatever its logits are."""
    logits, labels = batch()
    left = torch.arange(N) % 4 > 0
    logits, marked = logits.detach(), labels.masked_fill(~left, -100)
    losses = corrected_losses(logits, marked, SL)
    agreement = sigua.sigua_ag(warmup=0), {"logits": logits}
    for method, given in (agreement, (SL, {}), (SL, {"groups": "class"})):
        some = {name: x[left] if name == "logits" else x for name, x in given.items()}
        want = select(losses[left], 0, method, labels=labels[left], **some)
        for where in (None, left):
            found = select(losses, 0, method, labels=marked, where=where, **given)
            assert torch.equal(found.good[left], want.good)
            assert found.silent.tolist() == (~left).tolist()


CLASSES = sigua.sigua_bc(sigua.TransitionMatrix([[0.9, 0.1], [0.6, 0.4]]), over="classes")
GIVEN = {"logits": torch.zeros(4, 3), "labels": torch.zeros(4).long()}


@pytest.mark.parametrize(
    ("method", "options", "words"),
    [
        (AG, {}, "^logits: must be given"),
        (AG, {"logits": torch.zeros(4, 3)}, "^labels: must be given"),
        (SL, {"groups": "class"}, "^labels: must be given"),
        (SL, {"groups": "image"}, "^groups: must be one of 'class', got 'image'"),
        (AG, GIVEN | {"confidence": torch.ones(2, 9)}, r"^confidence: .*\(2, 3\)"),
        (COUNTED, GIVEN | {"confidence": torch.ones(2, 3)}, r"^confidence: .*\(7, 3"),
        (AG, GIVEN | {"labels": -torch.ones(4).long()}, "^labels: must be class .* -1 at"),
        (AG, GIVEN | {"labels": torch.zeros(4, 1).long()}, "^labels: must be class "),
        (AG, GIVEN | {"logits": torch.zeros(3, 3)}, r"^logits: must have the losses'"),
        (AG, GIVEN | {"groups": "class"}, "^groups: must be left out, for Agreement"),
        (CLASSES, {"logits": torch.zeros(4, 3)}, "^T: must have a row per class, got 2 rows"),
        (
            SL,
            {"groups": "class", "labels": torch.zeros(4, 2)},
            "^groups: must be .* of torch.int64",
        ),
        (SL, {"groups": torch.zeros(6).long()}, r"^groups: must be .* \(4,\) .* got \(6,\)"),
        (SL, {"labels": torch.zeros(3).long()}, r"^labels: must be .* \(4,\) .* got \(3,\)"),
        (SL, {"labels": [0, 0, 1, 1]}, "^labels: must be a torch tensor, got a list"),
        (SL, {"groups": [0, 0, 1, 1]}, "^groups: must be a torch tensor, .* got list"),
        (SL, {"where": torch.ones(3)}, "^where: must be .* of torch.bool, got"),
        (SL, {"trusted": torch.ones(4) > 0}, "^trusted: must come with sigua.Known"),
        (KNOWN, {}, "^trusted: must be given"),
    ],
)
def test_what_is_missing_or_does_not_fit_is_refused(method, options, words):
    with pytest.raises(ValueError, match=words):
        select(torch.arange(4.0), 0, method, **options)


def test_corrected_losses_refuse_a_matrix_of_other_classes():
    with pytest.raises(
        ValueError, match=r"^T: must have a row per class, got 2 rows and logits of 3"
    ):
        corrected_losses(GIVEN["logits"], GIVEN["labels"], CLASSES)


def test_corrected_losses_of_other_criteria_and_shapes():
    T = sigua.TransitionMatrix.pair(0.3, 3)
    method = sigua.forward_correction(T)
    logits = torch.randn(2, 3, 4, 5, dtype=torch.float64)
    labels = torch.randint(0, 3, (2, 4, 5))
    labels[0, 0, 0] = -100
    weight = torch.tensor([1.0, 2.0, 3.0])
    losses = corrected_losses(logits, labels, method, nn.CrossEntropyLoss(weight))
    p = (logits.softmax(1).movedim(1, -1) @ torch.tensor(T.rows)).movedim(-1, 1)
    want = F.cross_entropy(p.log(), labels, weight.double(), reduction="none")
    torch.testing.assert_close(losses, want)
    one = corrected_losses(logits[1, :, 0, 0], labels[1, 0, 0], method)
    torch.testing.assert_close(one, want[1, 0, 0] / weight[labels[1, 0, 0]])
    smoothed = nn.CrossEntropyLoss(label_smoothing=0.1)
    q = F.one_hot(labels[1], 3).movedim(-1, 0)[None].double()
    torch.testing.assert_close(
        corrected_losses(logits[1:], q, sigua.standard(), smoothed),
        F.cross_entropy(logits[1:], q, reduction="none", label_smoothing=0.1),
    )
