"""What the criterion remembers: the epoch, and nothing that the method does not say already."""

import copy
import io
import pickle

import pytest
import torch

import sigua
from sigua_torch import Pool, SIGUALoss

METHOD = sigua.sigua_sl(0.5, delta=0.2, gamma=sigua.Knots([(0, 0.0), (6, 0.1)]))
PAIR = sigua.TransitionMatrix.pair(0.45, 10)


def batches(count, n=40):
    generator = torch.Generator().manual_seed(0)
    for _ in range(count):
        yield (
            torch.randn(n, 10, generator=generator, requires_grad=True),
            torch.randint(0, 10, (n,), generator=generator),
        )


def saved_and_loaded(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("steps_per_epoch", [None, 7])
def test_a_resumed_run_continues_its_ramp(steps_per_epoch):
    """Losses after a save and a load equal those of the run that was never interrupted."""
    whole = SIGUALoss(METHOD, steps_per_epoch=steps_per_epoch)
    data = list(batches(60))
    want, state = [], None
    for i, (logits, labels) in enumerate(data):
        if steps_per_epoch is None and i % 7 == 0:
            whole.set_epoch(i // 7)
        if i == 30:
            state = saved_and_loaded(whole.state_dict())
        want.append(whole(logits, labels).item())
    resumed = SIGUALoss(METHOD, steps_per_epoch=steps_per_epoch)
    resumed.load_state_dict(state)
    assert resumed.epoch == (4 if steps_per_epoch is None else pytest.approx(30 / 7))
    got = []
    for i, (logits, labels) in enumerate(data[30:], start=30):
        if steps_per_epoch is None and i % 7 == 0:
            resumed.set_epoch(i // 7)
        got.append(resumed(logits, labels).item())
    assert got == want[30:]


def test_steps_count_training_calls_only():
    """Evaluation, and calls without gradients, do not move the epoch."""
    criterion = SIGUALoss(METHOD, steps_per_epoch=2)
    (logits, labels), *_ = batches(1)
    criterion(logits, labels)
    with torch.no_grad():
        criterion(logits, labels)
    criterion.eval()(logits, labels)
    assert criterion.epoch == 0.5
    criterion.train()(logits, labels)
    assert criterion.epoch == 1.0


def test_fractional_epochs_lie_on_the_ramp():
    """rho(2.5) = 1 - .5 * .25 = .875 keeps floor(40 * .875) + 1 = 36 of 40 distinct losses."""
    (logits, labels), *_ = batches(1)
    by_hand = SIGUALoss(METHOD)
    by_hand.set_epoch(2.5)
    by_hand(logits, labels)
    assert int(by_hand.split.good.sum()) == 36
    counting = SIGUALoss(METHOD, steps_per_epoch=2)
    for _ in range(6):  # the sixth call is step 5, epoch 2.5
        counting(logits, labels)
    assert torch.equal(counting.split.good, by_hand.split.good)


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))])
@pytest.mark.parametrize("method", [METHOD, sigua.sigua_bc(PAIR, over="batch")], ids=["sl", "bc"])
def test_copies_are_equal_and_apart(method, clone):
    criterion = SIGUALoss(method)
    criterion.set_epoch(3)
    (logits, labels), *_ = batches(1)
    criterion(logits, labels)
    other = clone(criterion)
    assert other(logits, labels).item() == criterion(logits, labels).item()
    other.set_epoch(9)
    assert (criterion.epoch, other.epoch) == (3, 9)


def test_casts_do_not_round_what_the_method_says():
    """After .half().double(), T^-1 and gamma are float64's own, as if made in float64."""
    method = sigua.sigua_bc(PAIR, gamma=0.001)
    criterion = SIGUALoss(method).half().double()
    (logits, labels), *_ = batches(1)
    logits = logits.detach().double().requires_grad_()
    want = sigua.reference.step(method, logits.detach().numpy(), labels.numpy())
    assert criterion(logits, labels).item() == pytest.approx(want.objective, rel=1e-13)


def test_a_cast_does_not_round_gamma_on_the_device(monkeypatch):
    """In half precision .001 would be .00100040; the device's own number stays float32's."""
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    method = sigua.sigua_sl(0.5, delta=0.3, gamma=0.001, warmup=0)
    (logits, labels), *_ = batches(1)
    fresh, cast = SIGUALoss(method, reduction="none"), SIGUALoss(method, reduction="none").half()
    assert torch.equal(cast(logits, labels), fresh(logits, labels))


def test_state_dict_of_a_model_holds_the_epoch_alone():
    """T's tables are made from the method; saving them would pin a file to one T."""
    criterion = SIGUALoss(sigua.sigua_bc(PAIR))
    assert [key.rpartition(".")[2] for key in criterion.state_dict()] == ["_extra_state"]


