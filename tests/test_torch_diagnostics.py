"""Diagnostics on tensors: they equal NumPy's, wait for nothing, and transfer once an epoch."""

import numpy as np
import pytest
import torch

import sigua
from sigua import Split
from sigua.diagnostics import masks_to_count, report
from sigua_torch import SIGUALoss, select
from sigua_torch.diagnostics import LabelHistory, SelectionMeter


def batch(n, seed=0, classes=4):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(n, classes, generator=generator)
    labels = torch.randint(0, classes, (n,), generator=generator)
    intact = torch.rand(n, generator=generator) < 0.5
    return logits, labels, intact


def test_meter_s_report_is_that_of_the_epoch_in_numpy():
    """Three mini-batches of uneven size, ignored labels among them, against one pass in NumPy."""
    criterion, meter = SIGUALoss(sigua.sigua_sl(0.5, delta=0.2, warmup=0)), SelectionMeter()
    seen = []
    for seed, n in enumerate((64, 64, 21)):
        logits, labels, intact = batch(n, seed)
        labels[::7] = -100
        criterion(logits.requires_grad_(), labels).backward()
        meter.update(criterion.split, intact=intact, logits=logits, target=labels)
        right = logits.detach().numpy().argmax(axis=1) == labels.numpy()
        part = labels.numpy() != -100
        seen.append([*(mask.numpy() for mask in (*criterion.split, intact)), right, part])
    good, bad, intact, right, part = map(np.concatenate, zip(*seen, strict=True))
    masks = masks_to_count(Split(good, bad), part, intact=intact, right=right)
    expected = report({name: mask.sum() for name, mask in masks.items()})
    assert meter.report() == expected
    assert 0 < expected.bad < expected.good < 1
    assert 0 < expected.accuracy_flipped < 1


def test_meter_starts_afresh_after_each_report():
    meter = SelectionMeter()
    everyone = torch.ones(4, dtype=torch.bool)
    meter.update(Split(everyone, ~everyone))
    assert meter.report().good == 1.0
    meter.update(Split(~everyone, everyone), intact=everyone)  # and may then know more
    assert meter.report().good == 0.0


def test_meter_counts_what_select_returned():
    """Of five losses three are kept and one is climbed on, by hand."""
    method, meter = sigua.sigua_sl(0.5, delta=0.25, warmup=0), SelectionMeter()
    meter.update(select(torch.tensor([4.0, 3.0, 2.0, 1.0, 0.0]), 0, method))
    found = meter.report()
    assert (found.good, found.bad) == (3 / 5, 1 / 5)


