"""What the criterion remembers: the epoch, the steps of it, and its place."""

import copy
import io
import pickle

import pytest
import torch
from contract import PAIR, ROWS
from test_conditions import Rule
from torch import nn
from torch.optim.swa_utils import AveragedModel

import sigua
from sigua_torch import Pool, SIGUALoss

METHOD = sigua.sigua_sl(0.5, delta=0.2, gamma=sigua.Knots([(0, 0.0), (6, 0.1)]))
EVERY = {
    "standard": sigua.standard(),
    "sl": METHOD,
    "ag": sigua.sigua_ag(),
    "counted": sigua.sigua_ag(power=1),
    "bc": sigua.sigua_bc(PAIR),
    "classes": sigua.sigua_bc(ROWS, over="classes"),
    "symmetric": sigua.forward_correction(sigua.TransitionMatrix.symmetric(0.3, 10)),
    "known": sigua.custom(sigua.Known(), gamma=0.1),
}
each_method = pytest.mark.parametrize("method", EVERY.values(), ids=EVERY)


def batches(count, n=40):
    generator = torch.Generator().manual_seed(0)
    for _ in range(count):
        yield (
            torch.randn(n, 10, generator=generator, requires_grad=True),
            torch.randint(0, 10, (n,), generator=generator),
        )


def call(criterion, logits, labels):
    known = isinstance(criterion.method.condition, sigua.Known)
    return criterion(logits, labels, **({"trusted": labels > 4} if known else {}))


def saved_and_loaded(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def a_model(criterion):
    torch.manual_seed(0)
    model = nn.Module()
    model.linear, model.criterion = nn.Linear(3, 10), criterion
    return model


@pytest.mark.parametrize("steps_per_epoch", [None, 7])
@pytest.mark.parametrize("kind", ["sl", "ag"])
def test_a_resumed_run_continues_its_ramp(kind, steps_per_epoch):
    """Losses after a save and a load equal those of the run that was never interrupted."""

    def run(criterion, first, data):
        for i, each in enumerate(data, start=first):
            if steps_per_epoch is None and i % 7 == 0:
                criterion.set_epoch(i // 7)
            yield criterion(*each).item()

    whole, resumed = (SIGUALoss(EVERY[kind], steps_per_epoch=steps_per_epoch) for _ in range(2))
    data = list(batches(60))
    list(run(whole, 0, data[:30]))
    resumed.load_state_dict(saved_and_loaded(whole.state_dict()))
    assert resumed.epoch == (4 if steps_per_epoch is None else pytest.approx(30 / 7))
    assert list(run(resumed, 30, data[30:])) == list(run(whole, 30, data[30:]))


def test_steps_are_training_calls_and_fractions_lie_on_the_ramp():
    """rho(2.5) = 1 - .5 * .25 = .875 keeps floor(40 * .875) + 1 = 36 of 40 distinct losses."""
    (logits, labels), *_ = batches(1)
    by_hand, counting = SIGUALoss(METHOD), SIGUALoss(METHOD, steps_per_epoch=2)
    by_hand.set_epoch(2.5)
    by_hand(logits, labels)
    assert int(by_hand.split.good.sum()) == 36
    for _ in range(6):  # the sixth call is step 5, epoch 2.5
        counting.train()(logits, labels)
        with torch.no_grad():
            counting(logits, labels)
        counting.eval()(logits, labels)
    assert torch.equal(counting.split.good, by_hand.split.good)
    assert counting.epoch == 3


@each_method
@pytest.mark.parametrize("clone", [copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))])
def test_copies_are_equal_and_apart(method, clone):
    criterion = SIGUALoss(method)
    criterion.set_epoch(3)
    for each in batches(2):
        call(criterion, *each)
    other = clone(criterion)
    for each in batches(2):
        assert call(other, *each).item() == call(criterion, *each).item()
    other.set_epoch(9)
    assert (criterion.epoch, other.epoch) == (3, 9)
    other.loss.reduction = "sum"
    assert criterion.loss.reduction == "mean"
    assert call(other, *each) != call(criterion, *each)


def test_casts_do_not_round_what_the_method_says():
    """After .half().double(), T^-1 and gamma are float64's own."""
    method = sigua.sigua_bc(PAIR, gamma=0.001)
    ((logits, labels),) = batches(1)
    logits = logits.detach().double().requires_grad_()
    want = sigua.reference.step(method, logits.detach().numpy(), labels.numpy())
    value = SIGUALoss(method).half().double()(logits, labels)
    assert value.item() == pytest.approx(want.objective, rel=1e-13)


