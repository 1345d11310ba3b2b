"""trl: a small GPT-2 tuned on texts, on preferences and by rewards of its own texts; selective checkpoints in it."""
import functools

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer

from tests.programs import fill

PACKAGES = ["trl", "transformers", "datasets"]

WORDS = "<pad> <eos> <unk> the a cat dog sat ran on under mat tree and big small red".split()
SETTINGS = {"per_device_train_batch_size": 4, "logging_steps": 1, "report_to": [], "use_cpu": True, "bf16": False,
            "seed": 0, "save_strategy": "no", "disable_tqdm": True, "gradient_checkpointing": False}


def _model():
    return fill(GPT2LMHeadModel(GPT2Config(vocab_size=len(WORDS), n_positions=64, n_embd=32, n_layer=2, n_head=2,
                                           resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=1,
                                           eos_token_id=1, pad_token_id=0)), scale=0.5)


def _tokenizer():
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>",
                                   padding_side="left")


def _results(trainer, *more):
    trainer.train()
    log = [entry for entry in trainer.state.log_history if "loss" in entry]
    return {name: [float(entry[name]) for entry in log] for name in ("loss", "grad_norm", *more)} | {
        "weights": trainer.model.transformer.wte.weight}


def _texts():
    return Dataset.from_dict({"text": ["the cat sat on the mat", "a dog ran under the tree", "the big red cat ran",
                                       "a small dog sat"] * 4})


def _tuned(model, **extra):
    return _results(SFTTrainer(model, args=SFTConfig("out", max_steps=5, learning_rate=1e-3, max_length=32,
                                                     **SETTINGS | extra),
                               train_dataset=_texts(), processing_class=_tokenizer()))


def supervised():
    """Five steps on texts."""
    return _tuned(_model())


def selective():
    """The same with checkpoints that keep the products of matrices, and with ones that keep nothing."""
    def policy(context, op, *args, **kwargs):
        kept = op in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE
    contexts = functools.partial(create_selective_checkpoint_contexts, policy)
    return {name: _tuned(_model(), gradient_checkpointing=True, gradient_checkpointing_kwargs=kwargs)
            for name, kwargs in (("products", {"use_reentrant": False, "context_fn": contexts}),
                                 ("nothing", {"use_reentrant": False}))}


def preferred():
    """Four steps of direct preference optimization."""
    pairs = Dataset.from_dict({"prompt": ["the cat", "a dog"] * 8,
                               "chosen": [" sat on the mat", " ran under the tree"] * 8,
                               "rejected": [" red red red", " mat mat"] * 8})
    return _results(DPOTrainer(_model(), ref_model=_model(), processing_class=_tokenizer(), train_dataset=pairs,
                               args=DPOConfig("out", max_steps=4, learning_rate=1e-3, max_length=32, **SETTINGS)),
                    "rewards/margins")


def rewarded():
    """Three steps of group relative policy optimization: texts that it draws, and a reward for short ones."""
    prompts = Dataset.from_dict({"prompt": ["the cat", "a dog", "the big", "a small"] * 4})
    return _results(GRPOTrainer(_model(), processing_class=_tokenizer(), train_dataset=prompts,
                                reward_funcs=lambda completions, **_: [-float(len(text)) for text in completions],
                                args=GRPOConfig("out", max_steps=3, learning_rate=1e-3, num_generations=4,
                                                max_completion_length=8, **SETTINGS)), "reward")
