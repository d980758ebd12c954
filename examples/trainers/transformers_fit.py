"""SIGUA under Hugging Face's Trainer: digits as sentences, of which half the labels are wrong.

    python examples/trainers/transformers_fit.py

A digit's sentence names its sixteen brightest pixels, in order, and a tiny BERT with random weights
reads it. Of the Trainer's arguments one is new, `compute_loss_func`, and a callback says which
epoch it is. Needs torch, transformers, accelerate, scikit-learn and sigua.
"""

import tempfile

import numpy as np
import transformers
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback

import sigua
from sigua_torch import SIGUALoss

EPOCHS = 30
METHOD = sigua.sigua_sl(noise_rate=0.5, delta=0.15, gamma=0.01)


class SetEpoch(TrainerCallback):
    """Tells the criterion the Trainer's epoch, with its fraction, and when a step ends.

    A resumed Trainer's, too. Micro-batches that are accumulated are one step.
    """

    def __init__(self, criterion: SIGUALoss) -> None:
        self.criterion = criterion

    def on_step_begin(self, args, state, control, **kwargs) -> None:
        self.criterion.set_epoch(state.epoch)

    def on_step_end(self, args, state, control, **kwargs) -> None:
        self.criterion.end_step()


def load() -> tuple[list[dict], list[dict]]:
    """Return sentences to train on, half of their labels wrong, and clean ones to report."""
    images, y = load_digits(return_X_y=True)
    words = np.sort(np.argsort(-images, axis=1, kind="stable")[:, :16], axis=1)
    x, x_test, y, y_test = train_test_split(words, y, test_size=0.25, random_state=0, stratify=y)
    y = sigua.corrupt_labels(y, sigua.TransitionMatrix.symmetric(0.5, 10), seed=0)
    pairs = zip(x, y, strict=True), zip(x_test, y_test, strict=True)
    train, test = ([{"input_ids": words, "labels": y} for words, y in pair] for pair in pairs)
    return train, test


def network() -> BertForSequenceClassification:
    sizes = {"vocab_size": 64, "max_position_embeddings": 16, "num_labels": 10}
    layers = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 32}
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = BertConfig(**sizes, **layers, **dropout, intermediate_size=64, initializer_range=0.15)
    return BertForSequenceClassification(config)


def make_trainer(criterion: SIGUALoss, folder: str, **options) -> Trainer:
    """Return a quiet trainer on the CPU, its network and its order of mini-batches by the seed."""
    quiet = {"report_to": "none", "disable_tqdm": True, "logging_strategy": "no", "use_cpu": True}
    rates = {"learning_rate": 2e-3, "per_device_train_batch_size": 128}
    fixed = {"save_strategy": "no", "seed": 0, "lr_scheduler_type": "constant"}
    arguments = transformers.TrainingArguments(folder, **quiet | rates | fixed | options)
    train, test = load()
    trainer = Trainer(
        model_init=network,
        args=arguments,
        train_dataset=train,
        eval_dataset=test,
        compute_loss_func=criterion,  # the one argument more
        compute_metrics=lambda p: {"accuracy": np.mean(p.predictions.argmax(1) == p.label_ids)},
        callbacks=[SetEpoch(criterion)],
    )
    trainer.remove_callback(transformers.trainer_callback.PrinterCallback)
    return trainer


def main() -> None:
    print(f"transformers {transformers.__version__}, half of the training labels wrong")
    for name, method in {"plain": sigua.standard(), "SIGUA": METHOD}.items():
        with tempfile.TemporaryDirectory() as folder:
            trainer = make_trainer(SIGUALoss(method), folder, num_train_epochs=EPOCHS)
            trainer.train()
            scores = trainer.evaluate()
        print(f"{name}: {scores['eval_accuracy']:.1%} of the test digits right")


if __name__ == "__main__":
    main()
