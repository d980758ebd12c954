"""Bad input gets one sentence, and changes nothing."""

import subprocess
import sys
from typing import get_args

import numpy as np
import pytest
import torch

import sigua
from sigua._method import Correction
from sigua_torch import SIGUALoss, losses
from sigua_torch._correct import CORRECTIONS

PAIR = sigua.TransitionMatrix.pair(0.45, 10)
NF = sigua.sigua_nf(0.5, 10)
SL = sigua.sigua_sl(0.5, delta=0.2)
LOGITS, LABELS = torch.zeros(6, 10), torch.arange(6)


@pytest.mark.parametrize(
    ("method", "options", "words"),
    [
        ("sigua_sl", {}, ["method", "must be a method", "str"]),
        (SL, {"reduction": "average"}, ["reduction", "'average'", "'mean'"]),
        (SL, {"label_smoothing": 1.5}, ["label_smoothing", "[0, 1]", "1.5"]),
        (SL, {"base": "focal"}, ["base", "callable", "str"]),
        (
            SL,
            {"base": torch.nn.MSELoss},
            ["base", "class MSELoss", "MSELoss(reduction='none')"],
        ),
        (SL, {"rank_by": torch.nn.MSELoss}, ["rank_by", "class MSELoss"]),
        (SL, {"base": sigua.losses.huber}, ["base", "NumPy's huber", "sigua_torch.losses.huber"]),
        (sigua.sigua_sl, {}, ["method", "got sigua_sl itself", "try sigua_sl(...)"]),
        (SL, {"base": len, "weight": torch.ones(10)}, ["weight", "belongs to cross-entropy"]),
        (SL, {"base": len, "label_smoothing": 0.1}, ["label_smoothing", "belongs"]),
        (NF, {"label_smoothing": 0.1}, ["label_smoothing", "sigua_nf", "NoiseFloor"]),
        (NF, {"base": len}, ["base", "sigua_nf", "NoiseFloor"]),
        (SL, {"steps_per_epoch": 0}, ["steps_per_epoch", "at least 1", "got 0;"]),
        (SL, {"steps_per_epoch": 10**9}, ["steps_per_epoch", "settle within 1000000 steps"]),
        (sigua.Method(), {}, ["method", "must be a method"]),
        (SL, {"ignore_index": None}, ["ignore_index", "got None"]),
        (SL, {"sync": 1}, ["sync", "True, a process group or a Pool", "got 1;"]),
        (SL, {"weight": [1.0] * 10}, ["weight", "tensor", "got a list"]),
        (SL, {"weight": torch.ones(10, dtype=torch.int64)}, ["weight", "floating-point"]),
        (
            SL,
            {"weight": torch.ones(10, 1)},
            ["weight", "got shape (10, 1) of torch.float32", "try weight.flatten()"],
        ),
        (
            SL,
            {"weight": torch.ones(10, requires_grad=True)},
            ["weight", "got one that requires gradients", "try weight.detach()"],
        ),
        (SL, {"ignore_index": True}, ["ignore_index", "must be an int, got True"]),
        (SL, {"check_labels": "yes"}, ["check_labels: must be True or False, got 'yes'"]),
        (SL, {"weight": torch.tensor([1.0, -1.0])}, ["weight", "not negative", "-1.0"]),
        (SL, {"weight": torch.tensor([1.0, float("nan")])}, ["weight", "finite", "nan"]),
        (
            sigua.sigua_sl(0.5, delta=lambda t: 0.1),
            {"steps_per_epoch": 5},
            ["steps_per_epoch", "settle", "set_epoch"],
        ),
    ],
)
def test_constructor_refuses(method, options, words):
    with pytest.raises(ValueError) as error:  # noqa: PT011  # the words are the match
        SIGUALoss(method, **options)
    assert all(word in str(error.value) for word in words), error.value


