"""Hugging Face's Trainer takes the criterion as `compute_loss_func`."""

import pytest
import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertLMHeadModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

import sigua
from sigua_torch import SIGUALoss

METHOD = sigua.sigua_sl(0.5, delta=0.2, gamma=0.1, warmup=4)
PAIR = sigua.sigua_bc(sigua.TransitionMatrix.pair(0.45, 3))  # asks each example alone
AG = sigua.sigua_ag(warmup=0)
PLAIN_SGD = {"optim": "sgd", "learning_rate": 0.5, "max_grad_norm": 0.0}
QUIET = {"report_to": "none", "disable_tqdm": True, "logging_strategy": "no", "use_cpu": True}


class SetEpoch(TrainerCallback):
    """What the guide says; it notes the epochs."""

    def __init__(self, criterion):
        self.criterion, self.epochs = criterion, []

    def on_step_begin(self, args, state, control, **kwargs):
        self.criterion.set_epoch(state.epoch)
        self.epochs.append(self.criterion.epoch)

    def on_step_end(self, args, state, control, **kwargs):
        self.criterion.end_step()


SMALL = {"vocab_size": 16, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
BERT = SMALL | {"intermediate_size": 16, "max_position_embeddings": 8}
STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def network():
    torch.manual_seed(0)
    config = BertConfig(**BERT, **STILL, num_labels=3, initializer_range=0.2)
    return BertForSequenceClassification(config)


def sentences(n=64):
    generator = torch.Generator().manual_seed(0)
    words = torch.randint(0, 16, (n, 8), generator=generator)
    return [{"input_ids": row, "labels": int(row[0]) % 3} for row in words]


def make_trainer(criterion, folder, model=None, train=None, callbacks=(), collator=None, **options):
    fixed = {"save_strategy": "no", "per_device_train_batch_size": 32, "learning_rate": 0.01}
    train = sentences() if train is None else train
    return Trainer(
        model=network() if model is None else model,
        args=TrainingArguments(folder, **QUIET | fixed | options),
        train_dataset=train,
        eval_dataset=train,
        data_collator=collator,
        compute_loss_func=criterion,
        callbacks=list(callbacks),
    )


def weights(model):
    """Return what is trained of a model."""
    return torch.cat([each.detach().flatten() for each in model.parameters() if each.requires_grad])


@pytest.mark.parametrize("method", [sigua.standard(), PAIR, AG], ids=["standard", "bc", "ag"])
def test_accumulation_over_four_takes_the_steps_of_one_big_batch(method, tmp_path):
    """The scale is right, and so is the gradient where each example is judged by itself.

    The class confidence, by which agreement judges, moves once a step.
    """
    after, before = [], weights(network())
    for parts in 1, 4:
        size = {"per_device_train_batch_size": 64 // parts, "gradient_accumulation_steps": parts}
        criterion = SIGUALoss(method)
        given = {"callbacks": [SetEpoch(criterion)], **size, **PLAIN_SGD, "max_steps": 3}
        trainer = make_trainer(criterion, tmp_path, **given)
        trainer.train()
        after.append(weights(trainer.model))
    step = (after[0] - before).abs().max()
    assert step > 1e-2
    torch.testing.assert_close(after[1], after[0], rtol=0, atol=1e-4 * step)


@pytest.mark.parametrize("steps", [4, 5])
def test_a_resumed_run_continues_its_ramp(steps, tmp_path):
    """After two epochs, and in the middle of one, of two steps each; a new criterion is told."""

    def run(folder, **kwargs):
        criterion = SIGUALoss(METHOD)
        told = SetEpoch(criterion)
        saves = {"save_strategy": "steps", "save_steps": steps, "num_train_epochs": 4}
        trainer = make_trainer(criterion, folder, callbacks=[told], **saves)
        trainer.train(**kwargs)
        return told.epochs, weights(trainer.model)

    epochs, whole = run(tmp_path)
    assert epochs == [0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5]
    checkpoint = str(tmp_path / f"checkpoint-{steps}")
    epochs, resumed = run(tmp_path / "again", resume_from_checkpoint=checkpoint)
    assert epochs == [0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5][steps:]
    torch.testing.assert_close(resumed, whole, rtol=0, atol=1e-6)


def language_model(name):
    """Return a tiny model with random weights, and its kind's own way to number labels."""
    torch.manual_seed(0)
    if name == "gpt2":
        drop = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        sizes = {"vocab_size": 16, "n_positions": 8, "n_embd": 16, "n_layer": 2, "n_head": 2}
        return GPT2LMHeadModel(GPT2Config(**sizes, **drop, bos_token_id=0, eos_token_id=0))
    if name == "llama":
        return LlamaForCausalLM(LlamaConfig(**BERT))
    if name == "bert decoder":
        return BertLMHeadModel(BertConfig(**BERT, **STILL, is_decoder=True))
    if name == "masked":
        return BertForMaskedLM(BertConfig(**BERT, **STILL))
    sizes = {"vocab_size": 16, "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 2}
    start = {"num_heads": 2, "decoder_start_token_id": 0, "dropout_rate": 0.0}
    return T5ForConditionalGeneration(T5Config(**sizes, **start))


def padded_text(n=32):
    """Return random words, of which some at the end and one at the beginning are ignored."""
    words = torch.randint(1, 16, (n, 8), generator=torch.Generator().manual_seed(0))
    labels = words.clone()
    labels[::2, 6:] = -100
    labels[0, 0] = -100
    return words, labels


LANGUAGE_MODELS = ["gpt2", "llama", "bert decoder", "masked", "t5"]
# BERT says so of a decoder in every call.
bert_warns = pytest.mark.filterwarnings("ignore:.*is_decoder.*")


@bert_warns
@pytest.mark.parametrize("items", [None, 500])
@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_a_language_models_loss_is_its_own(name, items):
    """Causal or not, in training and evaluation, with padding, also over several batches."""
    net, (words, labels) = language_model(name), padded_text()
    extra = {} if items is None else {"num_items_in_batch": torch.tensor(items)}
    output = net(input_ids=words, labels=labels)
    own = output.loss
    if items is not None:  # the mean over what has a label, or the sum over `items`
        shifted = labels if name in ("masked", "t5") else labels[:, 1:]
        own = own * (shifted != -100).sum() / items
    for criterion in (SIGUALoss(sigua.standard()), SIGUALoss(METHOD).eval()):
        got = criterion(output, labels, **extra)
        torch.testing.assert_close(got, own, rtol=1e-6, atol=0)
    with torch.no_grad():
        got = SIGUALoss(METHOD)(output, labels, **extra)
        torch.testing.assert_close(got, own, rtol=1e-6, atol=0)
    gradients = [
        torch.autograd.grad(loss, output.logits, retain_graph=True)[0]
        for loss in (SIGUALoss(sigua.standard())(output, labels, **extra), own)
    ]
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-9)


@bert_warns
@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_a_language_model_trains_as_with_its_own_loss(name, tmp_path):
    """In the Trainer, over micro-batches of unequal numbers of labels.

    They are accumulated where the model's own loss is then right, that is, of causal models.
    """
    parts = 1 if name in ("masked", "t5") else 2
    words, labels = padded_text()
    train = [{"input_ids": x, "labels": y} for x, y in zip(words, labels, strict=True)]
    if name == "t5":  # which the Trainer gives no labels to make them of
        begun = language_model(name).prepare_decoder_input_ids_from_labels(labels)
        train = [row | {"decoder_input_ids": x} for row, x in zip(train, begun, strict=True)]
    after = []
    for criterion in (None, SIGUALoss(sigua.standard())):
        size = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": parts}
        size["max_steps"] = 2
        model = language_model(name)
        before = weights(model)
        trainer = make_trainer(criterion, tmp_path, model, train, **size, **PLAIN_SGD)
        trainer.train()
        after.append((weights(model), trainer.evaluate()["eval_loss"]))
    (own, own_loss), (got, got_loss) = after
    assert (own - before).abs().max() > 1e-3
    torch.testing.assert_close(got, own, rtol=0, atol=1e-5 * (own - before).abs().max())
    assert got_loss == pytest.approx(own_loss, rel=1e-5)