@pytest.mark.parametrize("columns", [None, 1, 3])
@pytest.mark.parametrize("flat", [False, True])
def test_meter_knows_a_sigmoid(columns, flat):
    """By hand: logits above 0 say 1. Of six labels four are reproduced, in each column alike.

    The losses have the logits' shape, or lack their only column.
    """
    if flat and columns != 1:
        return
    logits, target = torch.tensor([[2.0, -1, 0.5, -3, 1, -0.1], [1, 0, 0, 0, 1, 1]])
    if columns is not None:
        logits, target = (part[:, None].expand(6, columns) for part in (logits, target))
    target = (target[:, 0] if flat else target).long()
    everyone = torch.ones_like(target, dtype=torch.bool)
    meter = SelectionMeter()
    meter.update(Split(everyone, ~everyone), logits=logits, target=target)
    assert meter.classes.tolist() == [[target.numel() // 2] * 2] * 2
    assert meter.report().accuracy == 4 / 6


def test_history_s_losses_and_margins_are_the_core_s():
    """Recorded mini-batch by mini-batch in another order, they equal one pass in float64."""
    logits, labels, _ = batch(50)
    history = LabelHistory(50)
    for rows in torch.randperm(50, generator=torch.Generator().manual_seed(1)).split(16):
        history.update(rows, logits[rows].requires_grad_(), labels[rows])
    history.end_epoch()
    p = np.exp(sigua.reference.log_softmax(logits.numpy()))
    losses, margins = sigua.label_losses(p, labels.numpy()), sigua.label_margins(p, labels.numpy())
    eps = np.finfo(np.float32).eps
    np.testing.assert_allclose(history.losses, losses[None], rtol=8 * eps, atol=8 * eps)
    np.testing.assert_allclose(history.margins, margins[None], rtol=0, atol=8 * eps)


def test_history_keeps_every_epoch_and_what_an_epoch_left_out():
    history, none, sure = LabelHistory(3), torch.zeros(1, 2), torch.tensor([[100.0, 0.0]])
    label = torch.zeros(1, dtype=torch.long)
    history.update(torch.tensor([0]), none, label)
    history.update(torch.tensor([2]), sure, label)
    history.end_epoch()
    history.update(torch.tensor([0]), sure, label)
    history.update(torch.tensor([1]), none, label)
    history.end_epoch()
    half, nan = np.float32(np.log(2)), np.float32("nan")
    np.testing.assert_array_equal(history.losses, [[half, nan, 0], [0, half, 0]])
    np.testing.assert_array_equal(history.margins, [[0, nan, 1], [1, 0, 1]])
    scores = sigua.rank_label_issues(history.losses).scores  # p is .5 and 1; -, .5; 1, 1
    np.testing.assert_allclose(scores, [0.25, 0.5, 0], rtol=0, atol=1e-7)


def test_history_of_a_sigmoid_is_that_of_a_softmax_of_two():
    """By hand: logits ln 3 and 0 are p(1) = 3/4 and 1/2; labels 0 and 1: margins -1/2 and 0."""
    history = LabelHistory(2)
    history.update(torch.arange(2), torch.tensor([[np.log(3)], [0.0]]), torch.tensor([0, 1]))
    history.end_epoch()
    np.testing.assert_allclose(history.losses, [[np.log(4), np.log(2)]], rtol=1e-6)
    np.testing.assert_allclose(history.margins, [[-0.5, 0]], atol=1e-6)


def test_updates_wait_for_nothing():
    """On the meta device, which has no values, any read of one raises."""
    logits, labels, intact = (tensor.to("meta") for tensor in batch(20))
    criterion, meter = SIGUALoss(sigua.self_teaching(0.5)).to("meta"), SelectionMeter()
    history = LabelHistory(20)
    criterion(logits.requires_grad_(), labels).backward()
    for _ in range(2):
        meter.update(criterion.split, intact=intact, logits=logits, target=labels)
        history.update(torch.arange(20, device="meta"), logits, labels)
    assert all(count.shape == () for count in meter.counts.values())
    assert not any(count.requires_grad for count in (*meter.counts.values(), history._current))
    with pytest.raises((RuntimeError, NotImplementedError), match=r"meta"):
        meter.report()
    with pytest.raises((RuntimeError, NotImplementedError), match=r"meta"):
        history.end_epoch()


BYTES = torch.uint8


def test_who_takes_no_part_is_not_dropped():
    """Six of eight take part: four are good, and one of them is predicted rightly, by hand."""
    good = torch.tensor([1, 1, 1, 1, 0, 0, 0, 0]).bool()
    part = torch.tensor([1, 1, 1, 1, 1, 1, 0, 0]).bool()
    meter = SelectionMeter()
    meter.update(Split(good, ~good & part), where=part)
    assert meter.report().dropped == pytest.approx(1 / 3)
    target = torch.tensor([0, 1, 1, 1, 1, -100, 0, 0])
    logits = torch.eye(2)[torch.zeros(8).long()]
    meter.update(Split(good, ~good & part), logits=logits, target=target, where=part)
    found = meter.report()
    assert found.dropped == pytest.approx(1 / 5)
    assert found.accuracy == pytest.approx(1 / 5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"split": None}, r"^split: must be a sigua.Split, got NoneType; try criterion.split"),
        ({"intact": torch.ones(4)}, r"^intact: must .* got \(4,\) of torch.float32; try clean"),
        ({"where": torch.ones(5) > 0}, r"^where: must be .* got \(5,\) of torch.bool"),
        ({"target": torch.zeros(4, 1).long()}, r"^target: must .* got \(4, 1\) of torch.int64"),
        ({"target": [0, 1, 2, 3]}, "^target: must be a torch tensor, .* got list; try"),
        ({"target": None}, r"^target: must be given with logits, got None;"),
        ({"target": torch.tensor([0, 1, 2, 4])}, r"^target: .* lie in \[0, 4\), got 4 at \[3\]"),
        ({"logits": [[0.0] * 4] * 4}, r"^logits: must have the split's shape \(4,\).* got list"),
        *(
            ({"logits": torch.zeros(shape)}, r"^logits: must have the split's shape \(4,\)")
            for shape in [(5, 4), (3,), (4, 4, 1), (4, 1, 2), ()]
        ),
        ({"logits": torch.zeros(4, 7)}, r"^update: must count the same .* 7 cl.* after .* 4 cl"),
        ({"intact": None}, r"^update: must count the same until .* after .*intact"),
    ],
    ids=str,
)
def test_meter_refuses_before_anything_is_counted(change, message):
    """What broadcasting would compare with every label, too: 800 % of them were right."""
    logits, labels, intact = batch(4)
    given = {"split": Split(intact, ~intact), "intact": intact, "logits": logits, "target": labels}
    meter = SelectionMeter()
    meter.update(**given)
    counts, classes = dict(meter.counts), meter.classes
    with pytest.raises(ValueError, match=message):
        meter.update(**given | change)
    assert meter.counts == counts
    assert torch.equal(meter.classes, classes)