@pytest.mark.parametrize(
    ("method", "arguments", "words"),
    [
        (SL, (LOGITS, LABELS + 5), ["target", "[0, 10)", "got 10 at [5]", "from 0"]),
        (SL, (LOGITS, LABELS - 1), ["target", "got -1 at [0]", "ignore_index"]),
        (sigua.sigua_bc(PAIR), (LOGITS, LABELS - 1), ["target", "got -1 at [0]"]),
        (SL, (torch.zeros(6), LABELS), ["class dimension"]),
        (SL, (LOGITS.long(), LABELS), ["input", "floating-point", "int64"]),
        (SL, (LOGITS, LABELS.int()), ["target", "int64", "int32"]),
        (SL, (LOGITS, LABELS[:5]), ["target", "(6, 10)", "(5,)"]),
        (SL, (LOGITS, LABELS[:, None]), ["target", "(6, 1)"]),
        (SL, (torch.tensor(1.0), torch.tensor(0)), ["input", "class dimension"]),
        (sigua.sigua_bc(PAIR), (torch.zeros(6, 7), LABELS), ["T: ", "10 rows", "logits of 7"]),
        (sigua.custom(sigua.Known()), (LOGITS, LABELS), ["trusted", "mask", "got None"]),
        (sigua.custom(sigua.Known()), (LOGITS, LABELS, LABELS), ["trusted", "bool", "int64"]),
        (sigua.custom(sigua.Known()), (LOGITS, LABELS, LABELS[:5] > 2), ["trusted", "(6,)"]),
        (SL, (LOGITS, LABELS, LABELS > 2), ["trusted", "Known"]),
        (SL, (LOGITS, LABELS.numpy()), ["target", "torch tensor", "got a ndarray"]),
        (SL, (LOGITS, None), ["target", "torch tensor", "got a NoneType"]),
        (SL, (LOGITS[:, :1], LOGITS[:, :1]), ["input", "two classes", "BCEWithLogitsLoss"]),
        (SL, (torch.zeros(6), LABELS % 2 * 1.0), ["target", "the sum 3", "BCEWithLogits"]),
        (SL, (LOGITS, torch.eye(10)[:6] * 100), ["target", "sum to 1", "the sum 100 at [0]"]),
        (SL, (LOGITS[:, :2], torch.tensor([[2.0, -1]] * 6)), ["target", "entry of all: -1"]),
        (SL, (LOGITS, LABELS, None, -1), ["num_items_in_batch", "[0, inf)", "got -1;"]),
        (SL, (LOGITS, LABELS, None, 0), ["num_items_in_batch", "positive"]),
        (SL, (LOGITS, LABELS, None, True), ["num_items_in_batch", "got True;"]),
        (SL, (LOGITS, LABELS, None, torch.tensor(-4)), ["num_items_in_batch", "got -4;"]),
        (SL, (LOGITS, LABELS, None, torch.tensor(0.0)), ["num_items_in_batch", "positive"]),
        (SL, (LOGITS, LABELS, None, torch.tensor(float("nan"))), ["num_items_in_batch", "nan"]),
        (
            SL,
            (LOGITS, LABELS, None, torch.tensor([1, 2])),
            ["num_items_in_batch: must be one number, got shape (2,)"],
        ),
        (
            sigua.custom(sigua.Known()),
            (LOGITS, LABELS, (LABELS > 2).to("meta")),
            ["trusted: must be on the losses' device, cpu, got meta", "try trusted.to('cpu')"],
        ),
        (SL, (LOGITS.to("meta"), LABELS), ["target", "input's device, meta, got cpu"]),
        (SL, (LOGITS.to("meta"), LABELS.to("meta")), ["input", "cpu, got meta", "criterion.to("]),
        (
            sigua.sigua_bc(PAIR),
            (LOGITS.to("meta"), LABELS.to("meta")),
            ["input: must be on the criterion's device, cpu, got meta"],
        ),
        (
            sigua.custom(sigua.Known()),
            (LOGITS, LABELS, (LABELS > 2).numpy()),
            ["trusted", "torch tensor"],
        ),
        (
            sigua.custom(sigua.NonNegative("batch"), 0.0, "backward", PAIR),
            (torch.zeros(6, 3), LABELS % 3),
            ["10 rows"],
        ),
    ],
)
def test_call_refuses(method, arguments, words):
    criterion = SIGUALoss(method, steps_per_epoch=4)
    logits = arguments[0].clone().requires_grad_(arguments[0].is_floating_point())
    with pytest.raises(ValueError) as error:  # noqa: PT011
        criterion(logits, *arguments[1:])
    assert all(word in str(error.value) for word in words), error.value
    assert "\n" not in str(error.value)
    assert criterion.epoch == 0
    assert criterion.split is None


def test_scalar_base_loss_is_refused():
    criterion = SIGUALoss(SL, base=torch.nn.functional.cross_entropy)
    with pytest.raises(ValueError, match=r"base: must return a loss per example.*reduction='none'"):
        criterion(LOGITS.clone().requires_grad_(), LABELS)


