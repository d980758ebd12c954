"""Fine-tuning of language models as people do it: packing, sequences, adapters, TRL."""

import re
from pathlib import Path

import datasets
import pytest
import torch
import trl
from peft import LoraConfig, get_peft_model
from test_trainers_transformers import PLAIN_SGD, QUIET, make_trainer, weights
from torch.nn import functional as F
from transformers import (
    DataCollatorWithFlattening,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Trainer,
)

import sigua
from sigua_torch import SIGUALoss

GUIDE = Path(__file__).parents[1] / "examples" / "guide" / "trainers.md"
WORDS = 16


def network():
    torch.manual_seed(0)
    sizes = {"vocab_size": WORDS, "hidden_size": 16, "intermediate_size": 16, "pad_token_id": 0}
    layers = {"num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 64}
    return LlamaForCausalLM(LlamaConfig(**sizes, **layers))


def texts(n=12):
    """Return token lists of unequal length, the first three being a prompt without labels."""
    draw = torch.Generator().manual_seed(0)
    lengths = (5 + torch.arange(n) % 4).tolist()
    rows = [torch.randint(1, WORDS, (length,), generator=draw).tolist() for length in lengths]
    return [{"input_ids": row, "labels": [-100] * 3 + row[3:]} for row in rows]


def padded(rows):
    """Return the mini-batch of rows, padded at the end."""
    longest = max(len(row["input_ids"]) for row in rows)

    def column(name, fill):
        return torch.tensor([row[name] + [fill] * (longest - len(row[name])) for row in rows])

    words, labels = column("input_ids", 0), column("labels", -100)
    return {"input_ids": words, "labels": labels, "attention_mask": (words > 0).long()}


SGD = PLAIN_SGD | {"max_steps": 1}


def fit(criterion, folder, model, parts=1, collator=padded, **options):
    """Take one step on all texts, in micro-batches; return the trained weights."""
    size = {"per_device_train_batch_size": 12 // parts, "gradient_accumulation_steps": parts}
    given = {"collator": collator, **SGD, **size, **options}
    make_trainer(criterion, folder, model, texts(), **given).train()
    return weights(model)


def assert_same_step(got, want, before, tolerance=1e-4):
    step = want - before
    assert step.abs().max() > 1e-3
    torch.testing.assert_close(got, want, rtol=0, atol=tolerance * step.abs().max())


AG = sigua.sigua_ag(warmup=0, by_class=False)  # asks each token alone


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("method", [sigua.standard(), AG], ids=["standard", "ag"])
def test_packed_texts_take_the_step_of_padded_ones(method, parts, tmp_path):
    """No label crosses from one text to the next; micro-batches have unequal numbers of tokens."""
    want = fit(SIGUALoss(method), tmp_path, network())
    got = fit(SIGUALoss(method), tmp_path, network(), parts, DataCollatorWithFlattening())
    assert_same_step(got, want, weights(network()))


def by_sequence(method):
    """Return the loss of the guide's block, for a method."""
    (block,) = re.findall(
        r"```python\n((?:(?!```).)*class BySequence.*?)```", GUIDE.read_text("utf-8"), re.DOTALL
    )
    names = {"method": method}
    exec(re.sub(r"^method = .*$", "", block, flags=re.MULTILINE), names)
    return names["BySequence"]()


def test_whole_sequences_are_selected_by_their_mean_loss():
    """Half of twelve, rounded up by one, are kept; the gradient is that of their tokens alone."""
    net, batch = network(), padded(texts())
    labels = batch.pop("labels")
    loss = by_sequence(sigua.self_teaching(0.5, warmup=0))
    output = net(**batch)
    value = loss(output, labels)
    each = torch.stack(
        [
            F.cross_entropy(logits[:-1], y[1:])
            for logits, y in zip(output.logits, labels, strict=True)
        ]
    )
    kept = each <= each.sort().values[6]
    tokens = (labels[:, 1:] != -100).sum(1)
    assert len(set(tokens.tolist())) > 1
    want = (each * tokens)[kept].sum() / tokens.sum()
    torch.testing.assert_close(value, want)
    (got,) = torch.autograd.grad(value, output.logits, retain_graph=True)
    (expected,) = torch.autograd.grad(want, output.logits, retain_graph=True)
    torch.testing.assert_close(got, expected)
    with torch.no_grad():
        torch.testing.assert_close(loss(output, labels), net(**batch, labels=labels).loss)


def adapted(model=None):
    torch.manual_seed(1)
    config = LoraConfig(target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", r=2)
    return get_peft_model(network() if model is None else model, config)


# PEFT asks transformers an old question.
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
def test_adapters_train_as_with_the_models_own_loss(tmp_path):
    """LoRA, over micro-batches; the frozen weights stay."""
    want = fit(None, tmp_path, adapted(), 3)
    model = adapted()
    got = fit(SIGUALoss(sigua.standard()), tmp_path, model, 3)
    assert_same_step(got, want, weights(adapted()))
    kept = model.get_base_model().lm_head.weight
    assert torch.equal(kept, network().lm_head.weight)


def test_a_compiled_model_trains_as_an_eager_one(tmp_path):
    """The Trainer compiles the model; its output is still a causal one's."""
    want = fit(SIGUALoss(AG), tmp_path, network())
    compiled = {"torch_compile": True, "torch_compile_backend": "eager"}
    got = fit(SIGUALoss(AG), tmp_path, network(), **compiled)
    assert_same_step(got, want, weights(network()))


class SFTTrainer(trl.SFTTrainer):
    """What the guide shows: TRL's own loss never makes the logits that a criterion needs."""

    compute_loss = Trainer.compute_loss


def sft(trainer_type, folder, criterion=None, **options):
    """Take one step with TRL's trainer; return the trained weights."""
    from tokenizers import Tokenizer, models

    vocabulary = {f"w{i}": i for i in range(WORDS)}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="w1"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w0", eos_token="w1")
    size = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 3}
    fixed = {"save_strategy": "no", "gradient_checkpointing": False, "bf16": False}
    trainer = trainer_type(
        model=network(),
        args=trl.SFTConfig(folder, **QUIET, **SGD, **size, **fixed, **options),
        train_dataset=datasets.Dataset.from_list(texts()),
        processing_class=tokenizer,
    )
    trainer.compute_loss_func = criterion
    trainer.train()
    return weights(trainer.model)


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"
)
@pytest.mark.parametrize("packing", [False, True])
def test_trl_trains_as_with_its_own_loss(packing, tmp_path):
    """Padded and packed, over three micro-batches."""
    options = {"packing": packing, "max_length": 16}
    want = sft(trl.SFTTrainer, tmp_path, **options)
    got = sft(SFTTrainer, tmp_path, SIGUALoss(sigua.standard()), **options)
    assert_same_step(got, want, weights(network()))