def test_history_does_not_end_an_epoch_of_which_it_has_nothing():
    logits, labels, _ = batch(4)
    history = LabelHistory(4)
    for epoch in range(2):
        history.update(torch.arange(4), logits, labels)
        history.end_epoch()
        with pytest.raises(ValueError, match=r"^update: must be called before end_epoch"):
            history.end_epoch()
        assert len(history.losses) == epoch + 1


def test_history_may_begin_in_inference_mode():
    logits, labels, _ = batch(4)
    history, expected = LabelHistory(4), LabelHistory(4)
    with torch.inference_mode():
        history.update(torch.arange(2), logits[:2], labels[:2])
    history.update(torch.arange(2, 4), logits[2:], labels[2:])
    expected.update(torch.arange(4), logits, labels)
    for each in (history, expected):
        each.end_epoch()
    assert (history.losses == expected.losses).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"index": torch.zeros(4)}, r"^index: must .* got \(4,\) of torch.float32; try an index"),
        ({"index": torch.zeros(4, dtype=BYTES)}, r"^index: must .* got \(4,\) of torch.uint8"),
        ({"index": np.arange(4)}, r"^index: must be a torch tensor, .* got ndarray; try"),
        ({"index": torch.arange(4) + 1}, r"^index: must lie in \[0, 4\), got 4 at \[3\];"),
        ({"target": torch.zeros(4)}, r"^target: must .* got \(4,\) of torch.float32; try y.long"),
        ({"target": torch.ones(4, 4)}, r"^target: must .* got \(4, 4\) .*argmax\(1\)"),
        ({"target": torch.arange(4) - 100}, r"^target: must lie in \[0, 4\), got -100 at \[0\];"),
        ({"logits": np.ones((4, 4))}, r"^logits: must be a float torch tensor, .* got \(4, 4\)"),
    ],
    ids=str,
)
def test_history_refuses_what_it_cannot_place(change, message):
    given = {"index": torch.arange(4), "logits": torch.ones(4, 4), "target": torch.arange(4)}
    history = LabelHistory(4)
    with pytest.raises(ValueError, match=message):
        history.update(**given | change)
    with pytest.raises(ValueError, match=r"^update: must be called before end_epoch"):
        history.end_epoch()


def step_of(meter, predicted, labels):
    """Count a mini-batch whose logits predict these classes, of three."""
    logits = 9.0 * torch.nn.functional.one_hot(torch.tensor(predicted), 3)
    everyone = torch.ones(len(labels), dtype=torch.bool)
    meter.update(Split(everyone, ~everyone), logits=logits, target=torch.tensor(labels))


def test_a_class_that_is_not_predicted_for_two_epochs_is_named():
    """In one epoch, or in other mini-batches of it, it may be; a class without labels always.

    What is predicted for an ignored example says nothing.
    """
    meter = SelectionMeter()
    for epoch in range(2):
        step_of(meter, [0, 0, 0], [0, 1, 0])
        step_of(meter, [0, 1 - epoch, 0], [0, 1, -100])
        meter.report()
    step_of(meter, [0, 0, 1], [0, 1, -100])
    with pytest.warns(UserWarning, match="^class 1 was never predicted, for the second epoch"):
        meter.report()
    step_of(meter, [0, 1, 2], [0, 1, 2])
    meter.report()
