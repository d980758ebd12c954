"""The criterion equals the spec: golden vectors, the reference, and `nn.CrossEntropyLoss`."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import sigua
from sigua_torch import SIGUALoss

PAIR = sigua.TransitionMatrix.pair(0.45, 10)
SYMMETRIC = sigua.TransitionMatrix.symmetric(0.5, 10)
# A third of everything is called class 0: 1'T^-1 l can be negative.
ROWS = sigua.TransitionMatrix(2 / 3 * np.eye(10) + 1 / 3 * np.eye(10)[0])
METHODS = [
    sigua.standard(),
    sigua.self_teaching(0.5),
    sigua.sigua_sl(0.5, delta=0.2, gamma=0.3),
    sigua.sigua_sl(0.5, delta=0.4, gamma=0.3, variant="official"),
    *(
        make(T)
        for T in (PAIR, SYMMETRIC, ROWS)
        for make in (
            sigua.backward_correction,
            sigua.nn_backward_correction,
            sigua.sigua_bc,
            sigua.forward_correction,
            lambda T: sigua.sigua_bc(T, gamma=0.5, over="batch"),
        )
    ),
    sigua.sigua_bc(ROWS, over="classes"),
    # Of the random mini-batches one floor is below the mean loss, the others above it.
    sigua.sigua_nf(0.5, 10),
    sigua.custom(sigua.NoiseFloor(9.0), gamma=0.5),
    sigua.sigua_fc(PAIR, gamma=0.5, floor=9.0),
    sigua.sigua_fc(SYMMETRIC, gamma=0.5, floor=9.0),
    sigua.custom(sigua.Known(), gamma=0.1),
]


def name(value):
    return repr(value)[:60]


EPS = {torch.float64: 2.3e-16, torch.float32: 1.2e-7}


def batch(n=60, dtype=torch.float64, seed=0):
    """Logits, of which some rows repeat (ties), labels, and who is trusted."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(n, 10, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 10, (n,), generator=generator)
    tied = torch.arange(10) % (n // 2)
    logits[n - 10 :], labels[n - 10 :] = logits[tied], labels[tied]
    trusted = torch.rand(n, generator=generator) < 0.5
    return logits.to(dtype).requires_grad_(), labels, trusted


def run(criterion, logits, *rest):
    """Value and gradient with respect to the logits."""
    logits = logits.detach().requires_grad_()
    value = criterion(logits, *rest)
    value.sum().backward()
    return value.detach(), logits.grad


def arguments(method, labels, trusted):
    return (labels, trusted) if isinstance(method.condition, sigua.Known) else (labels,)


@pytest.mark.parametrize("epoch", [0, 3.5, 10])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("method", METHODS, ids=name)
def test_equals_the_reference(method, dtype, epoch):
    logits, labels, trusted = batch(dtype=dtype)
    criterion = SIGUALoss(method)
    criterion.set_epoch(epoch)
    value, gradient = run(criterion, logits, *arguments(method, labels, trusted))
    want = sigua.reference.step(
        method, logits.detach().double().numpy(), labels.numpy(), epoch, trusted=trusted.numpy()
    )
    np.testing.assert_array_equal(criterion.split.good.numpy(), want.split.good)
    np.testing.assert_array_equal(criterion.split.bad.numpy(), want.split.bad)
    slack = 200 * EPS[dtype]  # T^-1 has entries of about 2, losses of about 10
    np.testing.assert_allclose(value.item(), want.objective, rtol=slack, atol=slack)
    np.testing.assert_allclose(gradient.numpy(), want.gradient, atol=slack / len(labels))


@pytest.mark.parametrize(
    "method",
    [
        sigua.sigua_sl(0.5, delta=0.2, gamma=0.3),
        sigua.standard(),
        sigua.sigua_bc(sigua.TransitionMatrix.symmetric(0.4, 2), gamma=0.3),
    ],
    ids=name,
)
@pytest.mark.parametrize("n", [40, 1500])
@pytest.mark.parametrize("spoiler", [None, float("nan"), -float("inf")])
@pytest.mark.parametrize("other", [0, 1], ids=["at the label", "at the other class"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_the_short_way_equals_the_general_one(method, n, spoiler, other, reduction):
    """With ties, NaN and inf; by a search per loss (n = 40) and by whole comparisons (n = 1500)."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randint(0, 30, (n, 2), generator=generator) / 8
    labels = torch.randint(0, 2, (n,), generator=generator)
    if spoiler is not None:
        logits[7, labels[7] ^ other] = spoiler
    for epoch in (0, 4, 10):
        short, general = (SIGUALoss(method, reduction=reduction) for _ in range(2))
        assert short._flat is not None
        general._flat = None
        for criterion in (short, general):
            criterion.set_epoch(epoch)
        value, gradient = run(short, logits, labels)
        want, want_gradient = run(general, logits, labels)
        assert torch.equal(short.split.good, general.split.good)
        assert torch.equal(short.split.bad, general.split.bad)
        torch.testing.assert_close(value, want, equal_nan=True)
        torch.testing.assert_close(gradient, want_gradient, equal_nan=True)


@pytest.mark.filterwarnings("ignore:a mini-batch of")
def test_where_nobody_is_kept_nobody_is_good():
    """floor(1 * .5) = 0 examples; apart from the averages, as the authors' code does it."""
    rule = sigua.SmallLoss(0.5, warmup=0, variant="official")
    criterion = SIGUALoss(sigua.custom(rule, gamma=0.1))
    assert run(criterion, torch.zeros(1, 2), torch.tensor([0]))[0] == 0
    assert not criterion.split.good.any()


def test_transforms_of_torch_func_take_the_general_way():
    """Their tensors have no memory to sort; gradients are those of backward()."""
    logits, labels, _ = batch()
    criterion = SIGUALoss(sigua.sigua_sl(0.5, delta=0.2, gamma=0.3, warmup=0))
    _, want = run(criterion, logits, labels)
    got = torch.func.grad(lambda z: criterion(z, labels))(logits.detach())
    torch.testing.assert_close(got, want, rtol=1e-14, atol=1e-17)


@pytest.mark.parametrize("method", METHODS[:-1], ids=name)
@pytest.mark.parametrize("in_dims", [(0, 0), (0, None)], ids=str)
def test_vmap_gives_the_loss_of_each_mini_batch(method, in_dims):
    """And its gradient, under both transforms; with an ignored label, too."""
    logits, labels, _ = batch()
    logits, labels = logits.detach().reshape(3, 20, 10), labels.reshape(3, 20)
    labels[:, 4] = -100
    labels = labels if in_dims[1] == 0 else labels[0]
    criterion = SIGUALoss(method).double()
    criterion.set_epoch(7)
    got = torch.vmap(criterion, in_dims)(logits, labels)
    gradients = torch.vmap(torch.func.grad(criterion), in_dims)(logits, labels)
    for i in range(3):
        one = labels[i] if in_dims[1] == 0 else labels
        want, gradient = run(criterion, logits[i], one)
        torch.testing.assert_close(got[i], want, rtol=1e-13, atol=1e-13)
        torch.testing.assert_close(gradients[i], gradient, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("method", METHODS, ids=name)
def test_device_path_equals_host_path(method, monkeypatch):
    """Counts and thresholds as tensors, as on an accelerator, choose and weigh as on the host."""
    logits, labels, trusted = batch()
    labels[5] = -100
    rest = arguments(method, labels, trusted)
    criterion = SIGUALoss(method).double()
    criterion.set_epoch(7.25)
    value, gradient = run(criterion, logits, *rest)
    split = criterion.split
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    device_value, device_gradient = run(criterion, logits, *rest)
    assert torch.equal(criterion.split.good, split.good)
    assert torch.equal(criterion.split.bad, split.bad)
    torch.testing.assert_close(device_value, value, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(device_gradient, gradient, rtol=1e-13, atol=1e-15)


def cross_entropy_cases():
    shapes = [(5,), (7, 5), (4, 5, 3), (2, 5, 3, 2)]
    grid = itertools.product(
        shapes, [False, True], [False, True], [False, True], [0.0, 0.1], ["mean", "sum", "none"]
    )
    for shape, probabilities, weighted, ignoring, smoothing, reduction in grid:
        if not (ignoring and (probabilities or len(shape) == 1)):
            yield shape, probabilities, weighted, ignoring, smoothing, reduction


@pytest.mark.filterwarnings("ignore:a mini-batch of")
@pytest.mark.parametrize("mode", ["rho is 1", "eval", "no grad"])
def test_is_cross_entropy(mode):
    """Over every option of `nn.CrossEntropyLoss` and their combinations."""
    generator = torch.Generator().manual_seed(0)
    method = sigua.sigua_sl(0.5, delta=0.2, warmup=0 if mode != "rho is 1" else 10)
    for shape, probabilities, weighted, ignoring, smoothing, reduction in cross_entropy_cases():
        options = {
            "weight": torch.rand(5, generator=generator).double() if weighted else None,
            "ignore_index": 2 if ignoring else -100,
            "label_smoothing": smoothing,
            "reduction": reduction,
        }
        dim = 0 if len(shape) == 1 else 1
        logits = torch.randn(shape, generator=generator, dtype=torch.float64)
        target = torch.randn(shape, generator=generator, dtype=torch.float64).softmax(dim)
        target = target if probabilities else target.argmax(dim)
        plain, criterion = nn.CrossEntropyLoss(**options), SIGUALoss(method, **options)
        if mode == "no grad":
            with torch.no_grad():
                assert torch.equal(criterion(logits, target), plain(logits, target))
            continue
        criterion.train(mode != "eval")
        (value, gradient), (want, want_gradient) = (
            run(c, logits, target) for c in (criterion, plain)
        )
        torch.testing.assert_close(value, want, rtol=1e-14, atol=1e-14)
        torch.testing.assert_close(gradient, want_gradient, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("T", [PAIR, SYMMETRIC], ids=name)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("probabilities", [False, True])
def test_corrected_losses_by_their_definition(T, smoothing, weighted, probabilities):
    """q'T^-1 l and -log(T'p), with l and log from plain cross-entropy against each class."""
    logits, labels, _ = batch()
    weight = torch.linspace(0.5, 2, 10, dtype=torch.float64) if weighted else None
    options = {"weight": weight, "label_smoothing": smoothing, "reduction": "none"}
    q = F.one_hot(labels, 10).double()
    if probabilities:
        q = 0.7 * q + 0.03
    target = q if probabilities else labels
    every = torch.stack(
        [F.cross_entropy(logits, torch.full_like(labels, j), **options) for j in range(10)], 1
    )
    rows, inverse = (torch.tensor(array) for array in (T.rows, T.inverse))
    backward = (q @ inverse * every).sum(1)
    observed = (logits.softmax(1) @ rows).log()
    forward = F.cross_entropy(observed, target, **options)
    for make, want in ((sigua.backward_correction, backward), (sigua.forward_correction, forward)):
        got = SIGUALoss(make(T), **options)(logits, target)
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


def test_weights_and_ignored_targets_do_not_rank():
    """A heavy class does not look mislabelled; an ignored pixel is not counted in n."""
    logits = torch.zeros(6, 2)
    logits[:, 0] = torch.tensor([5.0, 4.0, 3.0, 2.0, 1.0, 0.0])
    labels = torch.tensor([0, 0, 0, 0, 0, 0])
    method = sigua.self_teaching(0.5, warmup=0)
    criterion = SIGUALoss(method, weight=torch.tensor([100.0, 0.01]))
    labels[0] = 1  # the largest loss, lightly weighted
    criterion(logits.requires_grad_(), labels)
    assert criterion.split.good.tolist() == [False, True, True, True, True, False]
    criterion = SIGUALoss(method, ignore_index=1)
    criterion(logits, labels)  # n = 5: floor(2.5) + 1 = 3 are good
    assert criterion.split.good.tolist() == [False, True, True, True, False, False]


@pytest.mark.filterwarnings("ignore:a mini-batch of")
@pytest.mark.parametrize("method", METHODS[:-1], ids=name)
def test_nothing_takes_part(method):
    """An empty mini-batch, or one with every label ignored, has loss 0 and gradient 0."""
    for n, labels in ((0, torch.zeros(0, dtype=torch.long)), (4, torch.full((4,), -100))):
        value, gradient = run(SIGUALoss(method), torch.randn(n, 10), labels)
        assert value.item() == 0
        assert (gradient == 0).all()


@pytest.mark.parametrize("options", [{}, {"per_class": True}, {"ignore_index": 0}])
def test_an_infinite_loss_does_not_hold_the_mean_below_a_floor(options):
    """Losses inf, log 5 and log 5, that is 1.61: at or above 1.5, so that both are good."""
    logits = torch.zeros(3, 5)
    logits[0, 1] = -float("inf")
    criterion = SIGUALoss(sigua.custom(sigua.NoiseFloor(1.5), gamma=1.0), **options)
    criterion(logits.requires_grad_(), torch.tensor([1, 1, 2]))
    assert criterion.split.good.tolist() == [False, True, True]


def test_nan_reaches_the_user_and_inf_says_nothing():
    logits = torch.tensor([[2.0, 0.0], [0.0, 2.0], [-float("inf"), 0.0], [1.0, 0.0], [1.0, 0.0]])
    labels = torch.tensor([0, 0, 0, 0, 1])
    criterion = SIGUALoss(sigua.sigua_sl(0.5, delta=0.3, gamma=0.5, warmup=0))
    value, gradient = run(criterion, logits, labels)
    # Losses .127, 2.127, inf, .313, 1.313; n = 5 counts the infinite one: 3 are good, 4 within.
    assert criterion.split.good.tolist() == [True, False, False, True, True]
    assert criterion.split.bad.tolist() == [False, True, False, False, False]
    want = (0.126928 + 0.313262 + 1.313262 - 0.5 * 2.126928) / 5
    assert value.item() == pytest.approx(want, abs=1e-5)
    assert gradient.isfinite().all()
    assert (gradient[2] == 0).all()
    logits[0, 0] = float("nan")
    value, _ = run(criterion, logits, labels)
    assert value.isnan()
    assert not criterion.split.good[0]
    assert not criterion.split.bad[0]


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
    assert value.dtype == torch.float32
    assert gradient.dtype == dtype
    torch.testing.assert_close(value, want)


@pytest.mark.parametrize("method", METHODS, ids=name)
def test_gradcheck(method):
    """The gradient is the derivative of the value, masks held fixed."""
    logits, labels, trusted = (part[:12].detach() for part in batch())  # no ties: masks stay
    logits.requires_grad_()
    criterion = SIGUALoss(method)
    criterion.set_epoch(10)
    rest = arguments(method, labels, trusted)
    assert torch.autograd.gradcheck(lambda z: criterion(z, *rest), (logits,))


@pytest.mark.parametrize("value", [-1e4, -1e9, -float("inf")])
def test_forward_correction_is_exact_where_classes_are_masked(value):
    """Class 3 all but impossible: T'p at label 3 is .45 p_2, with p_2 = 1/9; -log .05 = 2.99573."""
    logits = torch.zeros(1, 10)
    logits[0, 3] = value
    got, gradient = run(SIGUALoss(sigua.forward_correction(PAIR)), logits, torch.tensor([3]))
    assert got.item() == pytest.approx(-np.log(0.05), rel=1e-6)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("T", [PAIR, SYMMETRIC], ids=name)
def test_an_impossible_label_says_nothing_under_backward_correction(T):
    """Its corrected loss is +inf, dense or symmetric: neither good nor bad, value 0, gradient 0."""
    logits, labels, _ = batch()
    logits = logits.detach().clone()
    logits[3, labels[3]] = -float("inf")
    criterion = SIGUALoss(sigua.sigua_bc(T))
    value, gradient = run(criterion, logits, labels)
    assert value.isfinite()
    assert gradient.isfinite().all()
    assert (gradient[3] == 0).all()
    assert not (criterion.split.good | criterion.split.bad)[3]


BLOCKS = np.array([[0.8, 0.2, 0, 0], [0.3, 0.7, 0, 0], [0, 0, 1, 0], [0, 0, 0.1, 0.9]])


@pytest.mark.parametrize("T", [np.eye(4), BLOCKS], ids=["identity", "blocks"])
def test_an_impossible_label_says_nothing_under_forward_correction(T):
    """No class that T turns into label 1 is possible: loss +inf, value 0 and a gradient of 0."""
    logits, labels = torch.zeros(3, 4), torch.tensor([0, 1, 3])
    logits[1, :2] = -float("inf")
    method = sigua.forward_correction(sigua.TransitionMatrix(T))
    value, gradient = run(SIGUALoss(method), logits, labels)
    uniform = [-np.log(T[:, label].sum() / 4) for label in (0, 3)]
    assert value.item() == pytest.approx(sum(uniform) / 3, rel=1e-6)
    assert gradient.isfinite().all()
    assert (gradient[1] == 0).all()


def test_a_masked_class_is_no_part_of_a_correction_without_noise():
    """Symmetric noise of rate 0 leaves cross-entropy: log(1 + e) - 1 here, and not NaN."""
    logits = torch.tensor([[0.0, 1.0, -float("inf")]])
    method = sigua.sigua_bc(sigua.TransitionMatrix.symmetric(0.0, 3))
    value, gradient = run(SIGUALoss(method), logits, torch.tensor([1]))
    assert value.item() == pytest.approx(np.log(1 + np.e) - 1, rel=1e-6)
    p = np.e / (1 + np.e)
    np.testing.assert_allclose(gradient.numpy(), [[1 - p, p - 1, 0]], rtol=1e-6)


def test_a_base_loss_never_sees_an_ignored_index():
    """Neither in training nor after eval(): 255 would be refused by what knows another index."""
    logits, labels = torch.tensor([[0.0, 0.0], [float(np.log(3)), 0.0]]), torch.tensor([255, 0])
    base = torch.nn.CrossEntropyLoss(reduction="none")
    criterion = SIGUALoss(sigua.standard(), base=base, ignore_index=255)
    for mode in (criterion.train(), criterion.eval()):
        assert mode(logits, labels).item() == pytest.approx(np.log(4 / 3), rel=1e-6)


def test_any_base_loss_is_selected_and_corrected():
    """Focal loss by hand: SIGUA chooses on it, and T^-1 corrects it class by class."""
    logits, labels, _ = batch()

    def focal(input, target):
        loss = F.cross_entropy(input, target, reduction="none")
        return (1 - (-loss).exp()) ** 2 * loss

    criterion = SIGUALoss(sigua.self_teaching(0.5, warmup=0), base=focal)
    value, _ = run(criterion, logits, labels)
    losses = focal(logits, labels).detach()
    good = losses <= losses.sort().values[30]
    assert torch.equal(criterion.split.good, good)
    torch.testing.assert_close(value, (losses * good).sum() / 60)
    every = torch.stack([focal(logits, torch.full_like(labels, j)) for j in range(10)], 1)
    for T in (PAIR, SYMMETRIC):
        criterion = SIGUALoss(sigua.backward_correction(T), base=focal)
        value, _ = run(criterion, logits, labels)
        torch.testing.assert_close(value, (torch.tensor(T.inverse)[labels] * every).sum(1).mean())
    criterion.eval()
    torch.testing.assert_close(criterion(logits, labels), losses.mean())


@pytest.mark.parametrize("weighted", [False, True])
def test_a_rule_sees_losses_without_gradient(weighted):
    """So that masks made of them carry none, whatever a rule computes on the way."""
    seen = []

    class Watch:
        def at(self, epoch):
            return ()

        def split(self, batch):
            seen.append(batch.losses.requires_grad)
            return sigua.Split(batch.losses >= 0, batch.losses < 0)

    logits, labels, _ = batch()
    weight = torch.ones(10, dtype=torch.float64) if weighted else None
    SIGUALoss(sigua.custom(Watch()), weight)(logits, labels)
    assert seen == [False]


def test_reductions_agree():
    """The entries of "none" sum to "sum", and "mean" is that over the sum of the weights."""
    logits, labels, _ = batch()
    for variant in ("paper", "official"):
        method = sigua.sigua_sl(0.5, delta=0.3, gamma=0.5, warmup=0, variant=variant)
        weight = torch.linspace(0.5, 2, 10, dtype=torch.float64)
        mean, total, each = (
            SIGUALoss(method, weight, reduction=r)(logits, labels) for r in ("mean", "sum", "none")
        )
        torch.testing.assert_close(each.sum(), total)
        torch.testing.assert_close(mean * weight[labels].sum(), total)


def test_official_averages_are_weighted_means():
    """mean(good) - gamma * mean(bad), each with its own class weights, as two calls would give."""
    logits, labels, _ = batch()
    weight = torch.linspace(0.5, 2, 10, dtype=torch.float64)
    method = sigua.sigua_sl(0.5, delta=0.3, gamma=0.5, warmup=0, variant="official")
    criterion = SIGUALoss(method, weight)
    value = criterion(logits, labels)
    good, bad = criterion.split
    want = F.cross_entropy(logits[good], labels[good], weight)
    want = want - 0.5 * F.cross_entropy(logits[bad], labels[bad], weight)
    torch.testing.assert_close(value, want)
