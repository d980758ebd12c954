"""The criterion takes what a Hugging Face model returns: logits among other things."""

from collections import OrderedDict
from types import SimpleNamespace

import pytest
import torch

import sigua
from sigua_torch import SIGUALoss

METHOD = sigua.sigua_sl(0.5, delta=0.2, gamma=0.3, warmup=0)


def data(shape, num_classes=10):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(*shape, num_classes, generator=generator, requires_grad=True)
    return logits, torch.randint(0, num_classes, shape, generator=generator)


@pytest.mark.parametrize("shape", [(40,), (2, 3, 4)], ids=["examples", "images"])
@pytest.mark.parametrize("wrap", [dict, OrderedDict, SimpleNamespace])
@pytest.mark.parametrize("items", [None, 80])
def test_an_output_that_has_logits_counts_as_its_logits(wrap, items, shape):
    """Loss, gradient and masks are those of the bare logits, with and without a denominator.

    Images, (N, height, width), have the classes first, as segmentation models return them.
    """
    logits, labels = data(shape)
    logits = logits.movedim(-1, 1)
    bare, wrapped = SIGUALoss(METHOD), SIGUALoss(METHOD)
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
    logits, labels = data((12, 7), num_classes)
    labels[:, 5:] = -100
    criterion, flat = SIGUALoss(METHOD), SIGUALoss(METHOD)
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
        SIGUALoss(METHOD)(output, torch.tensor([0, 1, 0, 1]))


def test_an_output_that_is_called_causal_is_compared_with_the_next_token():
    """By hand: what is left of the logits is their first three places, of the labels the last."""

    class SomeCausalLMOutputWithPast(dict):
        pass

    logits, labels = data((5, 4), 4)
    causal, bare = SIGUALoss(METHOD), SIGUALoss(METHOD)
    got = causal(SomeCausalLMOutputWithPast(logits=logits), labels)
    want = bare(logits[:, :3].reshape(15, 4), labels[:, 1:].reshape(15))
    torch.testing.assert_close(got, want)
    assert causal.split.good.shape == (5, 3)
    assert torch.equal(causal.split.good.reshape(15), bare.split.good)
    sentences = logits[:, 0], labels[:, 0]  # of a classifier, not of tokens: left as they are
    got = causal(SomeCausalLMOutputWithPast(logits=sentences[0]), sentences[1])
    torch.testing.assert_close(got, SIGUALoss(METHOD)(*sentences))
