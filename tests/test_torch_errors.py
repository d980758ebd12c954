"""Bad input gets one sentence, and changes nothing; what goes wrong silently gets a warning."""

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import sigua
from sigua_torch import SIGUALoss
from sigua_torch._check import OF_THE_LOSS

PAIR = sigua.TransitionMatrix.pair(0.45, 10)
SL, UNSETTLED = sigua.sigua_sl(0.5, delta=0.2), sigua.sigua_sl(0.5, delta=lambda t: 0.1)
AG, BC, KNOWN = sigua.sigua_ag(), sigua.sigua_bc(PAIR), sigua.custom(sigua.Known())
LOGITS, LABELS = GIVEN = torch.zeros(6, 10), torch.arange(6)
CE, BCE = nn.CrossEntropyLoss, nn.BCEWithLogitsLoss


class Halved(CE):
    """A cross-entropy with a forward of its own."""

    def forward(self, input, target):
        return super().forward(input, target) / 2


@pytest.mark.parametrize(
    ("method", "arguments", "options", "words"),
    [
        ("sigua_sl", (), {}, ["method: must be a method", "got a str"]),
        (sigua.sigua_sl, (), {}, ["got sigua_sl itself", "try sigua_sl(...)"]),
        (CE(), (SL,), {}, ["method: must be a method", "got a CrossEntropyLoss; try sigua."]),
        (SL, ("focal",), {}, ["loss: must be a criterion", "got a str"]),
        (SL, (SIGUALoss(SL),), {}, ["loss: ", "got a SIGUALoss"]),
        (SL, (nn.MSELoss,), {}, ["loss: ", "got the class MSELoss", "try MSELoss()"]),
        (SL, (sigua.losses.generalized_cross_entropy,), {}, ["NumPy's", "sigua_torch.losses.gen"]),
        (SL, (CE(torch.ones(10, requires_grad=True)),), {}, ["weight: ", "without gradient"]),
        (SL, (nn.NLLLoss(torch.ones(10)),), {}, ["weight: must be those of nn.Cross", "NLLLoss"]),
        (SL, (Halved(torch.ones(10)),), {}, ["weight: must be those of nn.CrossEnt", "of Halved"]),
        (BC, (BCE(),), {}, ["loss: must be of a softmax for a method with T", "two_way(logits)"]),
        (AG, (BCE(),), {}, ["a method with margins", "two_way(logits)"]),
        (SL, (), {"steps_per_epoch": 0}, ["steps_per_epoch", "at least 1", "got 0;"]),
        (SL, (), {"steps_per_epoch": 10**9}, ["steps_per_epoch", "within 1000000 steps"]),
        (UNSETTLED, (), {"steps_per_epoch": 5}, ["steps_per_epoch", "settle", "set_epoch"]),
        (SL, (), {"sync": 1}, ["sync", "True, a process group or a Pool", "got 1;"]),
        (SL, (), {"groups": "pixel"}, ["groups: must be one of 'class', 'image', got 'pixel'"]),
        (SL, (), {"groups": "image", "sync": True}, ["groups: must not be 'image' with sync"]),
        (AG, (), {"groups": "class"}, ["groups: must be left out, for Agreement"]),
        (SL, (), {"weight": torch.ones(2)}, ["weight: ", "nn.CrossEntropyLoss(weight=...)"]),
        (SL, (), {"step_per_epoch": 5}, ["step_per_epoch: ", "got another; try help(SIGUALoss)"]),
    ],
)
def test_constructor_refuses(method, arguments, options, words):
    with pytest.raises((ValueError, TypeError)) as error:
        SIGUALoss(method, *arguments, **options)
    assert all(word in str(error.value) for word in words), error.value


@pytest.mark.parametrize("name", [*OF_THE_LOSS, "groups", "sync", "steps_per_epoch", "method"])
def test_options_are_neither_set_nor_read_where_they_are_not(name):
    criterion, own = SIGUALoss(SL), name in OF_THE_LOSS
    rule = "be the loss's own" if own else "be given when the criterion is made"
    with pytest.raises(AttributeError, match=rf"^{name}: must {rule}, got one here; try "):
        setattr(criterion, name, None)
    if own:
        with pytest.raises(AttributeError, match=rf"^{name}: .* criterion\.loss\.{name}$"):
            getattr(criterion, name)
        assert not hasattr(criterion, name)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("reduction", "avg"),
        ("label_smoothing", 2.0),
        ("ignore_index", None),
        ("weight", -torch.ones(10)),
        ("weight", torch.ones(10, 2)),
    ],
)
@pytest.mark.parametrize("method", [SL, AG, BC], ids=repr)
def test_what_the_constructor_refuses_is_refused_where_it_is_set_later(method, name, value):
    """In the call, in training and in evaluation."""
    criterion = SIGUALoss(method)
    setattr(criterion.loss, name, value)
    for training in (True, False):
        with pytest.raises(ValueError, match=f"^{name}: must be "):
            criterion.train(training)(LOGITS.clone().requires_grad_(), LABELS)
    assert criterion.split is None
    own = SIGUALoss(SL, nn.MSELoss())
    own.loss.reduction = "avg"
    with pytest.raises(ValueError, match=r"^reduction: must be one of"):
        own(LOGITS.clone().requires_grad_(), LOGITS)


