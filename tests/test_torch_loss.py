"""The calling convention: the wrapped criterion and its options, shapes, dtypes, who takes part."""

import copy
import functools
import itertools
import pickle
from collections import OrderedDict
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from contract import PAIR, ROWS, SYMMETRIC
from torch import nn
from torch.nn import functional as F

import sigua
from sigua_torch import SIGUALoss
from sigua_torch.losses import generalized_cross_entropy

SL = sigua.sigua_sl(0.5, delta=0.2, gamma=0.3, warmup=0)
METHODS = {
    "standard": sigua.standard(),
    "sl": SL,
    "official": sigua.sigua_sl(0.5, delta=0.4, gamma=0.3, warmup=0, variant="official"),
    "ag": sigua.sigua_ag(warmup=0, gamma=0.3),
    "bc": sigua.sigua_bc(PAIR),
    "symmetric": sigua.sigua_bc(SYMMETRIC),
    "batch": sigua.sigua_bc(ROWS, gamma=0.5, over="batch"),
    "classes": sigua.sigua_bc(ROWS, over="classes"),
    "forward": sigua.forward_correction(PAIR),
    "floor": sigua.custom(sigua.NoiseFloor(9.0), gamma=0.5),
}
each_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
small = pytest.mark.filterwarnings("ignore:a mini-batch of")


def batch(*shape, k=10):
    """Return logits, the classes last, and labels of a shape."""
    shape, generator = shape or (40,), torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(*shape, k, generator=generator, dtype=torch.float64)
    return logits.requires_grad_(), torch.randint(0, k, shape, generator=generator)


def run(criterion, logits, *rest, **options):
    """Value and gradient with respect to the logits."""
    logits = logits.detach().clone().requires_grad_()
    value = criterion(logits, *rest, **options)
    value.sum().backward()
    return value.detach(), logits.grad


def same(got, want, rtol=1e-12):
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=rtol, atol=rtol)


# The criterion that was wrapped.


def cross_entropy_cases():
    shapes = [(5,), (7, 5), (4, 5, 3), (2, 5, 3, 2)]
    grid = itertools.product(
        shapes, [False, True], [False, True], [False, True], [0.0, 0.1], ["mean", "sum", "none"]
    )
    for shape, probabilities, weighted, ignoring, smoothing, reduction in grid:
        if not (ignoring and (probabilities or len(shape) == 1)):
            yield shape, probabilities, weighted, ignoring, smoothing, reduction


@small
@pytest.mark.parametrize("mode", ["rho is 1", "eval", "no grad"])
def test_is_cross_entropy(mode):
    """Over every option of `nn.CrossEntropyLoss` and their combinations."""
    generator = torch.Generator().manual_seed(0)
    method = sigua.sigua_sl(0.5, delta=0.2, warmup=0 if mode != "rho is 1" else 10)
    for shape, probabilities, weighted, ignoring, smoothing, reduction in cross_entropy_cases():
        plain = nn.CrossEntropyLoss(
            torch.rand(5, generator=generator).double() if weighted else None,
            ignore_index=2 if ignoring else -100,
            label_smoothing=smoothing,
            reduction=reduction,
        )
        dim = 0 if len(shape) == 1 else 1
        logits = torch.randn(shape, generator=generator, dtype=torch.float64)
        target = torch.randn(shape, generator=generator, dtype=torch.float64).softmax(dim)
        target = target if probabilities else target.argmax(dim)
        criterion = SIGUALoss(method, plain).train(mode != "eval")
        if mode == "no grad":
            with torch.no_grad():
                assert torch.equal(criterion(logits, target), plain(logits, target))
            continue
        same(run(criterion, logits, target), run(plain, logits, target), 1e-14)


@pytest.mark.parametrize(
    "loss",
    [
        nn.BCEWithLogitsLoss(),
        nn.BCEWithLogitsLoss(pos_weight=torch.tensor(3.0), reduction="sum"),
        nn.MSELoss(),
        nn.SmoothL1Loss(reduction="none"),
    ],
    ids=repr,
)
def test_is_another_module_of_pytorch_s(loss):
    """While rho is 1, and after eval(): its own reduction of its own loss."""
    logits, target = batch()[0], torch.rand(40, 10, dtype=torch.float64)
    criterion = SIGUALoss(sigua.sigua_sl(0.5, delta=0.2), loss).double()
    for training in (True, False):
        same(run(criterion.train(training), logits, target), run(loss, logits, target))


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_module_is_asked_per_example_and_reduced_again(reduction):
    """By hand: squares 1, 4, 9 and 16; floor(4/2) + 1 = 3 are good, floor(4 * .7) + 1 = 3 in reach.

    Of rate 1/4 more the last is bad: 1 + 4 + 9 - .3 * 16 = 9.2, or a quarter of it.
    """
    method = sigua.sigua_sl(0.5, delta=0.25, gamma=0.3, warmup=0)
    criterion = SIGUALoss(method, nn.MSELoss(reduction=reduction))
    logits, target = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.zeros(4)
    value, gradient = run(criterion, logits, target)
    scale = 1 if reduction == "sum" else 4
    assert value.item() == pytest.approx(9.2 / scale)
    np.testing.assert_allclose(gradient, np.array([2, 4, 6, -0.3 * 8]) / scale, rtol=1e-6)
    assert criterion.loss.reduction == reduction