def a_model(criterion):
    torch.manual_seed(0)
    model = torch.nn.Module()
    model.linear, model.criterion = torch.nn.Linear(3, 10), criterion
    return model


EVERY = {
    "standard": sigua.standard(),
    "sl": METHOD,
    "ag": sigua.sigua_ag(),
    "bc": sigua.sigua_bc(PAIR),
    "symmetric": sigua.forward_correction(sigua.TransitionMatrix.symmetric(0.3, 10)),
    "dense": sigua.forward_correction(sigua.random_transition(10, noise_rate=0.4)),
    "known": sigua.custom(sigua.Known(), gamma=0.1),
}


@pytest.mark.parametrize("weight", [None, torch.ones(10)])
@pytest.mark.parametrize("method", EVERY.values(), ids=EVERY)
def test_a_plain_model_s_state_loads_and_begins_at_epoch_0(method, weight):
    plain = a_model(torch.nn.CrossEntropyLoss(weight=weight))
    model = a_model(SIGUALoss(method, weight=weight))
    model.linear.weight.data.zero_()
    model.criterion.set_epoch(3)
    state = plain.state_dict()
    keys = list(state)
    model.load_state_dict(state)
    assert model.criterion.epoch == 0
    assert torch.equal(model.linear.weight, plain.linear.weight)
    assert list(state) == keys  # the caller's own is left as it was


@pytest.mark.parametrize("method", EVERY.values(), ids=EVERY)
def test_its_state_loads_into_a_plain_model_with_strict_false(method):
    model, plain = a_model(SIGUALoss(method)), a_model(torch.nn.CrossEntropyLoss())
    plain.linear.weight.data.zero_()
    found = plain.load_state_dict(model.state_dict(), strict=False)
    assert found.missing_keys == []
    assert all(key.startswith("criterion.") for key in found.unexpected_keys)
    assert torch.equal(model.linear.weight, plain.linear.weight)


def test_what_is_missing_from_the_state_of_a_criterion_is_still_refused():
    """Of another method: only a plain criterion's state is filled in."""
    model = a_model(SIGUALoss(sigua.sigua_ag()))
    with pytest.raises(RuntimeError, match=r"criterion\.confidence\._extra_state"):
        model.load_state_dict(a_model(SIGUALoss(METHOD)).state_dict())


@pytest.mark.parametrize(("from_", "to"), [("ag", "sl"), ("sl", "ag")])
def test_between_methods_with_and_without_class_confidence_strict_false_loads_the_epoch(from_, to):
    """As the docstring says; nothing else of the model is left out."""
    old, new = a_model(SIGUALoss(EVERY[from_])), a_model(SIGUALoss(EVERY[to]))
    old.criterion.set_epoch(3)
    old.criterion(*next(batches(1)))
    new.linear.weight.data.zero_()
    with pytest.raises(RuntimeError, match=r'"criterion\.confidence\._extra_state"'):
        new.load_state_dict(old.state_dict())
    new.load_state_dict(old.state_dict(), strict=False)
    assert new.criterion.epoch == 3
    assert torch.equal(new.linear.weight, old.linear.weight)
    new.criterion(*next(batches(1)))


SEEN = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
DAMAGED = {
    "none": ("numbers", None, "a tensor of one number, the epoch, got a NoneType"),
    "word": ("numbers", "x", "a tensor of one number, the epoch, got a str"),
    "number": ("numbers", 3.0, "a tensor of one number, the epoch, got a float"),
    "two": ("numbers", torch.tensor([1.0, 2.0]), r"a tensor of one number.* got shape \(2,\)"),
    "nan": ("numbers", torch.tensor(float("nan")), r"a number in \[0, inf\), got nan"),
    "before": ("numbers", torch.tensor(-1.0), r"a number in \[0, inf\), got -1"),
    "no c": ("confidence", None, r"a float tensor of shape \(2, classes\).* got a NoneType"),
    "three": ("confidence", torch.zeros(3, 2), r"a float tensor.* got shape \(3, 2\) of torch"),
    "column": ("confidence", torch.zeros(2), r"a float tensor.* got shape \(2,\)"),
    "counts": ("confidence", torch.zeros(2, 2).long(), r"a float tensor.* of torch\.int64"),
    "c nan": ("confidence", SEEN * float("nan"), r"a float tensor.* finite.* got \[\[nan"),
    "c below": ("confidence", -SEEN, r"a float tensor.* not negative, got \[\[-1"),
}


