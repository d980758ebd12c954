"""Who is compared with whom, and by what: per class, per image, by a ranking loss of its own."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import sigua
from sigua import reference
from sigua_torch import SIGUALoss, losses

T = sigua.TransitionMatrix(0.6 * np.eye(5) + 0.4 * np.eye(5)[0])
METHODS = [
    sigua.self_teaching(0.5, warmup=0),
    sigua.sigua_sl(0.5, delta=0.3, gamma=0.3, warmup=0),
    sigua.sigua_sl(0.5, delta=0.6, gamma=0.3, warmup=0, variant="official"),
    sigua.custom(sigua.NoiseFloor(2.0), gamma=0.5),
    sigua.sigua_bc(T, gamma=0.5, over="batch"),
    sigua.sigua_bc(T, gamma=0.5, over="classes"),
    sigua.custom(sigua.SmallLoss(0.4, 0.3, 0), 0.3, "forward", T),
    sigua.custom(sigua.Known(), gamma=0.2),
]
EPS = 2.3e-16
PAIR, TWO = sigua.TransitionMatrix.pair(0.3, 3), sigua.TransitionMatrix([[0.9, 0.1], [0.3, 0.7]])
BCE = nn.BCEWithLogitsLoss(reduction="none")


def name(method):
    return repr(method)[:50]


def batch(n=80, seed=0):
    """Logits with tied rows, and labels of which class 4 is rare."""
    rng = np.random.default_rng(seed)
    logits, labels = 2 * rng.normal(size=(n, 5)), rng.choice(5, n, p=[0.4, 0.3, 0.15, 0.13, 0.02])
    logits[n // 2 :: 3], labels[n // 2 :: 3] = logits[: n // 2 : 3][: len(logits[n // 2 :: 3])], 1
    return logits, labels, rng.random(n) < 0.5


def run(criterion, logits, *rest):
    logits = torch.tensor(logits, requires_grad=True)
    loss = criterion(logits, *rest)
    loss.backward()
    return loss.item(), logits.grad.numpy(), criterion.split


def same(found, done):
    """The masks are equal, value and gradient to rounding."""
    value, gradient, split = found
    np.testing.assert_array_equal(split.good.numpy(), done.split.good)
    np.testing.assert_array_equal(split.bad.numpy(), done.split.bad)
    n = len(gradient)
    np.testing.assert_allclose(gradient, done.gradient, rtol=0, atol=64 * EPS / n * 10)
    assert value == pytest.approx(done.objective, rel=1e-12)


@pytest.mark.parametrize("method", METHODS, ids=name)
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "traced"])
def test_per_class_judges_each_label_apart(method, compiled):
    """Masks, value and gradient are the reference's with the labels for groups."""
    logits, labels, trusted = batch()
    known = isinstance(method.condition, sigua.Known)
    done = reference.step(method, logits, labels, trusted=trusted if known else None, groups=labels)
    criterion = SIGUALoss(method, per_class=True).double()  # gamma, too, which a graph reads
    if compiled:
        torch.compiler.reset()  # other tests have compiled the same code for other methods
        criterion.compile(backend="eager", fullgraph=True)
    rest = [torch.tensor(labels), *([torch.tensor(trusted)] if known else [])]
    same(run(criterion, logits, *rest), done)


def test_a_rare_and_hard_class_is_not_dropped_as_a_whole():
    """By hand: the losses of class 1 are the largest, and half of it is kept all the same."""
    losses = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 5.0, 6.0]
    logits = torch.tensor([[value, 0.0] for value in losses])
    labels = torch.tensor([0, 0, 0, 0, 0, 0, 1, 1])
    method = sigua.self_teaching(0.5, warmup=0, variant="official")  # exactly half are good
    base = {"base": lambda logits, target: logits[:, 0]}
    for per_class, good in [(False, [1, 1, 1, 1, 0, 0, 0, 0]), (True, [1, 1, 1, 0, 0, 0, 1, 0])]:
        criterion = SIGUALoss(method, per_class=per_class, **base)
        criterion(logits.clone().requires_grad_(), labels)
        assert criterion.split.good.int().tolist() == good


