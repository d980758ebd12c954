"""Diagnostics on tensors: they equal NumPy's, wait for nothing, and transfer once an epoch."""

import numpy as np
import pytest
import torch

import sigua
from sigua import Split
from sigua.diagnostics import masks_to_count, report
from sigua_torch import SIGUALoss
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


def test_meter_counts_pixels_and_sequences():
    logits, labels, _ = batch(6 * 4)
    logits, labels = logits.reshape(6, 2, 2, 4).permute(0, 3, 1, 2), labels.reshape(6, 2, 2)
    meter = SelectionMeter()
    good = labels < 2
    meter.update(Split(good, ~good), logits=logits, target=labels)
    got = meter.report()
    assert got.good == good.double().mean().item()
    assert got.accuracy == (logits.argmax(1) == labels).double().mean().item()


@pytest.mark.parametrize("shape", [(6,), (6, 1), (6, 3)], ids=str)
def test_meter_knows_a_sigmoid(shape):
    """By hand: logits above 0 say 1. Of six labels four are reproduced, in each column alike."""
    logits = torch.tensor([2.0, -1.0, 0.5, -3.0, 1.0, -0.1])
    target = torch.tensor([1, 0, 0, 0, 1, 1])
    column = (slice(None),) + (None,) * (len(shape) - 1)
    logits, target = logits[column].expand(shape), target[column].expand(shape)
    everyone = torch.ones(shape, dtype=torch.bool)
    meter = SelectionMeter()
    meter.update(Split(everyone, ~everyone), logits=logits, target=target)
    assert meter.classes.tolist() == [
        [n * target.numel() // 6 for n in pair] for pair in [[3, 3]] * 2
    ]
    assert meter.report().accuracy == 4 / 6


def test_meter_knows_a_sigmoid_whose_losses_have_no_column():
    """Logits (N, 1) for targets (N,)."""
    everyone = torch.ones(3, dtype=torch.bool)
    meter = SelectionMeter()
    logits, target = torch.tensor([[1.0], [-1.0], [1.0]]), torch.tensor([1, 1, 1])
    meter.update(Split(everyone, ~everyone), logits=logits, target=target)
    assert meter.report().accuracy == 2 / 3


@pytest.mark.parametrize("shape", [(5, 4), (4,), (6, 4, 1), (6, 1, 2), ()], ids=str)
def test_meter_refuses_logits_that_are_of_others(shape):
    """Which broadcasting would compare with every label: 800 % of them were right."""
    everyone = torch.ones(6, dtype=torch.bool)
    meter = SelectionMeter()
    with pytest.raises(ValueError, match=r"^logits: must have the split's shape \(6,\)"):
        meter.update(
            Split(everyone, ~everyone), logits=torch.zeros(shape), target=torch.zeros(6).long()
        )
    assert not meter.counts


def test_history_of_a_sigmoid_is_that_of_a_softmax_of_two():
    """By hand: logits ln 3 and 0 are p(1) = 3/4 and 1/2; labels 0 and 1: margins -1/2 and 0."""
    history = LabelHistory(2)
    logits = torch.tensor([[np.log(3)], [0.0]])
    history.update(torch.arange(2), logits, torch.tensor([0, 1]))
    history.end_epoch()
    np.testing.assert_allclose(history.losses, [[np.log(4), np.log(2)]], rtol=1e-6)
    np.testing.assert_allclose(history.margins, [[-0.5, 0]], atol=1e-6)


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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_history_measures_in_float32(dtype):
    logits, labels, _ = batch(20)
    logits = logits.to(dtype)
    history = LabelHistory(20)
    history.update(torch.arange(20), logits, labels)
    history.end_epoch()
    expected = torch.nn.functional.cross_entropy(logits.float(), labels, reduction="none")
    torch.testing.assert_close(torch.from_numpy(history.losses[0]), expected)


def test_updates_wait_for_nothing():
    """On the meta device, which has no values, any read of one raises."""
    logits, labels, intact = (tensor.to("meta") for tensor in batch(20))
    criterion, meter, history = (
        SIGUALoss(sigua.self_teaching(0.5)),
        SelectionMeter(),
        LabelHistory(20),
    )
    criterion.to("meta")
    criterion(logits.requires_grad_(), labels).backward()
    for _ in range(2):
        meter.update(criterion.split, intact=intact, logits=logits, target=labels)
        history.update(torch.arange(20, device="meta"), logits, labels)
    assert all(count.shape == () for count in meter.counts.values())
    with pytest.raises((RuntimeError, NotImplementedError), match=r"meta"):
        meter.report()
    with pytest.raises((RuntimeError, NotImplementedError), match=r"meta"):
        history.end_epoch()


class Transfers(torch.utils._python_dispatch.TorchDispatchMode):
    """Counts what reads a tensor's values on the host."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


def test_meter_reads_no_number_until_the_report():
    logits, labels, intact = batch(20)
    meter = SelectionMeter()
    with Transfers() as transfers:
        meter.update(Split(intact, ~intact), intact=intact, logits=logits, target=labels)
        assert transfers.count == 0
        labels.max().item()
        assert transfers.count == 1  # the probe can fail


def test_nothing_that_is_gathered_keeps_a_graph():
    logits, labels, intact = batch(20)
    meter, history = SelectionMeter(), LabelHistory(20)
    logits.requires_grad_()
    meter.update(Split(intact, ~intact), logits=logits, target=labels)
    history.update(torch.arange(20), logits, labels)
    assert not any(count.requires_grad for count in meter.counts.values())
    assert not history._current.requires_grad


def test_bad_input_is_one_sentence_and_nothing_is_counted():
    logits, labels, intact = batch(4)
    meter, split = SelectionMeter(), Split(intact, ~intact)
    for keywords, message in [
        (
            {"intact": intact[:3]},
            r"^intact: must have the split's shape \(4,\), got \(3,\);",
        ),
        ({"target": labels[:, None]}, r"^target: must have the split's shape"),
        ({"logits": logits}, r"^target: must be given with logits, got None;"),
    ]:
        with pytest.raises(ValueError, match=message):
            meter.update(split, **keywords)
    with pytest.raises(ValueError, match=r"^update: must be called before report, got no call;"):
        meter.report()
    meter.update(split)
    with pytest.raises(ValueError, match=r"^update: must count the same until .*intact.* after"):
        meter.update(split, intact=intact)
    assert meter.report().good == intact.double().mean().item()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": torch.tensor([0, 1, 2, 4])}, r"^target: must lie in \[0, 4\), got 4; try"),
        ({"target": torch.tensor([0, 1, 2, -1])}, r"^target: must lie in \[0, 4\), got -1; try"),
        (
            {"logits": torch.zeros(4, 7)},
            r"^logits: must have as many classes .* got 7 after 4; try",
        ),
        ({"logits": [[0.0] * 4] * 4}, "^logits: must be a torch tensor, got list; try"),
        *(
            (
                {name: torch.zeros(shape, device="meta")},
                rf"^{name}: must be on the device of split,",
            )
            for name, shape in [("intact", (4,)), ("target", (4,)), ("logits", (4, 4))]
        ),
    ],
    ids=str,
)
def test_meter_refuses_before_anything_is_counted(change, message):
    logits, labels, intact = batch(4)
    meter = SelectionMeter()
    given = {"intact": intact, "logits": logits, "target": labels}
    meter.update(Split(intact, ~intact), **given)
    counts, classes = dict(meter.counts), meter.classes
    with pytest.raises(ValueError, match=message):
        meter.update(Split(intact, ~intact), **given | change)
    assert meter.counts == counts
    assert torch.equal(meter.classes, classes)


def test_meter_asks_nothing_of_a_target_that_is_ignored():
    everyone = torch.ones(3, dtype=torch.bool)
    meter = SelectionMeter()
    split, target = Split(everyone, ~everyone), torch.tensor([0, 1, -1])
    meter.update(split, logits=torch.eye(3), target=target, ignore_index=-1)
    assert meter.counts["examples"] == 2


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


def test_history_refuses_what_it_cannot_place():
    logits, labels, _ = batch(4)
    history, index = LabelHistory(4), torch.arange(4)
    for arguments, message in [
        (
            (index[:3], logits, labels),
            r"^index: must be \(N,\), .* got \(3,\), \(4, 4\) and \(4,\);",
        ),
        ((index, logits, labels[:3]), r"^index: must be \(N,\)"),
        ((index + 1, logits, labels), r"^index: must lie in \[0, 4\), got 4;"),
        ((index - 1, logits, labels), r"^index: must lie in \[0, 4\), got -1;"),
        ((index, logits, labels - 100), r"^target: must lie in \[0, 4\), got -"),
        (([0, 1, 2, 3], logits, labels), r"^index: must be a torch tensor, got list;"),
        ((index.numpy(), logits, labels), r"^index: must be a torch tensor, got ndarray;"),
        ((index, logits.numpy(), labels), r"^logits: must be a torch tensor, got ndarray;"),
        ((index, logits, labels.tolist()), r"^target: must be a torch tensor, got list;"),
        ((index[:, None], logits, labels), r"^index: must be \(N,\), .* \(4, 1\), \(4, 4\)"),
        ((index, logits, labels[:, None]), r"^index: must be \(N,\), .* and \(4, 1\);"),
        ((index, logits[:, 0], labels), r"^index: must be \(N,\), for logits of \(N, k\)"),
        ((index.float(), logits, labels), r"^index: must be int64, got torch.float32; try index.l"),
        ((index > 1, logits, labels), r"^index: must be int64, got torch.bool"),
        ((index.byte(), logits, labels), r"^index: must be int64, got torch.uint8"),
        ((index, logits, labels.float()), r"^target: must be int64, got torch.float32"),
        ((index, logits, labels > 1), r"^target: must be int64, got torch.bool"),
        ((index, logits, logits.softmax(1)), r"^target: must be class indices .*argmax\(1\)"),
        (
            (index, logits + 0j, labels),
            r"^logits: must be floating-point, got torch\.complex64; try",
        ),
        (
            (index, logits, labels.to("meta")),
            r"^target: must be on the device of logits, cpu, got m",
        ),
        (
            (index.to("meta"), logits, labels),
            r"^index: must be on the device of logits, cpu, got m",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            history.update(*arguments)
    with pytest.raises(ValueError, match=r"^update: must be called before end_epoch"):
        history.end_epoch()
    for name in ("losses", "margins"):
        with pytest.raises(ValueError, match=r"^end_epoch: must be called after each epoch"):
            getattr(history, name)
    with pytest.raises(ValueError, match=r"^num_examples: must be a whole number of at least 1"):
        LabelHistory(0)


def step_of(meter, predicted, labels):
    """Count a mini-batch whose logits predict these classes, of three."""
    logits = 9.0 * torch.nn.functional.one_hot(torch.tensor(predicted), 3)
    everyone = torch.ones(len(labels), dtype=torch.bool)
    meter.update(Split(everyone, ~everyone), logits=logits, target=torch.tensor(labels))


def test_a_class_that_is_not_predicted_for_two_epochs_is_named():
    """In one epoch, or in other mini-batches of it, it may be; a class without labels always."""
    meter = SelectionMeter()
    for epoch in range(2):
        step_of(meter, [0, 0, 0], [0, 1, 0])
        step_of(meter, [0, 1 - epoch, 0], [0, 1, -100])
        meter.report()
    step_of(meter, [0, 0, 2], [0, 1, -100])
    with pytest.warns(UserWarning, match="^class 1 was never predicted, for the second epoch"):
        meter.report()
    step_of(meter, [0, 1, 2], [0, 1, 2])
    meter.report()


def test_predictions_of_ignored_examples_say_nothing():
    meter = SelectionMeter()
    for _ in range(2):
        step_of(meter, [0, 1], [1, -100])
        if meter._missing:
            with pytest.warns(UserWarning, match="class 1"):
                meter.report()
        else:
            meter.report()
    assert meter._missing == {1}