# State dicts.


@each_method
@pytest.mark.parametrize("weight", [None, torch.ones(10)], ids=["plain", "weighted"])
def test_a_plain_model_s_state_loads_and_changes_nothing_of_the_criterion_s(method, weight):
    """Which has no epoch, and no class confidence."""
    plain = a_model(nn.CrossEntropyLoss(weight))
    model = a_model(SIGUALoss(method, nn.CrossEntropyLoss(None if weight is None else 2 * weight)))
    model.linear.weight.data.zero_()
    model.criterion.set_epoch(3)
    call(model.criterion, *next(batches(1)))
    state, before = plain.state_dict(), model.criterion.get_extra_state()
    keys = list(state)
    for strict in (True, False):
        model.load_state_dict(state, strict=strict)
        assert torch.equal(model.criterion.get_extra_state(), before)
    assert torch.equal(model.linear.weight, plain.linear.weight)
    assert weight is None or torch.equal(model.criterion.loss.weight, weight)
    assert list(state) == keys  # the caller's own is left as it was


@each_method
def test_its_state_loads_into_a_plain_model_with_strict_false(method):
    model, plain = a_model(SIGUALoss(method)), a_model(nn.CrossEntropyLoss())
    found = plain.load_state_dict(model.state_dict(), strict=False)
    assert found.missing_keys == []
    assert found.unexpected_keys == ["criterion._extra_state"]


@pytest.mark.parametrize(
    ("from_", "to"),
    [("ag", "sl"), ("sl", "ag"), ("ag", "counted"), ("counted", "ag"), ("counted", "sl")],
)
def test_between_methods_with_and_without_class_confidence_the_epoch_is_loaded(from_, to):
    old, new = a_model(SIGUALoss(EVERY[from_])), a_model(SIGUALoss(EVERY[to]))
    old.criterion.set_epoch(3)
    old.criterion(*next(batches(1)))
    new.load_state_dict(old.state_dict())
    assert new.criterion.epoch == 3
    new.criterion(*next(batches(1)))


SEEN = torch.tensor([[2.0, 1.0, 2.0], [2.0, 3.0, 4.0]])
DAMAGED = {
    "none": (None, "got NoneType"),
    "word": ("x", "got str"),
    "two": (torch.tensor([1.0, 2.0]), r"got \(2,\)"),
    "nan": (torch.tensor(float("nan")), "finite.* got nan"),
    "before": (torch.tensor(-1.0), "not negative, got -1"),
    "three": (torch.zeros(3, 2), r"got \(3, 2\)"),
    "c nan": (SEEN * float("nan"), r"finite.* got .*nan"),
}