@pytest.mark.parametrize("method", METHODS[:4], ids=name)
def test_ignored_labels_nan_and_inf_take_no_rank_in_their_group(method):
    """The others are chosen as if these were not there; NaN counts as the largest."""
    logits, labels, _ = batch()
    ignored = np.arange(len(labels)) % 7 == 0
    target = torch.tensor(np.where(ignored, -100, labels))
    done = reference.step(method, logits[~ignored], labels[~ignored], groups=labels[~ignored])
    _, gradient, split = run(SIGUALoss(method, per_class=True), logits, target)
    np.testing.assert_array_equal(split.good.numpy()[~ignored], done.split.good)
    assert not split.good.numpy()[ignored].any()
    np.testing.assert_allclose(gradient[~ignored], done.gradient, rtol=0, atol=64 * EPS)
    assert not gradient[ignored].any()
    values = torch.rand(20, dtype=torch.float64)
    values[3], values[11] = float("nan"), float("inf")
    groups = torch.arange(20) % 2
    base = SIGUALoss(method, per_class=True, base=lambda logits, target: logits[:, 0])
    base(torch.stack([values, values], 1).requires_grad_(), groups)
    expected = reference.split(method, values.numpy(), groups=groups.numpy())
    np.testing.assert_array_equal(base.split.good.numpy(), expected.good)
    np.testing.assert_array_equal(base.split.bad.numpy(), expected.bad)


@pytest.mark.parametrize("per_class", [False, True])
def test_per_image_judges_each_image_apart(per_class):
    """For (N, k, height, width): the reference on each image's pixels, over the N of them."""
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(3, 5, 6, 7, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 5, (3, 6, 7), generator=generator)
    method = METHODS[1]
    criterion = SIGUALoss(method, per_image=True, per_class=per_class)
    value, gradient, split = run(criterion, logits.numpy(), labels)
    objectives = []
    for i in range(3):
        pixels, own = logits[i].flatten(1).T.numpy(), labels[i].flatten().numpy()
        done = reference.step(method, pixels, own, groups=own if per_class else None)
        np.testing.assert_array_equal(split.good[i].flatten().numpy(), done.split.good)
        np.testing.assert_array_equal(split.bad[i].flatten().numpy(), done.split.bad)
        slopes = torch.tensor(gradient[i]).flatten(1).T.numpy()
        np.testing.assert_allclose(slopes, done.gradient / 3, rtol=0, atol=64 * EPS)
        objectives.append(done.objective)
    assert value == pytest.approx(np.mean(objectives), rel=1e-12)


def test_a_ranking_loss_decides_and_the_other_is_optimised():
    """Rank by cross-entropy, optimise the smoothed one: its gradient on the former's masks."""
    logits, labels, _ = batch()
    method = METHODS[1]
    plain = nn.CrossEntropyLoss(reduction="none")
    criterion = SIGUALoss(method, label_smoothing=0.9, rank_by=plain)
    _, gradient, split = run(criterion, logits, torch.tensor(labels))
    expected = reference.step(method, logits, labels).split
    np.testing.assert_array_equal(split.good.numpy(), expected.good)
    np.testing.assert_array_equal(split.bad.numpy(), expected.bad)
    smooth = torch.tensor(logits, requires_grad=True)
    losses = F.cross_entropy(smooth, torch.tensor(labels), label_smoothing=0.9, reduction="none")
    weights = torch.tensor(expected.good - 0.3 * expected.bad)
    (losses * weights).mean().backward()
    np.testing.assert_allclose(gradient, smooth.grad.numpy(), rtol=0, atol=1e-16)
    unlike = SIGUALoss(method, label_smoothing=0.9)
    assert not torch.equal(run(unlike, logits, torch.tensor(labels))[2].good, split.good)


def test_a_ranking_loss_lets_the_noise_floor_have_another_loss():
    """The floor is cross-entropy's, which decides; the smoothed loss is what is climbed."""
    logits, labels, _ = batch()
    plain = nn.CrossEntropyLoss(reduction="none")
    criterion = SIGUALoss(sigua.sigua_nf(0.5, 5), label_smoothing=0.3, rank_by=plain)
    *_, split = run(criterion, logits, torch.tensor(labels))
    expected = reference.step(sigua.sigua_nf(0.5, 5), logits, labels).split
    np.testing.assert_array_equal(split.good.numpy(), expected.good)