@pytest.mark.parametrize(
    "base",
    [
        torch.nn.CrossEntropyLoss(reduction="none"),
        losses.generalized_cross_entropy,
        losses.symmetric_cross_entropy,
        losses.huber,
        lambda logits, labels: (logits - torch.nn.functional.one_hot(labels, 10)).abs().sum(1),
    ],
)
@pytest.mark.parametrize("wrong", [10, -1])
def test_labels_that_a_base_cannot_take_are_named(base, wrong):
    """In training, in evaluation and where it ranks; what PyTorch said is the cause."""
    labels = LABELS.clone()
    labels[3] = wrong
    ranked = {"base": losses.log_sum, "rank_by": base}
    for options, training in (({"base": base}, True), ({"base": base}, False), (ranked, True)):
        criterion = SIGUALoss(SL, steps_per_epoch=4, **options).train(training)
        with pytest.raises(ValueError, match=rf"^target: .* got {wrong} at \[3\];") as error:
            criterion(LOGITS.clone().requires_grad_(), labels)
        assert criterion.epoch == 0
        assert isinstance(error.value.__context__, (IndexError, RuntimeError))


def test_what_else_a_base_raises_is_not_reworded():
    """Counts are no classes, and what goes wrong with labels in range has another reason."""

    def base(logits, counts):
        raise RuntimeError("mine")

    for labels in (LABELS, LABELS + 0.5):
        with pytest.raises(RuntimeError, match=r"^mine$"):
            SIGUALoss(SL, base=base)(LOGITS.clone().requires_grad_(), labels)
    poisson = torch.nn.PoissonNLLLoss(reduction="none")
    counts = SIGUALoss(SL, base=lambda x, y: poisson(x.squeeze(1), y))
    counts(torch.zeros(20, 1, requires_grad=True), torch.arange(20))  # no class index, though int


@pytest.mark.parametrize("ignored", [np.int64(-1), np.int32(255), torch.tensor(7).item()])
def test_an_index_to_ignore_may_be_any_integer(ignored):
    """As for nn.CrossEntropyLoss, which takes NumPy's; the loss is that of the others."""
    labels = LABELS.clone()
    labels[2] = int(ignored)
    logits = torch.randn(6, 10, requires_grad=True)
    got = SIGUALoss(sigua.standard(), ignore_index=ignored)(logits, labels)
    want = torch.nn.CrossEntropyLoss(ignore_index=ignored)(logits, labels)
    torch.testing.assert_close(got, want)


def test_a_denominator_of_0_is_one_of_nobody():
    """A Trainer counts no label where all are padding; the loss is then 0."""
    logits, nobody = torch.randn(6, 10, requires_grad=True), torch.full((6,), -100)
    for none in (0, torch.tensor(0)):
        assert SIGUALoss(SL)(logits, nobody, num_items_in_batch=none).item() == 0


@pytest.mark.parametrize("check", [torch.tensor([3, 10]), torch.full((2, 10), 0.2)])
def test_targets_in_a_graph_are_checked_on_the_device_where_asked(check):
    """An assertion, which breaks no graph; what is right passes."""
    criterion = SIGUALoss(sigua.self_teaching(0.5), check_labels=True)
    torch.compiler.reset()
    step = torch.compile(criterion, backend="aot_eager", fullgraph=True)
    logits = torch.randn(2, 10, requires_grad=True)
    right = check.clamp(max=9) if check.ndim == 1 else check / 2
    step(logits, right).backward()
    with pytest.raises(RuntimeError, match="target: "):
        step(logits, check)


def test_a_refused_epoch_leaves_the_old_one():
    criterion = SIGUALoss(SL)
    criterion.set_epoch(3)
    for epoch in (-1, float("nan"), "4", None):
        with pytest.raises(ValueError, match="epoch"):
            criterion.set_epoch(epoch)
    assert criterion.epoch == 3
    with pytest.raises(ValueError, match="counts by itself"):
        SIGUALoss(SL, steps_per_epoch=5).set_epoch(1)


def test_a_batch_too_small_to_select_warns_once():
    """N = 4, rho = .5, delta = .2: 3 are good, floor(2.8) + 1 = 3 within reach, so none is bad."""
    criterion = SIGUALoss(SL)
    logits, labels = LOGITS[:4].clone().requires_grad_(), LABELS[:4]
    with pytest.warns(UserWarning, match="a mini-batch of 4 is too small") as warned:
        criterion(logits, labels)
    assert warned[0].filename == __file__  # the line of the user's loop
    criterion(logits[:3], labels[:3])  # warnings are errors here
    SIGUALoss(SL)(torch.randn(20, 10, requires_grad=True), torch.arange(20) % 10)