@pytest.mark.parametrize(("state", "message"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_state_is_refused_and_nothing_is_loaded_of_it(state, message):
    criterion = SIGUALoss(sigua.sigua_ag())
    criterion.load_state_dict({"_extra_state": SEEN})
    before = criterion.get_extra_state()
    with pytest.raises(ValueError, match=f"(?s)^_extra_state: must be .*{message}.*; try"):
        criterion.load_state_dict({"_extra_state": state})
    assert criterion.epoch == 2
    assert torch.equal(criterion.get_extra_state(), before)


@each_method
def test_averages_of_a_model_that_holds_it_leave_it_alone(method):
    """AveragedModel with buffers, and a moving average over the values of a state dict."""
    model = a_model(SIGUALoss(method, nn.CrossEntropyLoss(torch.ones(10))))
    average = AveragedModel(model, use_buffers=True)
    smoothed = copy.deepcopy(model)
    for epoch, each in enumerate(batches(3)):
        model.criterion.set_epoch(epoch)
        call(model.criterion, *each)
        average.update_parameters(model)
        for old, new in zip(
            smoothed.state_dict().values(), model.state_dict().values(), strict=True
        ):
            old.lerp_(new, 0.1)
    assert average.module.criterion.epoch == smoothed.criterion.epoch == 0
    assert not list(model.criterion.buffers())[1:]  # the weight alone
    for each in batches(1):
        call(average.module.criterion, *each), call(smoothed.criterion, *each)


@each_method
@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
def test_a_distributed_checkpoint_loads_into_a_fresh_one(method, tmp_path):
    """The shape of a state does not depend on the first call, because it is padded."""
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    criterion, fresh = SIGUALoss(method), SIGUALoss(method)
    for each in batches(2):
        call(criterion, *each)
    criterion.set_epoch(3)
    dcp.save(criterion.state_dict(), checkpoint_id=tmp_path, no_dist=True)
    state = fresh.state_dict()
    dcp.load(state, checkpoint_id=tmp_path, no_dist=True)
    fresh.load_state_dict(state)
    assert fresh.epoch == 3
    for each in batches(2):
        assert call(fresh, *each).item() == call(criterion, *each).item()


@pytest.mark.parametrize("method", [EVERY["ag"], EVERY["counted"]], ids=["ag", "counted"])
def test_fewer_classes_than_were_loaded_are_refused_and_more_are_new(method):
    """Of 200 classes all have been seen; what is padded for the state dict is no class."""
    criterion, fresh, grown = (SIGUALoss(method) for _ in range(3))
    labels = torch.arange(200)
    criterion(torch.randn(200, 200, requires_grad=True), labels)
    for each in (fresh, grown):
        each.load_state_dict(saved_and_loaded(criterion.state_dict()))
    before = fresh.get_extra_state()
    with pytest.raises(ValueError, match=r"^input: must have the 200 classes or more .*5; try"):
        fresh(torch.randn(20, 5, requires_grad=True), labels[:20] % 5)
    assert torch.equal(fresh.get_extra_state(), before)
    wide = nn.functional.pad(torch.randn(20, 200), (0, 3), value=-torch.inf)
    for each, logits in ((fresh, wide[:, :200]), (grown, wide)):
        each.set_epoch(9)
        each(logits.clone().requires_grad_(), labels[:20])
    assert torch.equal(grown.split.good, fresh.split.good)
    torch.testing.assert_close(grown.get_extra_state(), fresh.get_extra_state())


@pytest.mark.parametrize("steps_per_epoch", [None, 7])
@pytest.mark.parametrize("kind", ["sl", "ag"])
def test_a_criterion_that_was_made_or_loaded_in_inference_mode_trains(kind, steps_per_epoch):
    """A tensor that is made there cannot be written to elsewhere."""
    fresh = SIGUALoss(EVERY[kind], steps_per_epoch=steps_per_epoch)
    fresh(*next(batches(1)))
    with torch.inference_mode():
        criterion = SIGUALoss(EVERY[kind], steps_per_epoch=steps_per_epoch)
        criterion.load_state_dict(fresh.state_dict())
        criterion.double().float()
    if steps_per_epoch is None:
        for each in (fresh, criterion):
            each.set_epoch(3)
    for logits, labels in batches(2):
        assert criterion(logits, labels).item() == fresh(logits, labels).item()
    assert criterion.epoch == fresh.epoch


@each_method
def test_a_method_in_a_checkpoint_loads_with_weights_only(method):
    """As Lightning's save_hyperparameters() puts it there; no list of safe classes to be made."""
    assert saved_and_loaded({"method": method}) == {"method": method}


@each_method
def test_a_criterion_that_was_built_on_meta_counts_from_0(method):
    """to_empty gives memory as it was; the tables are made anew, and the count begins."""
    with torch.device("meta"):
        criterion = SIGUALoss(method, steps_per_epoch=7)
    assert criterion._objective.numbers.step.is_meta
    criterion.to_empty(device="cpu")
    fresh = SIGUALoss(method, steps_per_epoch=7)
    for logits, labels in batches(3):
        assert call(criterion, logits, labels).item() == call(fresh, logits, labels).item()
    assert criterion.epoch == fresh.epoch == 3 / 7


# Processes.


def test_a_copy_shares_the_process_group():
    """A group is a handle of this process; the default one is named by None, and pickles."""
    group = object()
    assert copy.deepcopy(SIGUALoss(METHOD, sync=Pool(group)))._objective.pool.group is group
    everywhere = SIGUALoss(METHOD, sync=Pool(largest=5))
    assert pickle.loads(pickle.dumps(everywhere))._objective.pool.largest == 5


def test_inside_data_parallel_it_is_refused():
    """Whose copies lose what they count."""
    criterion = SIGUALoss(sigua.sigua_ag())
    with pytest.raises(ValueError, match=r"^criterion: must be outside of nn\.DataParallel"):
        criterion._replicate_for_data_parallel()
    criterion.eval()._replicate_for_data_parallel()


def test_a_rule_s_numbers_keep_their_type():
    """An integer at epoch 0 makes a table of integers, which would cut 0.5 off."""
    criterion = SIGUALoss(sigua.custom(Rule(at=lambda epoch: (0.5 if epoch else 0,))))
    with pytest.raises(ValueError, match=r"^condition: must return numbers of the same type"):
        criterion.set_epoch(1)
    assert criterion.epoch == 0