MASK, WEIGHT = LABELS > 2, torch.ones(10)
SOFT = torch.full((6, 10), 0.1)
META = LOGITS.to("meta"), LABELS.to("meta")


def items(number):
    return {"num_items_in_batch": torch.tensor(number)}


@pytest.mark.parametrize(
    ("method", "arguments", "options", "words"),
    [
        (SL, (LOGITS, LABELS + 5), {}, ["target", "[0, 10)", "got 10 at [5]", "from 0"]),
        (SL, (LOGITS, LABELS - 1), {}, ["target", "got -1 at [0]", "ignore_index"]),
        (BC, (LOGITS, LABELS - 1), {"where": MASK[:6] | True}, ["target", "got -1 at [0]"]),
        (SL, (LOGITS.long(), LABELS), {}, ["input", "floating-point", "int64"]),
        (SL, (LOGITS[:, :1], LABELS), {}, ["input", "two classes", "BCEWithLogitsLoss"]),
        (SL, (LOGITS, LABELS.int()), {}, ["target", "int64", "int32"]),
        (BC, (LOGITS, LABELS[:, None]), {}, ["target", "(6, 1)", "squeeze(1)"]),
        (SL, (LOGITS, LOGITS.long()), {}, ["target", "BCEWithLogitsLoss() for several labels"]),
        (BC, (torch.zeros(6, 7), LABELS), {}, ["T: ", "10 rows", "logits of 7"]),
        (SL, (LOGITS[:, :3], LABELS % 3), {"loss": CE(WEIGHT)}, ["weight: ", "3 classes, got 10"]),
        (SL, (LOGITS.numpy(), LABELS), {}, ["input: must be a torch tensor, got a ndarray"]),
        (SL, (LOGITS, None), {}, ["target", "torch tensor", "got a NoneType"]),
        (SL, (LOGITS, 10 * SOFT), {}, ["target", "sum to 1", "got 10 at [0]"]),
        (SL, (LOGITS[:, :2], torch.tensor([[2.0, -1]] * 6)), {}, ["target", "from 0 up"]),
        (SL, GIVEN, {"where": LABELS}, ["where: ", "of torch.bool, got (6,) of torch.int64"]),
        (KNOWN, GIVEN, {}, ["trusted", "mask", "got None"]),
        (KNOWN, GIVEN, {"trusted": LABELS}, ["trusted", "(6,) of torch.int64"]),
        (KNOWN, GIVEN, {"trusted": MASK.to("meta")}, ["trusted: ", "cpu, got meta"]),
        (SL, GIVEN, {"trusted": MASK}, ["trusted", "Known"]),
        (SL, GIVEN, {"num_items_in_batch": 0}, ["num_items_in_batch", "positive"]),
        (AG, GIVEN, items(float("nan")), ["num_items_in_batch", "nan"]),
        (SL, GIVEN, items([1, 2]), ["num_items_in_batch: must be one number, got shape (2,)"]),
        (SL, (META[0], LABELS), {}, ["target", "input's device, meta, got cpu"]),
        (SL, META, {}, ["input: must be on the criterion's device, cpu, got meta"]),
        # Another loss.
        (SL, GIVEN, {"loss": F.cross_entropy}, ["loss per example, ", "got a scalar"]),
        (SL, GIVEN, {"loss": lambda z, y: z}, ["loss per example, (6,), got (6, 10)"]),
        (SL, (torch.zeros(8, 1), torch.zeros(8)), {"loss": nn.MSELoss()}, ["(8, 8)", "one shape"]),
        (SL, (LOGITS, LOGITS.long()), {"loss": BCE()}, ["target: must be float", "target.float()"]),
        (SL, (LOGITS, LOGITS - 1), {"loss": BCE()}, ["[0, 1]", "got -1 at [0, 0]", "where="]),
        (AG, (LOGITS, SOFT), {"loss": nn.MSELoss()}, ["loss: must return a loss per example"]),
        # Groups.
        (SL, (LOGITS, SOFT), {"groups": "class"}, ["groups: ", "'class' without class indices"]),
        (SL, GIVEN, {"groups": "image"}, ["'image' without several losses per image"]),
        (SL, GIVEN, {"groups": lambda z, y: y[:5]}, ["integers with a loss's shape, (6,)"]),
        (SL, GIVEN, {"groups": lambda z, y: y.float()}, ["groups: must return integers"]),
    ],
)
@pytest.mark.filterwarnings("ignore:Using a target size:UserWarning")
def test_call_refuses(method, arguments, options, words):
    options = dict(options)
    given = {name: options.pop(name, None) for name in ("loss", "groups")}
    criterion = SIGUALoss(method, **given, steps_per_epoch=4)
    logits = arguments[0]
    if isinstance(logits, torch.Tensor) and logits.is_floating_point():
        logits = logits.clone().requires_grad_()
    with pytest.raises(ValueError) as error:  # noqa: PT011  # the words are the match
        criterion(logits, *arguments[1:], **options)
    assert all(word in str(error.value) for word in words), error.value
    assert "\n" not in str(error.value)
    assert criterion.epoch == 0
    assert criterion.split is None


