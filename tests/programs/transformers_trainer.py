"""transformers' Trainer: training with evaluation, checkpoints and resuming; a tokenizer and pipelines made here."""
import math

import torch
from transformers import GPT2Config, GPT2ForSequenceClassification, GPT2LMHeadModel, Trainer, TrainingArguments

from tests.programs import fill, tokens, tolerance

PACKAGES = ["transformers", "accelerate", "tokenizers"]

WORDS = 64
LINES = ["the cat sat on the mat", "a dog ran to the cat", "the dog sat on a log", "a cat and a dog ran"] * 4


def _model(kind=GPT2LMHeadModel, **extra):
    return fill(kind(GPT2Config(vocab_size=WORDS, n_positions=32, n_embd=24, n_layer=2, n_head=3, bos_token_id=1,
                                eos_token_id=2, pad_token_id=0, **extra)))


def _data(count, seed):
    words = tokens(count, 8, below=WORDS, seed=seed)
    return [{"input_ids": row, "labels": row} for row in words]


def _arguments(folder, **extra):
    settings = dict(per_device_train_batch_size=4, per_device_eval_batch_size=4, learning_rate=1e-3, logging_steps=1,
                    report_to=[], use_cpu=True, disable_tqdm=True, seed=3, warmup_steps=2, weight_decay=0.01)
    return TrainingArguments(folder, **settings | extra)


def _losses(trainer):
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def trained():
    """Three epochs with dropout, accumulated gradients, clipping, a cosine schedule and evaluation."""
    trainer = Trainer(_model(), _arguments("out", num_train_epochs=3, gradient_accumulation_steps=2, max_grad_norm=0.5,
                                           lr_scheduler_type="cosine", eval_strategy="epoch", save_strategy="no"),
                      train_dataset=_data(24, 0), eval_dataset=_data(8, 1))
    done = trainer.train()
    history = trainer.state.log_history
    return {"losses": _losses(trainer), "steps": done.global_step,
            "evaluated": [entry["eval_loss"] for entry in history if "eval_loss" in entry],
            "rates": [entry["learning_rate"] for entry in history if "learning_rate" in entry],
            "norms": [float(entry["grad_norm"]) for entry in history if "grad_norm" in entry],
            "weights": trainer.model.lm_head.weight}


def resumed():
    """Training that stops after a checkpoint and goes on from it comes to where training in one go does."""
    data = _data(24, 0)
    whole = Trainer(_model(), _arguments("whole", max_steps=8, save_steps=4), train_dataset=data)
    whole.train()
    again = Trainer(_model(), _arguments("again", max_steps=8, save_steps=4), train_dataset=data)
    again.train(resume_from_checkpoint="whole/checkpoint-4")
    equal = all(torch.equal(p, q) for p, q in zip(whole.model.parameters(), again.model.parameters()))
    return {"equal": equal, "whole": _losses(whole), "again": _losses(again), "steps": again.state.global_step}


@tolerance(5e-4, "Adafactor divides gradients by their own size, so what is rounding becomes a step: with weights that "
                 "are 1e-7 off, PyTorch itself comes to results that are 2e-4 off")
def checkpointed():
    """Gradient checkpointing, the factored optimizer, label smoothing, and metrics of a classifier."""
    words = tokens(16, 8, below=WORDS)
    data = [{"input_ids": row, "labels": int(row[0]) % 3} for row in words]
    trainer = Trainer(_model(GPT2ForSequenceClassification, num_labels=3),
                      _arguments("out", max_steps=4, save_strategy="no", optim="adafactor", gradient_checkpointing=True,
                                 label_smoothing_factor=0.1),
                      train_dataset=data, eval_dataset=data[:8],
                      compute_metrics=lambda p: {"right": float((p.predictions.argmax(-1) == p.label_ids).mean())})
    trainer.train()
    metrics = trainer.evaluate()
    predicted = trainer.predict(data[:8])
    return {"losses": _losses(trainer), "right": metrics["eval_right"], "loss": metrics["eval_loss"],
            "predictions": predicted.predictions}


def _tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast
    made = Tokenizer(models.WordLevel(unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    special = ["<pad>", "<s>", "</s>", "<unk>"]
    made.train_from_iterator(sorted(set(LINES)), trainers.WordLevelTrainer(special_tokens=special))
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", bos_token="<s>", eos_token="</s>",
                                   unk_token="<unk>", padding_side="left")


def language_model():
    """Lines of text, tokenised, collated for a language model, learnt, and continued by a pipeline."""
    from transformers import DataCollatorForLanguageModeling, pipeline
    tokenizer = _tokenizer()
    model = _model()
    data = [tokenizer(line) for line in LINES]
    trainer = Trainer(model, _arguments("out", num_train_epochs=4, save_strategy="no"), train_dataset=data,
                      data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False), processing_class=tokenizer)
    trainer.train()
    generate = pipeline("text-generation", model=model, tokenizer=tokenizer, device="cpu")
    told = generate(["the cat", "a dog"], max_new_tokens=5, do_sample=False)
    perplexity = math.exp(trainer.evaluate(data[:4])["eval_loss"])
    return {"losses": _losses(trainer), "told": [line[0]["generated_text"] for line in told], "perplexity": perplexity}


def masked_language_model():
    """Words are masked at random by the collator: from the same stream."""
    from transformers import BertConfig, BertForMaskedLM, DataCollatorForLanguageModeling
    tokenizer = _tokenizer()
    tokenizer.add_special_tokens({"mask_token": "<mask>"})
    model = fill(BertForMaskedLM(BertConfig(vocab_size=WORDS, hidden_size=24, num_hidden_layers=1, intermediate_size=32,
                                            num_attention_heads=3, max_position_embeddings=16)))
    trainer = Trainer(model, _arguments("out", max_steps=6, save_strategy="no"),
                      train_dataset=[tokenizer(line) for line in LINES],
                      data_collator=DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.4))
    trainer.train()
    return {"losses": _losses(trainer)}
