"""Hugging Face's Trainer takes the criterion as `compute_loss_func`."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertForTokenClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

import sigua
from sigua_torch import SIGUALoss

EXAMPLE = Path(__file__).parents[1] / "examples" / "trainers" / "transformers_fit.py"
METHOD = sigua.sigua_sl(0.5, delta=0.2, gamma=0.1, warmup=4)
PAIR = sigua.sigua_bc(sigua.TransitionMatrix.pair(0.45, 3))  # asks each example alone


class SetEpoch(TrainerCallback):
    """What the guide shows; it notes the epochs."""

    def __init__(self, criterion):
        self.criterion, self.epochs = criterion, []

    def on_epoch_begin(self, args, state, control, **kwargs):
        self.criterion.set_epoch(int(state.epoch))
        self.epochs.append(self.criterion.epoch)


def network(kind=BertForSequenceClassification):
    torch.manual_seed(0)
    sizes = {"vocab_size": 16, "max_position_embeddings": 8, "num_labels": 3}
    layers = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 16}
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = BertConfig(**sizes, **layers, **dropout, intermediate_size=16, initializer_range=0.2)
    return kind(config)


def sentences(n=64):
    generator = torch.Generator().manual_seed(0)
    words = torch.randint(0, 16, (n, 8), generator=generator)
    return [{"input_ids": row, "labels": int(row[0]) % 3} for row in words]


def make_trainer(criterion, folder, model=None, train=None, callbacks=(), **options):
    quiet = {"report_to": "none", "disable_tqdm": True, "logging_strategy": "no", "use_cpu": True}
    fixed = {"save_strategy": "no", "per_device_train_batch_size": 32, "learning_rate": 0.01}
    train = sentences() if train is None else train
    return Trainer(
        model=network() if model is None else model,
        args=TrainingArguments(folder, **quiet | fixed | options),
        train_dataset=train,
        eval_dataset=train,
        compute_loss_func=criterion,
        callbacks=list(callbacks),
    )


def weights(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_example_forgets_what_plain_training_memorises(accuracies):
    found = accuracies(EXAMPLE)
    assert list(found) == ["plain", "SIGUA"]
    assert float(found["SIGUA"]) > 65
    assert float(found["SIGUA"]) > float(found["plain"]) + 8


@pytest.mark.parametrize("method", [sigua.standard(), PAIR], ids=["standard", "bc"])
def test_accumulation_over_four_takes_the_step_of_one_big_batch(method, tmp_path):
    """The scale is right, and so is the gradient where each example is judged by itself."""
    after = []
    for parts in 1, 4:
        size = {"per_device_train_batch_size": 64 // parts, "gradient_accumulation_steps": parts}
        plain_sgd = {"optim": "sgd", "learning_rate": 1.0, "max_grad_norm": 0.0, "max_steps": 1}
        trainer = make_trainer(SIGUALoss(method), tmp_path, **size, **plain_sgd)
        trainer.train()
        after.append(weights(trainer.model))
    step = after[0] - weights(network())
    assert step.abs().max() > 1e-2
    torch.testing.assert_close(after[1], after[0], rtol=0, atol=1e-5 * step.abs().max())


def test_selection_in_the_trainer_is_that_of_a_loop(tmp_path):
    """A step of SGD on the whole set, warm, equals the step of a loop of one's own."""
    method = sigua.sigua_sl(0.5, delta=0.2, gamma=0.3, warmup=0)
    plain_sgd = {"optim": "sgd", "learning_rate": 1.0, "max_grad_norm": 0.0, "max_steps": 1}
    size = {"per_device_train_batch_size": 64}
    trainer = make_trainer(SIGUALoss(method), tmp_path, **size, **plain_sgd)
    trainer.train()
    net = network()
    words = torch.stack([row["input_ids"] for row in sentences()])
    labels = torch.tensor([row["labels"] for row in sentences()])
    SIGUALoss(method)(net(input_ids=words).logits, labels).backward()
    torch.optim.SGD(net.parameters(), lr=1.0).step()
    torch.testing.assert_close(weights(trainer.model), weights(net), rtol=1e-4, atol=1e-6)


def test_evaluation_has_the_plain_loss(tmp_path):
    """Nobody calls `.eval()` on the criterion; gradients are off."""
    criterion = SIGUALoss(METHOD)
    options = {"num_train_epochs": 5, "per_device_eval_batch_size": 64}
    trainer = make_trainer(criterion, tmp_path, callbacks=[SetEpoch(criterion)], **options)
    trainer.train()
    assert criterion.training
    got = trainer.evaluate()["eval_loss"]
    words = torch.stack([row["input_ids"] for row in sentences()])
    labels = torch.tensor([row["labels"] for row in sentences()])
    with torch.no_grad():
        want = F.cross_entropy(trainer.model(input_ids=words).logits, labels).item()
    assert got == pytest.approx(want, rel=1e-5)


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
    assert epochs == [0, 1, 2, 3]
    checkpoint = str(tmp_path / f"checkpoint-{steps}")
    epochs, resumed = run(tmp_path / "again", resume_from_checkpoint=checkpoint)
    assert epochs == [2, 3]
    torch.testing.assert_close(resumed, whole, rtol=0, atol=1e-6)


def test_a_token_classifier_trains_with_ignored_words(tmp_path):
    """Four words of eight carry no label and take no part; the others are learnt."""
    train = [
        {"input_ids": row["input_ids"], "labels": [-100] * 4 + (row["input_ids"][4:] % 3).tolist()}
        for row in sentences()
    ]
    criterion = SIGUALoss(sigua.sigua_sl(0.1, delta=0.05, gamma=0.01, warmup=4))
    model = network(BertForTokenClassification)
    options = {"num_train_epochs": 30, "callbacks": [SetEpoch(criterion)]}
    trainer = make_trainer(criterion, tmp_path, model=model, train=train, **options)
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert criterion.split.good.shape == (32, 8)
    assert not criterion.split.good[:, :4].any()
    assert trainer.evaluate()["eval_loss"] < 0.5 < before


def test_a_model_that_holds_its_criterion_can_be_saved(tmp_path):
    """Its files are safetensors, which hold tensors alone."""
    model = network()
    model.criterion = SIGUALoss(METHOD)
    model.criterion.set_epoch(3)
    model.save_pretrained(tmp_path)
    model.criterion.set_epoch(0)
    model.load_state_dict(load_file(tmp_path / "model.safetensors"))
    assert model.criterion.epoch == 3