@pytest.mark.parametrize(
    ("name", "value"), [("reduction", "sum"), ("label_smoothing", 0.3), ("ignore_index", 2)]
)
@pytest.mark.parametrize("kind", ["sl", "ag", "bc"])
@pytest.mark.parametrize(
    "clone",
    [lambda c: c, copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))],
    ids=["itself", "deepcopy", "pickle"],
)
def test_what_is_set_on_the_loss_later_is_obeyed(kind, name, value, clone):
    """In training as in evaluation, as if it had been made so."""
    method = METHODS[kind]
    changed = clone(SIGUALoss(method))
    setattr(changed.loss, name, value)
    made = SIGUALoss(method, nn.CrossEntropyLoss(**{name: value}))
    for mode in (True, False):
        same(run(changed.train(mode), *batch()), run(made.train(mode), *batch()), 0)
    changed.loss.weight = torch.linspace(1, 2, 10)
    made = SIGUALoss(method, nn.CrossEntropyLoss(torch.linspace(1, 2, 10), **{name: value}))
    if kind != "ag":  # whose confidence has moved
        same(run(changed.train(), *batch()), run(made, *batch()), 0)


def test_another_module_may_be_changed_or_put_in():
    changed, put = SIGUALoss(SL, nn.MultiMarginLoss()), SIGUALoss(SL)
    changed.loss.margin, put.loss = 2.0, nn.MultiMarginLoss(margin=2.0)
    want = SIGUALoss(SL, nn.MultiMarginLoss(margin=2.0))(*batch())
    torch.testing.assert_close(changed(*batch()), want)
    torch.testing.assert_close(put(*batch()), want)


# Reductions and denominators.


def test_reductions_agree():
    """The entries of "none" sum to "sum", and "mean" is that over the sum of the weights."""
    logits, labels = batch()
    weight = torch.linspace(0.5, 2, 10, dtype=torch.float64)
    for variant in ("paper", "official"):
        method = sigua.sigua_sl(0.5, delta=0.3, gamma=0.5, warmup=0, variant=variant)
        mean, total, each = (
            SIGUALoss(method, nn.CrossEntropyLoss(weight, reduction=r))(logits, labels)
            for r in ("mean", "sum", "none")
        )
        torch.testing.assert_close(each.sum(), total)
        torch.testing.assert_close(mean * weight[labels].sum(), total)


@pytest.mark.parametrize("items", [64, torch.tensor(64), torch.tensor([64])], ids=str)
@pytest.mark.parametrize("mode", [True, False], ids=["training", "evaluation"])
def test_num_items_in_batch_is_what_the_mean_divides_by(mode, items):
    """Whatever its shape, the loss is a number."""
    logits, labels = batch()
    criterion = SIGUALoss(SL).train(mode)
    value, gradient = run(criterion, logits, labels, num_items_in_batch=items)
    want = run(criterion, logits, labels)
    same((value, gradient), [part * 40 / 64 for part in want])
    assert value.shape == ()
    total = SIGUALoss(SL, nn.CrossEntropyLoss(reduction="sum")).train(mode)
    same(run(total, logits, labels, num_items_in_batch=items), run(total, logits, labels), 0)


# Who takes part, and who is judged together.


