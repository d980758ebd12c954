"""SIGUA in fine-tuning of a causal language model: 40 % of the tokens of the answers are wrong.

    python examples/trainers/causal_fit.py

A text is a question of random letters and its answer, in which each letter of the question stands
for another one. The model, a tiny Llama with random weights, reads both, wrong tokens and all, and
is trained on the answer: the labels of question and padding are -100. As with any causal model the
criterion compares the logits of each token with the next label. The report is the share of right
tokens in answers to new questions. Needs torch, transformers, accelerate and sigua.
"""

import tempfile

import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback

import sigua
from sigua_torch import SIGUALoss

EPOCHS, LETTERS, LENGTH = 40, 30, 8
METHOD = sigua.sigua_ag(warmup=10)


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


def texts(n: int, noise: float, seed: int) -> list[dict]:
    """Return questions with their answers; 0 is the padding."""
    draw = torch.Generator().manual_seed(seed)
    code = torch.randperm(LETTERS, generator=torch.Generator().manual_seed(0)) + 1
    question = torch.randint(LETTERS, (n, LENGTH), generator=draw)
    wrong = torch.rand(n, LENGTH, generator=draw) < noise
    answer = code[question]
    answer[wrong] = torch.randint(1, LETTERS + 1, (int(wrong.sum()),), generator=draw)
    shown = torch.arange(LENGTH) < torch.randint(4, LENGTH + 1, (n, 1), generator=draw)
    answer = answer.where(shown, 0)  # some answers are cut short, and padded
    words = torch.cat([question + 1, answer], 1)
    labels = torch.cat([torch.full_like(question, -100), answer.where(shown, -100)], 1)
    columns = {"input_ids": words, "attention_mask": (words > 0).long(), "labels": labels}
    return [{name: column[i] for name, column in columns.items()} for i in range(n)]


def network() -> LlamaForCausalLM:
    sizes = {"vocab_size": LETTERS + 1, "max_position_embeddings": 2 * LENGTH}
    layers = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64}
    return LlamaForCausalLM(LlamaConfig(**sizes, **layers, intermediate_size=128, pad_token_id=0))


def accuracy(predictions: transformers.EvalPrediction) -> dict[str, float]:
    """Return the share of the labelled tokens that are predicted."""
    guesses, labels = predictions.predictions[:, :-1], predictions.label_ids[:, 1:]
    return {"accuracy": (guesses == labels)[labels != -100].mean()}


def make_trainer(criterion: SIGUALoss, folder: str, **options) -> Trainer:
    """Return a quiet trainer on the CPU, its network and its order of mini-batches by the seed."""
    quiet = {"report_to": "none", "disable_tqdm": True, "logging_strategy": "no", "use_cpu": True}
    rates = {"learning_rate": 5e-3, "per_device_train_batch_size": 64}
    fixed = {"save_strategy": "no", "seed": 0, "lr_scheduler_type": "constant"}
    trainer = Trainer(
        model_init=network,
        args=transformers.TrainingArguments(folder, **quiet | rates | fixed | options),
        train_dataset=texts(512, noise=0.4, seed=1),
        eval_dataset=texts(256, noise=0.0, seed=2),
        compute_loss_func=criterion,  # the one argument more
        compute_metrics=accuracy,
        preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1),
        callbacks=[SetEpoch(criterion)],
    )
    trainer.remove_callback(transformers.trainer_callback.PrinterCallback)
    return trainer


def main() -> None:
    print(f"transformers {transformers.__version__}, 40 % of the training tokens wrong")
    for name, method in {"plain": sigua.standard(), "SIGUA": METHOD}.items():
        with tempfile.TemporaryDirectory() as folder:
            trainer = make_trainer(SIGUALoss(method), folder, num_train_epochs=EPOCHS)
            trainer.train()
            scores = trainer.evaluate()
        print(f"{name}: {scores['eval_accuracy']:.1%} of the test tokens right")


if __name__ == "__main__":
    main()