def test_no_shape_depends_on_the_data():
    """Forward and backward run on the meta device, where every number is unknown."""
    criterion = SIGUALoss(METHODS[1], per_class=True).to("meta")
    logits = torch.empty(20, 5, device="meta", requires_grad=True)
    criterion(logits, torch.empty(20, dtype=torch.long, device="meta")).backward()
    assert logits.grad.shape == (20, 5)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"per_class": 1}, "per_class: must be True or False, got 1;"),
        ({"per_image": True, "sync": True}, "per_image: must come without sync, for an image"),
        ({"rank_by": "ce"}, "rank_by: must be callable, got a str"),
        (
            {"method": METHODS[4], "rank_by": len},
            "rank_by: .* NonNegative judges the corrected loss",
        ),
        *(
            (
                {"method": method, scope: True},
                f"{scope}: must .* floor of {type(method).__name__} is",
            )
            for method in (sigua.sigua_nf(0.5, 5), sigua.sigua_fc(T, floor=1.0))
            for scope in ("per_class", "per_image")
        ),
        *(
            (
                {"method": sigua.sigua_nf(0.5, 5), "rank_by": ranking},
                "rank_by: must be plain cross-entropy, .* sigua_nf",
            )
            for ranking in (
                losses.generalized_cross_entropy,
                nn.CrossEntropyLoss(reduction="none", label_smoothing=0.1),
                nn.CrossEntropyLoss(reduction="none", weight=torch.ones(5)),
            )
        ),
        (
            {"method": sigua.sigua_fc(T), "rank_by": len},
            "rank_by: must be left out, .* sigua_fc is that of the corrected loss itself",
        ),
        (
            {
                "method": sigua.sigua_fc(sigua.TransitionMatrix.symmetric(0.2, 2)),
                "base": nn.BCEWithLogitsLoss(reduction="none"),
                "rank_by": nn.BCEWithLogitsLoss(reduction="none"),
            },
            "rank_by: ",
        ),
    ],
)
def test_options_that_do_not_fit_are_refused(options, sentence):
    """At construction, in a sentence."""
    with pytest.raises(ValueError, match=sentence):
        SIGUALoss(**{"method": METHODS[1]} | options)


def test_what_only_a_call_can_tell_is_refused_there():
    """Probabilities have no class, and a ranking loss needs a value per example."""
    logits = torch.randn(8, 5, requires_grad=True)
    with pytest.raises(ValueError, match="per_class: must come with class indices, got prob"):
        SIGUALoss(METHODS[1], per_class=True)(logits, torch.full((8, 5), 0.2))
    reduced = SIGUALoss(METHODS[1], rank_by=nn.CrossEntropyLoss())
    with pytest.raises(ValueError, match="rank_by: must return a loss per example, got a scalar"):
        reduced(logits, torch.zeros(8, dtype=torch.long))


def test_a_loss_of_another_shape_is_refused():
    """As (n, n), which a column of targets makes of some losses without a word."""
    logits, labels = torch.randn(8, 5, requires_grad=True), torch.zeros(8, dtype=torch.long)
    for option in ("base", "rank_by"):
        criterion = SIGUALoss(METHODS[1], **{option: lambda logits, target: logits})
        with pytest.raises(
            ValueError, match=rf"{option}: must return a loss per example, \(8,\), got shape"
        ):
            criterion(logits, labels)


@pytest.mark.filterwarnings("ignore:Using a target size:UserWarning")
@pytest.mark.parametrize(
    ("shape", "target"),
    [((8, 1), (8,)), ((8,), (8, 1)), ((2, 1, 3, 3), (2, 3, 3)), ((1, 1), (1,)), ((4, 3), (4, 1))],
    ids=str,
)
def test_losses_of_a_column_against_a_row_are_refused(shape, target):
    """NumPy's and PyTorch's broadcasting makes n losses n x n, of which n are meant."""
    squares = nn.MSELoss(reduction="none")
    logits, target = torch.randn(shape, requires_grad=True), torch.randn(target)
    mean = {"base": lambda z, y: y + 0 * z.sum(), "rank_by": squares}
    for options, name in (({"base": squares}, "base"), (mean, "rank_by")):
        criterion = SIGUALoss(METHODS[1], steps_per_epoch=4, **options)
        for training in (True, False) if name == "base" else (True,):
            with pytest.raises(
                ValueError, match=rf"^{name}: must return a loss per example, \(.*\), got sh"
            ):
                criterion.train(training)(logits, target)
        assert criterion.epoch == 0


def test_a_loss_per_row_or_per_image_of_what_is_regressed_on_is_none_too_many():
    """One of the target's shape, of the input's without classes, or of its first dimension."""
    images = torch.randn(6, 3, 4, 4, requires_grad=True)
    for dims in ([], [1], [1, 2, 3]):
        criterion = SIGUALoss(
            METHODS[1], base=lambda z, y, d=dims: (z - y).square().sum(d) if d else z - y
        )
        criterion(images, torch.zeros(6, 3, 4, 4)).backward()