@pytest.mark.parametrize(
    "method",
    [
        sigua.sigua_sl(0.8, delta=0.5, warmup=0, variant="official"),
        sigua.self_teaching(0.8, warmup=0, variant="official"),
    ],
    ids=["sl", "self-teaching"],
)
def test_a_batch_of_which_the_official_variant_keeps_nobody_warns(method):
    """N = 4 at a noise rate of .8: floor(.8) = 0 are good."""
    criterion = SIGUALoss(method)
    with pytest.warns(
        UserWarning, match="a mini-batch of 4 is too small .* it keeps, drops or climbs on no"
    ):
        criterion(torch.randn(4, 10, requires_grad=True), LABELS[:4])
    assert not criterion.split.good.any()


def test_an_epoch_that_is_never_set_is_asked_about_once(monkeypatch):
    """Not where it is set, counted, or of no consequence."""
    monkeypatch.setattr("sigua_torch._advice.FORGOTTEN_AFTER", 3)
    logits, labels = torch.randn(20, 10, requires_grad=True), torch.arange(20) % 10
    forgotten = SIGUALoss(SL)
    forgotten(logits, labels)
    forgotten(logits, labels)
    asks = r"3 training calls and still at epoch 0.*set_epoch"
    with pytest.warns(UserWarning, match=asks) as warned:
        forgotten(logits, labels)
    assert warned[0].filename == __file__
    forgotten(logits, labels)
    known = SIGUALoss(SL)
    known.set_epoch(0)
    known.set_epoch(0.01)
    for criterion in (known, SIGUALoss(SL, steps_per_epoch=2), SIGUALoss(sigua.standard())):
        for _ in range(5):
            criterion(logits, labels)  # warnings are errors here


def test_an_epoch_that_stays_0_is_asked_about_whoever_set_it(monkeypatch):
    """As in a run of one long epoch, which would be plain training without a word."""
    monkeypatch.setattr("sigua_torch._advice.FORGOTTEN_AFTER", 3)
    logits, labels = torch.randn(20, 10, requires_grad=True), torch.arange(20) % 10
    criterion = SIGUALoss(SL)
    criterion.set_epoch(0)
    criterion(logits, labels)
    criterion.set_epoch(0)
    criterion(logits, labels)
    with pytest.warns(UserWarning, match=r"epoch 0.*set_epoch\(epoch \+ step / len\(loader\)\)"):
        criterion(logits, labels)


def test_class_sums_are_there_for_a_rule_of_ones_own():
    """With backward correction; without one it is told."""

    class Sums:
        def at(self, epoch):
            return ()

        def split(self, batch):
            return sigua.Split(batch.class_sums() >= 0, batch.class_sums() < 0)

    rows = sigua.TransitionMatrix([[0.9, 0.1], [0.6, 0.4]])
    logits, labels = torch.tensor([[-4.0, 0.0], [4.0, 0.0]]), torch.tensor([0, 0])
    criterion = SIGUALoss(sigua.custom(Sums(), 1.0, "backward", rows))
    criterion(logits.requires_grad_(), labels)
    want = SIGUALoss(sigua.sigua_bc(rows, over="classes"))
    want(logits, labels)
    assert torch.equal(criterion.split.bad, want.split.bad)
    with pytest.raises(ValueError, match="class_sums: must come from backward correction"):
        SIGUALoss(sigua.custom(Sums()))(logits, labels)


@pytest.mark.parametrize(
    ("returned", "words"),
    [(0.5, "numbers, got 0.5"), (None, "numbers, got None"), (("a",), r"numbers, got \('a',\)")],
)
def test_a_rule_whose_numbers_are_none_is_refused_where_it_is_made(returned, words):
    class Rule:
        def at(self, epoch):
            return returned

        def split(self, batch):
            return None

    with pytest.raises(ValueError, match=words):
        sigua.custom(Rule())


def test_a_rule_that_returns_no_pair_is_refused():
    class Rule:
        def at(self, epoch):
            return ()

        def split(self, batch):
            return batch.losses > 0

    with pytest.raises(ValueError, match="split must return good and bad, got Tensor;"):
        SIGUALoss(sigua.custom(Rule()))(LOGITS.clone().requires_grad_(), LABELS)