def test_a_loss_between_classes_is_refused_in_evaluation_as_in_training():
    """Where it is asked per example; nobody could tell whose loss is whose."""
    criterion = SIGUALoss(AG, nn.MSELoss()).eval()
    with pytest.raises(ValueError, match=r"^loss: must return a loss per example, \(6,\), got"):
        criterion(LOGITS, SOFT, num_items_in_batch=6)


def test_sharded_logits_are_refused(tmp_path):
    """A DTensor mixes with no plain tensor of the criterion's."""
    tensor = pytest.importorskip("torch.distributed.tensor")
    mesh = pytest.importorskip("torch.distributed.device_mesh")
    alone = {"init_method": f"file://{tmp_path}/join", "rank": 0, "world_size": 1}
    torch.distributed.init_process_group("gloo", **alone)
    try:
        one = mesh.init_device_mesh("cpu", (1,))
        logits, labels = (tensor.distribute_tensor(each, one) for each in (LOGITS, LABELS))
        for method in (SL, AG, BC):
            with pytest.raises(ValueError, match=r"^input: must be a local tensor, got a DTensor"):
                SIGUALoss(method)(logits.requires_grad_(), labels)
    finally:
        torch.distributed.destroy_process_group()


def test_a_refused_epoch_leaves_the_old_one():
    criterion = SIGUALoss(SL)
    criterion.set_epoch(3)
    for epoch in (-1, float("nan"), "4", None):
        with pytest.raises(ValueError, match="epoch"):
            criterion.set_epoch(epoch)
    assert criterion.epoch == 3
    with pytest.raises(ValueError, match="counts by itself"):
        SIGUALoss(SL, steps_per_epoch=5).set_epoch(1)


@pytest.mark.parametrize("method", [SL, sigua.sigua_sl(0.8, 0.5, variant="official")], ids=repr)
def test_a_batch_too_small_to_select_warns_once(method):
    """N = 4, rho = .5, delta = .2: 3 are good, floor(2.8) + 1 = 3 within reach, so none is bad."""
    criterion = SIGUALoss(method)
    logits, labels = LOGITS[:4].clone().requires_grad_(), LABELS[:4]
    with pytest.warns(UserWarning, match="a mini-batch of 4 is too small") as warned:
        criterion(logits, labels)
    assert warned[0].filename == __file__  # the line of the user's loop
    criterion(logits[:3], labels[:3])  # warnings are errors here
    SIGUALoss(SL)(torch.randn(20, 10, requires_grad=True), torch.arange(20) % 10)
    SIGUALoss(SL, groups="class")(logits, labels)  # it is not selected among as a whole


@pytest.mark.parametrize("said", [None, 0])
def test_an_epoch_that_stays_0_is_asked_about_once(monkeypatch, said):
    """Not where it is set, counted, or of no consequence."""
    monkeypatch.setattr("sigua_torch._check.FORGOTTEN_AFTER", 3)
    logits, labels = torch.randn(20, 10, requires_grad=True), torch.arange(20) % 10
    forgotten = SIGUALoss(SL)
    for _ in range(2):
        if said is not None:
            forgotten.set_epoch(said)
        forgotten(logits, labels)
    with pytest.warns(UserWarning, match=r"3 training calls .* epoch 0.*set_epoch") as warned:
        forgotten(logits, labels)
    assert warned[0].filename == __file__
    forgotten(logits, labels)
    known = SIGUALoss(SL)
    known.set_epoch(0.01)
    for criterion in (known, SIGUALoss(SL, steps_per_epoch=2), SIGUALoss(sigua.standard())):
        for _ in range(5):
            criterion(logits, labels)  # warnings are errors here


@pytest.mark.parametrize("method", [SL, AG], ids=["gathered", "summed"])
def test_no_process_group_is_said_in_our_words(method):
    criterion = SIGUALoss(method, sync=True)
    with pytest.raises(ValueError, match=r"^sync: must have a process group .*; try torch"):
        criterion(torch.randn(8, 3, requires_grad=True), torch.zeros(8, dtype=torch.long))


def test_without_lightning_its_callback_says_what_to_install():
    code = "import sys; sys.modules.update({'lightning': None, 'pytorch_lightning': None})"
    command = [sys.executable, "-c", f"{code}; import sigua_torch.lightning"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "ModuleNotFoundError: sigua_torch.lightning needs" in done.stderr
    assert "pip install lightning" in done.stderr