@pytest.mark.parametrize("how", ["where", "ignore_index", "both"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@each_method
def test_who_takes_no_part_is_as_if_not_there(method, reduction, how):
    """Value, masks and gradient are those of the others alone; what it holds does not matter."""
    logits, labels = batch()
    weight = torch.linspace(0.5, 2, 10, dtype=torch.float64)
    missing = torch.rand(40, generator=torch.Generator().manual_seed(1)) < 1 / 3
    options = {"weight": weight, "reduction": reduction}
    criterion, alone = (SIGUALoss(method, nn.CrossEntropyLoss(**options)) for _ in range(2))
    marked = labels.masked_fill(missing, {"where": 77, "ignore_index": -100, "both": -100}[how])
    where = None if how == "ignore_index" else ~missing
    if how == "both":
        where[0] = missing[0] = True
        marked[0], where = -100, torch.ones_like(missing)
    value, gradient = run(criterion, logits, marked, where=where)
    want, want_gradient = run(alone, logits[~missing], labels[~missing])
    torch.testing.assert_close(value, want, rtol=1e-12, atol=0)
    torch.testing.assert_close(gradient[~missing], want_gradient, rtol=1e-12, atol=1e-16)
    assert (gradient[missing] == 0).all()
    for mask, expected in zip(criterion.split, alone.split, strict=True):
        assert torch.equal(mask[~missing], expected)
        assert not mask[missing].any()
    evaluated = run(criterion.eval(), logits, marked, where=where)[0]
    torch.testing.assert_close(evaluated, run(alone.eval(), logits[~missing], labels[~missing])[0])


@pytest.mark.parametrize("mark", [-1.0, float("nan")])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_missing_labels_of_a_sigmoid_take_no_part(mark, reduction):
    """In training and in evaluation; float targets have no index to ignore."""
    logits, target = batch()[0], torch.randint(0, 2, (40, 10)).double()
    missing = torch.rand(40, 10, generator=torch.Generator().manual_seed(1)) < 1 / 3
    loss = nn.BCEWithLogitsLoss(reduction=reduction)
    criterion, alone = SIGUALoss(SL, loss), SIGUALoss(SL, loss)
    for mode in (True, False):
        criterion.train(mode), alone.train(mode)
        marked = target.masked_fill(missing, mark)
        value, gradient = run(criterion, logits, marked, where=~missing)
        want, want_gradient = run(alone, logits[~missing], target[~missing])
        value = value[~missing] if reduction == "none" else value
        torch.testing.assert_close(value, want, rtol=1e-12, atol=1e-15)
        torch.testing.assert_close(gradient[~missing], want_gradient, rtol=1e-12, atol=1e-16)
        assert (gradient[missing] == 0).all()


def test_an_own_index_to_ignore_is_never_shown_to_a_loss():
    """255, of a module's own attribute or a partial's keyword, and -100 of any function."""

    def strict(z, y, ignore_index=255):
        assert (y != ignore_index).all()
        return F.cross_entropy(z, y, reduction="none")

    logits, labels = torch.tensor([[0.0, 0.0], [float(np.log(3)), 0.0]]), torch.tensor([255, 0])
    for loss, index in ((functools.partial(strict, ignore_index=255), 255), (strict, -100)):
        labels[0] = index
        criterion = SIGUALoss(sigua.standard(), loss)
        for training in (True, False):
            value, _ = run(criterion.train(training), logits, labels)
            assert value.item() == pytest.approx(np.log(4 / 3), rel=1e-6)


@each_method
@small
def test_nobody_takes_part(method):
    """An empty mini-batch, or one with every label ignored, has loss 0 and gradient 0."""
    for shape in ((0, 10), (0, 10, 3), (2, 10, 0), (4, 10)):
        labels = torch.full((shape[0], *shape[2:]), -100)
        for options in ({}, {"num_items_in_batch": 0}, {"num_items_in_batch": torch.tensor(0)}):
            value, gradient = run(SIGUALoss(method), torch.randn(shape), labels, **options)
            assert value.item() == 0
            assert (gradient == 0).all()


@pytest.mark.parametrize(
    "loss",
    [nn.CrossEntropyLoss(), generalized_cross_entropy, nn.MSELoss()],
    ids=["CE", "GCE", "MSE"],
)
@pytest.mark.parametrize("shape", [(6, 4), (6, 4, 4), (6, 4, 5)], ids=str)
def test_nan_of_who_takes_no_part_reaches_nobody(loss, shape):
    """Neither by the loss nor by the gradient, as of padding; but a mask of a shape of its own."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(shape, generator=generator)
    each = isinstance(loss, nn.MSELoss)  # a loss for each entry
    target = torch.rand(shape, generator=generator) if each else logits.argmax(1)
    where = torch.rand(target.shape, generator=generator) < 0.5
    rows, mask = (logits, where) if each else (logits.movedim(1, -1), where.unsqueeze(1))
    criterion = SIGUALoss(sigua.standard(), loss)
    want, slopes = run(criterion, rows[where], target[where])
    value, gradient = run(criterion, logits.masked_fill(~mask, float("nan")), target, where=where)
    gradient = gradient if each else gradient.movedim(1, -1)
    torch.testing.assert_close((value, gradient[where]), (want, slopes))
    assert not gradient[~where].any()
    other = where.T.contiguous() if each and len(shape) == 2 else where.unsqueeze(1)
    for training in (True, False):
        with pytest.raises(ValueError, match=r"^where: must be a torch tensor, \(6"):
            run(criterion.train(training), logits, target, where=other)


@pytest.mark.parametrize("kind", ["sl", "official", "batch", "classes", "floor"])
@pytest.mark.parametrize("shape", [(3, 6, 7), (4, 9)], ids=["pixels", "tokens"])
def test_images_are_judged_apart(kind, shape):
    """As a mini-batch for each of the N, over the N of them."""
    logits, labels = batch(*shape)
    logits, loss = logits.movedim(-1, 1), nn.CrossEntropyLoss(reduction="none")
    apart, whole = (SIGUALoss(METHODS[kind], loss, groups=g) for g in ("image", None))
    value, gradient = run(apart, logits, labels)
    separate = METHODS[kind].separate
    for i in range(len(logits)):
        want, slopes = run(whole, logits[i : i + 1], labels[i : i + 1])
        for mask, expected in zip(apart.split, whole.split, strict=True):
            assert torch.equal(mask[i : i + 1], expected)
        if not separate:  # whose averages are over all images
            same((value[i : i + 1], gradient[i : i + 1]), (want, slopes))


# Dtypes, shapes and the life of a gradient.


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_logits_are_ranked_in_float32(dtype):
    """The same examples as for the same logits in float32, although their half losses tie."""
    logits = (3 * torch.randn(8192, 300, generator=torch.Generator().manual_seed(0))).to(dtype)
    labels = torch.randint(0, 300, (8192,), generator=torch.Generator().manual_seed(1))
    criterion = SIGUALoss(sigua.sigua_sl(0.4, delta=0.1, warmup=0))
    value, gradient = run(criterion, logits, labels)
    split = criterion.split
    want, _ = run(criterion, logits.float(), labels)
    assert torch.equal(split.good, criterion.split.good)
    assert int(split.good.sum()) == 4915 + 1  # floor(8192 * 0.6) + 1, without a tie
    assert (value.dtype, gradient.dtype) == (torch.float32, dtype)
    torch.testing.assert_close(value, want)
    sigmoid, target = SIGUALoss(SL, nn.BCEWithLogitsLoss()), torch.rand(40, 10).to(dtype)
    value, gradient = run(sigmoid, logits[:40, :10], target)
    assert (value.dtype, gradient.dtype) == (torch.float32, dtype)


@each_method
@small
def test_one_example_needs_no_batch_and_labels_may_be_bytes(method):
    """(k,) and a label are (1, k) and (1,); the split has a loss's shape, ()."""
    (logits, labels), criterion = batch(1), SIGUALoss(method)
    want, slopes = run(SIGUALoss(method), logits, labels)
    same(run(criterion, logits[0], labels[0].to(torch.uint8)), (want, slopes[0]))
    assert criterion.split.good.shape == ()


@each_method
def test_tokens_and_pixels_are_examples(method):
    """As the same examples in a row, ignored ones left out."""
    logits, labels = batch(2, 3, 5)
    labels[0, 0] = -100
    criterion, row = SIGUALoss(method), SIGUALoss(method)
    value, gradient = run(criterion, logits.movedim(-1, 1), labels)
    want, slopes = run(row, logits.reshape(-1, 10), labels.reshape(-1))
    same((value, gradient.movedim(1, -1).reshape(-1, 10)), (want, slopes))
    assert torch.equal(criterion.split.good.reshape(-1), row.split.good)


@each_method
def test_vmap_and_grad_of_torch_func_give_each_mini_batch_its_own(method):
    """With an ignored label, too. Agreement is asked without its confidence, which cannot move."""
    logits, labels = batch(60)
    logits, labels = logits.detach().reshape(3, 20, 10), labels.reshape(3, 20)
    labels[:, 4] = -100
    if isinstance(method.condition, sigua.Agreement):
        method = sigua.sigua_ag(warmup=0, gamma=0.3, by_class=False)
    criterion = SIGUALoss(method).double()
    got = torch.vmap(criterion)(logits, labels)
    gradients = torch.vmap(torch.func.grad(criterion))(logits, labels)
    assert criterion.split is None  # the masks belong to the transform
    for i in range(3):
        want, gradient = run(criterion, logits[i], labels[i])
        torch.testing.assert_close(got[i], want, rtol=1e-13, atol=1e-13)
        torch.testing.assert_close(gradients[i], gradient, rtol=1e-12, atol=1e-14)


@each_method
def test_gradcheck(method):
    """The gradient is the derivative of the value, masks held fixed; so is the second."""
    logits, labels = batch(12)
    criterion = SIGUALoss(method).double()
    if isinstance(method.condition, sigua.Agreement):
        criterion = SIGUALoss(sigua.sigua_ag(warmup=0, gamma=0.3, by_class=False))
    assert torch.autograd.gradcheck(lambda z: criterion(z, labels), (logits,))
    assert torch.autograd.gradgradcheck(lambda z: criterion(z, labels), (logits,))


# What a Hugging Face model returns: logits among other things.


@pytest.mark.parametrize("shape", [(40,), (2, 3, 4)], ids=["examples", "images"])
@pytest.mark.parametrize("wrap", [dict, OrderedDict, SimpleNamespace])
@pytest.mark.parametrize("items", [None, 80])
def test_an_output_that_has_logits_counts_as_its_logits(wrap, items, shape):
    """Loss, gradient and masks are those of the bare logits, with and without a denominator.

    Images, (N, height, width), have the classes first, as segmentation models return them.
    """
    logits, labels = batch(*shape)
    logits = logits.movedim(-1, 1)
    bare, wrapped = SIGUALoss(SL), SIGUALoss(SL)
    want = bare(logits, labels, num_items_in_batch=items)
    got = wrapped(wrap(loss=None, logits=logits), labels, num_items_in_batch=items)
    assert got.item() == want.item()
    grads = [torch.autograd.grad(loss, logits)[0] for loss in (got, want)]
    assert torch.equal(*grads)
    assert torch.equal(wrapped.split.bad, bare.split.bad)
    evaluated = wrapped.eval()({"logits": logits}, labels, num_items_in_batch=items)
    assert evaluated.item() == bare.eval()(logits, labels, num_items_in_batch=items).item()


@pytest.mark.parametrize("num_classes", [5, 7])
def test_token_classifiers_have_the_classes_last(num_classes):
    """(N, length, k) for (N, length), even where length is k; ignored tokens take no part."""
    logits, labels = batch(12, 7, k=num_classes)
    labels[:, 5:] = -100
    criterion, flat = SIGUALoss(SL), SIGUALoss(SL)
    got = criterion({"logits": logits}, labels)
    want = flat(logits.flatten(0, 1), labels.flatten())
    torch.testing.assert_close(got, want, rtol=1e-6, atol=0)
    assert torch.equal(criterion.split.good, flat.split.good.reshape(12, 7))
    assert not criterion.split.good[:, 5:].any()


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ({"loss": None, "scores": None}, "^input: must have 'logits' if .* got 'loss', 'scores';"),
        ({}, "^input: must have 'logits' if it is a mapping, got an empty one;"),
        ({"logits": [[0.0, 1.0]] * 4}, "^input: must be a torch tensor, got a list"),
        ((torch.zeros(4, 2),), r"^input: must be logits, .* got tuple; .*return_dict"),
        ([torch.zeros(4, 2)], r"^input: must be logits, .* got list; .*return_dict"),
    ],
    ids=["other names", "empty", "a list of numbers", "tuple", "list"],
)
def test_an_output_without_logits_is_refused(output, message):
    """Nothing says what a tuple's first entry is, or whether it is for the next token."""
    with pytest.raises(ValueError, match=message):
        SIGUALoss(SL)(output, torch.tensor([0, 1, 0, 1]))


def test_an_output_that_is_called_causal_is_compared_with_the_next_token():
    """By hand: what is left of the logits is their first three places, of the labels the last."""

    class SomeCausalLMOutputWithPast(dict):
        pass

    logits, labels = batch(5, 4, k=4)
    causal, bare = SIGUALoss(SL), SIGUALoss(SL)
    got = causal(SomeCausalLMOutputWithPast(logits=logits), labels)
    want = bare(logits[:, :3].reshape(15, 4), labels[:, 1:].reshape(15))
    torch.testing.assert_close(got, want)
    assert causal.split.good.shape == (5, 3)
    assert torch.equal(causal.split.good.reshape(15), bare.split.good)
    sentences = logits[:, 0], labels[:, 0]  # of a classifier, not of tokens: left as they are
    got = causal(SomeCausalLMOutputWithPast(logits=sentences[0]), sentences[1])
    torch.testing.assert_close(got, SIGUALoss(SL)(*sentences))