def test_float64_class_weights_work_in_training_and_evaluation():
    """scikit-learn's are float64; the criterion computes in the logits' precision."""
    weight = torch.linspace(0.5, 2, 10, dtype=torch.float64)
    criterion = SIGUALoss(SL, weight)
    logits, labels = torch.randn(20, 10, requires_grad=True), torch.arange(20) % 10
    plain = torch.nn.functional.cross_entropy(logits, labels, weight.float())
    torch.testing.assert_close(criterion(logits, labels), plain)  # rho(0) = 1
    torch.testing.assert_close(criterion.eval()(logits, labels), plain)


def test_an_input_that_is_no_tensor_is_refused_by_name():
    """NumPy's arrays have a device, too; it must not be read first."""
    for base in (None, torch.nn.functional.mse_loss):
        with pytest.raises(ValueError, match=r"^input: must be a torch tensor, got a ndarray"):
            SIGUALoss(SL, base=base)(LOGITS.numpy(), LABELS)


def test_a_part_of_a_pooled_batch_is_not_called_too_small(monkeypatch):
    """With sync= the selection is over all processes; warnings are errors here."""
    criterion = SIGUALoss(SL, sync=True)
    monkeypatch.setattr(criterion._select.pool, "gather", lambda *columns: list(columns))
    monkeypatch.setattr(criterion._select.pool, "own", lambda pooled, n: pooled[:n])
    monkeypatch.setattr(type(criterion._select.pool), "processes", 1)
    criterion(LOGITS[:4].clone().requires_grad_(), LABELS[:4])


@pytest.mark.parametrize("method", [SL, sigua.sigua_ag()], ids=["gathered", "summed"])
def test_no_process_group_is_said_in_our_words(method):
    criterion = SIGUALoss(method, sync=True)
    with pytest.raises(ValueError, match=r"^sync: must have a process group .*; try torch"):
        criterion(torch.randn(8, 3), torch.zeros(8, dtype=torch.long))


def test_labels_on_an_accelerator_are_checked_when_asked():
    """Not by default, for that waits for the device; the meta device tells the two apart."""
    logits, labels = LOGITS.to("meta").requires_grad_(), LABELS.to("meta")
    SIGUALoss(SL).to("meta")(logits, labels)
    with pytest.raises(RuntimeError, match="meta"):
        SIGUALoss(SL, check_labels=True).to("meta")(logits, labels)


def test_without_torch_the_import_says_what_to_install():
    code = "import sys; sys.modules['torch'] = None; import sigua_torch"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode != 0
    assert "pip install 'sigua[torch]'" in result.stderr


def test_the_adapter_imports_no_other_adapter():
    code = (
        "import sys, sigua_torch; "
        "print(sorted({'keras', 'tensorflow', 'jax', 'sigua_keras'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "[]", result.stderr


def test_without_lightning_the_import_says_what_to_install():
    """Under neither of its names."""
    code = "import sys\nclass Without:\n    def find_spec(self, name, *rest):\n"
    code += "        if name in ('lightning', 'pytorch_lightning'):\n"
    code += "            raise ModuleNotFoundError(name, name=name)\n"
    code += "sys.meta_path.insert(0, Without())\nimport sigua_torch.lightning"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "ModuleNotFoundError: sigua_torch.lightning needs Lightning" in done.stderr
    assert "pip install lightning" in done.stderr


def test_every_correction_of_the_core_has_a_class_here():
    assert tuple(CORRECTIONS) == get_args(Correction)


@pytest.mark.parametrize(
    "make", [sigua.standard, sigua.sigua_ag, lambda: sigua.forward_correction(PAIR)]
)
def test_weights_of_another_number_of_classes_are_refused(make):
    criterion = SIGUALoss(make(), weight=torch.ones(3))
    with pytest.raises(ValueError, match=r"^weight: must have an entry for each .* 10 .*got 3;"):
        criterion(LOGITS.clone().requires_grad_(), LABELS)


def test_an_image_of_one_loss_is_refused():
    """Alone it would always be good: plain training."""
    criterion = SIGUALoss(sigua.sigua_sl(0.3, 0.1, warmup=0), per_image=True)
    with pytest.raises(ValueError, match=r"^per_image: must come with several losses per image"):
        criterion(LOGITS.clone().requires_grad_(), LABELS)


def test_an_interval_is_not_a_rate_but_its_value_is():
    with pytest.raises(ValueError, match=r"^noise_rate: must be a number .* try its \.value$"):
        sigua.self_teaching(sigua.count_noise_rate([0, 1], [0, 0]))