def soft(shape):
    return torch.rand(shape, generator=torch.Generator().manual_seed(0)).softmax(1)


@pytest.mark.parametrize(
    ("method", "base", "classes", "make"),
    [
        (METHODS[1], None, 3, soft),
        (sigua.custom(sigua.SmallLoss(0.5, 0.2, 0), 0.3, "forward", PAIR), None, 3, soft),
        (METHODS[1], BCE, 1, torch.ones),
        (METHODS[1], BCE, 3, torch.ones),
        (sigua.custom(sigua.SmallLoss(0.5, 0.2, 0), 0.3, "forward", TWO), BCE, 1, torch.ones),
        (METHODS[1], nn.L1Loss(reduction="none"), 1, torch.zeros),
    ],
    ids=["soft", "soft, T", "map", "maps", "map, T", "depth"],
)
def test_images_are_judged_apart_for_every_float_target(method, base, classes, make):
    """Value, masks and gradient are those of a mini-batch for each of the four images."""
    logits = torch.randn(4, classes, 3, 5, dtype=torch.float64)
    target = make((4, classes, 3, 5)).double()
    options = {"base": base, "reduction": "none"}
    whole, apart = (SIGUALoss(method, per_image=by, **options).double() for by in (True, False))
    images = logits.requires_grad_()
    signed = whole(images, target)
    signed.sum().backward()
    for i in range(4):
        one = logits[i : i + 1].detach().requires_grad_()
        want = apart(one, target[i : i + 1])
        want.sum().backward()
        torch.testing.assert_close(signed[i : i + 1], want, rtol=1e-12, atol=1e-15)
        torch.testing.assert_close(images.grad[i : i + 1], one.grad, rtol=1e-12, atol=1e-15)
        for mask, expected in zip(whole.split, apart.split, strict=True):
            assert torch.equal(mask[i : i + 1], expected)
            assert 0 < expected.sum() < expected.numel()


def test_a_refused_scope_counts_no_step():
    criterion = SIGUALoss(METHODS[1], per_class=True, steps_per_epoch=4)
    with pytest.raises(ValueError, match=r"^per_class: "):
        criterion(torch.randn(8, 5, requires_grad=True), torch.full((8, 5), 0.2))
    assert criterion.epoch == 0
    assert criterion.split is None


def test_a_rule_that_inherits_from_one_of_ours_is_asked_itself():
    """The short way is for our own rules; a subclass may say something else."""

    class Nobody(sigua.SmallLoss):
        def split(self, batch, keep, forget):
            nobody = batch.losses > float("inf")
            return sigua.Split(nobody, nobody)

    criterion = SIGUALoss(sigua.custom(Nobody(0.5)))
    criterion(torch.randn(8, 5, requires_grad=True), torch.zeros(8, dtype=torch.long))
    assert not criterion.split.good.any()


def test_a_rule_of_ones_own_may_ask_each_class_for_a_plain_count():
    """The smallest loss of each class is good: logits 3 and 2 of classes 0 and 1."""

    class Smallest:
        horizon = 0.0

        def at(self, epoch):
            return ()

        def split(self, batch):
            good = batch.losses <= batch.smallest(1)
            return sigua.Split(good, ~good)

    logits = torch.tensor([[3.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 2.0]])
    criterion = SIGUALoss(sigua.custom(Smallest()), per_class=True)
    criterion(logits, torch.tensor([0, 0, 1, 1]))
    assert criterion.split.good.tolist() == [True, False, False, True]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int64, torch.bool])
def test_what_ranks_may_have_any_dtype(dtype):
    """Ranks 1, 0, 1, 0 of float32 logits: by 0/1 errors the two right ones are good."""
    method = sigua.custom(sigua.SmallLoss(0.75, 0.0, 0), gamma=0.0)
    criterion = SIGUALoss(
        method, rank_by=lambda input, target: (input.argmax(1) != target).to(dtype)
    )
    logits = torch.tensor([[0.0, 1.0], [1.0, 0.0]] * 2)
    loss = criterion(logits, torch.zeros(4, dtype=torch.long))
    assert criterion.split.good.tolist() == [False, True, False, True]
    assert loss.item() == pytest.approx(np.log1p(np.exp(-1)) / 2, rel=1e-6)