@pytest.mark.parametrize(("part", "value", "message"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_state_is_refused_and_nothing_is_loaded_of_it(part, value, message):
    criterion = SIGUALoss(sigua.sigua_ag())
    good = {"confidence._extra_state": SEEN, "numbers._extra_state": torch.tensor(2.0)}
    criterion.load_state_dict(good)
    key = f"{part}._extra_state"
    changed = {name: 0.5 * tensor for name, tensor in good.items()} | {key: value}
    with pytest.raises(ValueError, match=rf"^{part}\._extra_state: must be {message}.*; try"):
        criterion.load_state_dict(changed)
    assert criterion.epoch == 2
    assert torch.equal(criterion.confidence.state, SEEN)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_a_loaded_confidence_is_where_the_criterion_is_and_can_count(dtype):
    """A checkpoint is often read on the CPU; in half precision 1 is lost beside 2048."""
    criterion = SIGUALoss(sigua.sigua_ag()).to("meta")
    state = {"confidence._extra_state": SEEN.to(dtype), "numbers._extra_state": torch.tensor(2.0)}
    criterion.load_state_dict(state)
    assert criterion.confidence.state.is_meta
    assert criterion.confidence.state.dtype == max(dtype, torch.float32, key=lambda d: d.itemsize)
    assert not state["confidence._extra_state"].is_meta  # the caller's own is left as it was


@pytest.mark.parametrize("steps_per_epoch", [None, 7])
@pytest.mark.parametrize("method", [METHOD, sigua.sigua_ag()], ids=["sl", "ag"])
def test_a_criterion_that_was_made_or_loaded_in_inference_mode_trains(method, steps_per_epoch):
    """A tensor that is made there cannot be written to elsewhere."""
    fresh = SIGUALoss(method, steps_per_epoch=steps_per_epoch)
    fresh(*next(batches(1)))
    with torch.inference_mode():
        criterion = SIGUALoss(method, steps_per_epoch=steps_per_epoch)
        criterion.load_state_dict(fresh.state_dict())
        criterion.double().float()
    if steps_per_epoch is None:
        for each in (fresh, criterion):
            each.set_epoch(3)
    for logits, labels in batches(2):
        assert criterion(logits, labels).item() == fresh(logits, labels).item()
    assert criterion.epoch == fresh.epoch


@pytest.mark.parametrize("method", EVERY.values(), ids=EVERY)
def test_a_method_in_a_checkpoint_loads_with_weights_only(method):
    """As Lightning's save_hyperparameters() puts it there; no list of safe classes to be made."""
    assert saved_and_loaded({"hyper_parameters": {"method": method}}) == {
        "hyper_parameters": {"method": method}
    }


def test_a_criterion_that_was_built_on_meta_counts_from_0():
    """to_empty gives memory as it was; the tables are made anew, and the count begins."""
    with torch.device("meta"):
        criterion = SIGUALoss(METHOD, steps_per_epoch=7)
    assert criterion.numbers.step.is_meta
    criterion.to_empty(device="cpu")
    fresh = SIGUALoss(METHOD, steps_per_epoch=7)
    assert criterion.numbers.step.item() == 0
    for logits, labels in batches(3):
        assert criterion(logits, labels).item() == fresh(logits, labels).item()
    tables = zip(criterion.numbers._tables(), fresh.numbers._tables(), strict=True)
    assert all(torch.equal(*pair) for pair in tables)


def test_a_long_warm_up_is_not_laid_out_step_by_step(monkeypatch):
    """Of 400,000 steps the rule is asked for a few, also where the criterion moves or is cast."""
    asked = []
    at = sigua.SmallLoss.at
    monkeypatch.setattr(sigua.SmallLoss, "at", lambda self, t: asked.append(t) or at(self, t))
    criterion = SIGUALoss(METHOD, steps_per_epoch=40_000)
    criterion.to("meta").to_empty(device="cpu").double()
    assert len(criterion.numbers._tables()[1]) == 400_001
    assert len(asked) < 20
    step = 123_456
    row = [table[step].item() for table in criterion.numbers._tables()]
    assert row == list(METHOD.at(step / 40_000))


def test_a_copy_shares_the_process_group_and_a_pickle_of_one_is_refused():
    """A group is a handle of this process; the default one is named by None."""
    group = object()
    criterion = SIGUALoss(METHOD, sync=Pool(group))
    assert copy.deepcopy(criterion)._select.pool.group is group
    with pytest.raises(ValueError, match=r"^sync: must be True or .*state_dict"):
        pickle.dumps(criterion)
    everywhere = SIGUALoss(METHOD, sync=Pool(largest=5))
    assert pickle.loads(pickle.dumps(everywhere))._select.pool.largest == 5


def test_a_pool_refuses_more_than_its_largest_before_any_process_is_asked():
    """Else what is cut off would have the mask of the next process."""
    criterion = SIGUALoss(METHOD, sync=Pool(largest=39), steps_per_epoch=4)
    ((logits, labels),) = batches(1)
    with pytest.raises(ValueError, match=r"^largest: .* got 39 for a mini-batch of 40; .*=40"):
        criterion(logits, labels)
    assert criterion.epoch == 0


def test_prints_its_method():
    assert repr(METHOD) in repr(SIGUALoss(METHOD))
