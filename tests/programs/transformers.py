"""transformers: GPT-2, Llama, BERT, T5, ViT and Mixtral in small: losses, gradients, every way to generate, saving."""
import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTForImageClassification,
    get_linear_schedule_with_warmup,
)

from tests.programs import array, fill, gradients, tokens, tolerance

PACKAGES = ["transformers"]
QUICK = True
LACKS = ["models that need compiled extensions (bitsandbytes and its 4 and 8 bits, flash-attn, causal-conv1d), which "
         "are built against PyTorch's own library", "export of models by torch.export and to ONNX"]

WORDS = 96


def _gpt2(seed=0, **extra):
    return fill(GPT2LMHeadModel(GPT2Config(
        vocab_size=WORDS, n_positions=64, n_embd=32, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2,
        pad_token_id=0, **extra)), seed).eval()


def _llama(seed=0, **extra):
    return fill(LlamaForCausalLM(LlamaConfig(
        vocab_size=WORDS, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0, **extra)),
        seed).eval()


def _t5():
    return fill(T5ForConditionalGeneration(T5Config(
        vocab_size=WORDS, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0,
        dropout_rate=0.0)), scale=0.7).eval()


def _trained(model, steps=3, **batch):
    """Losses, gradients of the first step, and the logits after some steps of AdamW with warming up and clipping."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    schedule = get_linear_schedule_with_warmup(optimizer, 1, 10)
    losses, rates, first = [], [], None
    for _ in range(steps):
        out = model(**batch)
        out.loss.backward()
        first = first or gradients(model)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(out.loss.item())
        rates.append(schedule.get_last_lr()[0])
    model.eval()
    with torch.no_grad():
        logits = model(**batch).logits
    return {"losses": losses, "rates": rates, "norm": norm, "gradients": first, "logits": logits}


# --- models ---


def gpt2():
    """GPT-2 learns, with padding and dropout."""
    words = tokens(3, 12, below=WORDS)
    mask = torch.ones_like(words)
    mask[1, 8:] = 0
    labels = words.masked_fill(mask == 0, -100)
    return _trained(_gpt2(attn_pdrop=0.0, embd_pdrop=0.1, resid_pdrop=0.1), input_ids=words, attention_mask=mask,
                    labels=labels)


def llama():
    """Llama learns; attention is the same by scaled_dot_product_attention and step by step; rotary scaling."""
    words = tokens(2, 10, below=WORDS)
    out = _trained(_llama(), input_ids=words, labels=words)
    for kind in ("eager", "sdpa"):
        out[kind] = _llama(attn_implementation=kind)(words, output_attentions=kind == "eager").logits
    scaled = _llama(rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0})
    return out | {"scaled": scaled(words).logits}


def bert():
    """BERT fills in masked words and classifies pairs of sentences."""
    config = BertConfig(vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                        intermediate_size=48, max_position_embeddings=40, num_labels=3)
    words = tokens(3, 9, below=WORDS)
    labels = words.masked_fill(torch.arange(9) % 3 != 0, -100)
    kinds = (torch.arange(9) > 4).long().expand(3, 9)
    masked = _trained(fill(BertForMaskedLM(config)), input_ids=words.masked_fill(labels != -100, 3), labels=labels)
    classified = _trained(fill(BertForSequenceClassification(config)), input_ids=words, token_type_ids=kinds,
                          labels=torch.tensor([0, 2, 1]))
    return {"masked": masked, "classified": classified}


def t5():
    """T5 learns from one sequence to another, and translates greedily and by beams."""
    words, labels = tokens(2, 8, below=WORDS), tokens(2, 6, below=WORDS, seed=1)
    model = _t5()
    greedy = model.generate(words, max_new_tokens=10)
    beams = model.generate(words, max_new_tokens=10, num_beams=3, num_return_sequences=2)
    return {"greedy": greedy.tolist(), "beams": beams.tolist(), **_trained(model, input_ids=words, labels=labels)}


def vit():
    """ViT classifies pictures, and takes larger ones by interpolating its positions."""
    config = ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, image_size=16,
                       patch_size=4, num_labels=5)
    model = fill(ViTForImageClassification(config))
    larger = model(array(1, 3, 24, 24), interpolate_pos_encoding=True).logits
    return {"larger": larger, **_trained(model, pixel_values=array(2, 3, 16, 16), labels=torch.tensor([1, 4]))}


def mixtral():
    """A mixture of experts: routed, trained with the loss of its balance, and generating."""
    config = MixtralConfig(vocab_size=WORDS, hidden_size=32, intermediate_size=24, num_hidden_layers=2,
                           num_attention_heads=4, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2,
                           output_router_logits=True, max_position_embeddings=64, pad_token_id=0)
    model = fill(MixtralForCausalLM(config)).eval()
    words = tokens(2, 10, below=WORDS)
    balance = model(words, labels=words).aux_loss
    generated = model.generate(words, max_new_tokens=8, do_sample=False, output_router_logits=False)
    return {"balance": balance, "generated": generated.tolist(), **_trained(model, input_ids=words, labels=words)}


@tolerance(2e-2, "a number of bfloat16 has 8 bits, each layer rounds, and which way depends on the order of its sums")
def half_precision():
    """A model in bfloat16, and one under autocast."""
    words = tokens(2, 10, below=WORDS)
    with torch.no_grad():
        plain = _llama().to(torch.bfloat16)(words).logits
        with torch.autocast("cpu", dtype=torch.bfloat16):
            mixed = _llama()(words).logits
    return {"dtypes": [str(plain.dtype), str(mixed.dtype)], "plain": plain, "mixed": mixed}


# --- generating ---


def generated():
    """Greedy, sampled, by beams, with penalties, with and without the cache, several at once."""
    model = _gpt2()
    prompt = tokens(2, 5, below=WORDS)
    asked = dict(max_new_tokens=12, do_sample=False, pad_token_id=0)
    out = {"greedy": model.generate(prompt, **asked), "without cache": model.generate(prompt, use_cache=False, **asked),
           "beams": model.generate(prompt, num_beams=4, num_return_sequences=2, **asked),
           "penalties": model.generate(prompt, repetition_penalty=1.3, no_repeat_ngram_size=2, min_length=9, **asked)}
    for name, extra in (("sampled", {}), ("top k", {"top_k": 5}), ("top p", {"top_p": 0.8, "temperature": 0.7}),
                        ("min p", {"min_p": 0.05}), ("beams sampled", {"num_beams": 3})):
        torch.manual_seed(1)
        out[name] = model.generate(prompt, **asked | {"do_sample": True} | extra)
    padded = torch.cat([torch.zeros(2, 2, dtype=torch.long), prompt], 1)
    mask = (torch.arange(7) > 1).long().expand(2, 7)
    out["padded"] = model.generate(padded, attention_mask=mask, **asked)
    return {name: held.tolist() for name, held in out.items()}


def assisted():
    """A small model proposes, a larger one accepts: as the larger one alone; proposals from the prompt itself."""
    model, helper = _llama(), _llama(seed=1)
    prompt = tokens(1, 6, below=WORDS)
    asked = dict(max_new_tokens=12, do_sample=False)
    out = {"alone": model.generate(prompt, **asked),
           "assisted": model.generate(prompt, assistant_model=helper, **asked),
           "looked up": model.generate(prompt, prompt_lookup_num_tokens=3, **asked)}
    return {name: held.tolist() for name, held in out.items()}


def caches():
    """Caches that grow and caches of a fixed size, filled by hand and by generate; scores step by step."""
    from transformers import DynamicCache
    model = _llama()
    words = tokens(1, 9, below=WORDS)
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        whole = model(words).logits
        parts = [model(words[:, start:stop], past_key_values=cache, use_cache=True).logits
                 for start, stop in ((0, 4), (4, 5), (5, 9))]
    out = model.generate(words, max_new_tokens=6, do_sample=False, output_scores=True, return_dict_in_generate=True)
    fixed = model.generate(words, max_new_tokens=6, do_sample=False, cache_implementation="static",
                           disable_compile=True)
    return {"whole": whole, "in parts": torch.cat(parts, 1), "length": cache.get_seq_length(),
            "tokens": out.sequences.tolist(), "scores": torch.stack(out.scores), "fixed": fixed.tolist(),
            "transitions": model.compute_transition_scores(out.sequences, out.scores, normalize_logits=True)}


# --- saving ---


def saved():
    """Saved as safetensors, whole and in pieces, and loaded again, in another dtype too."""
    import json
    from pathlib import Path
    model = _llama()
    words = tokens(2, 10, below=WORDS)
    model.save_pretrained("whole")
    model.save_pretrained("pieces", max_shard_size="20KB")
    out = {"files": sorted(path.name for path in Path("whole").iterdir()),
           "pieces": len(json.loads(Path("pieces/model.safetensors.index.json").read_text())["weight_map"])}
    for name in ("whole", "pieces"):
        again = LlamaForCausalLM.from_pretrained(name)
        out[f"{name} equal"] = all(torch.equal(p, q) for p, q in zip(model.parameters(), again.parameters()))
        out[name] = again(words).logits
    again = LlamaForCausalLM.from_pretrained("whole", dtype=torch.float16)
    return out | {"half": str(again.dtype), "logits": again.float()(words).logits}


def made_on_meta():
    """A model without weights, then given them; embeddings resized; initial weights from a seed."""
    config = LlamaConfig(vocab_size=WORDS, hidden_size=32, intermediate_size=48, num_hidden_layers=1,
                         num_attention_heads=4)
    with torch.device("meta"):
        empty = LlamaForCausalLM(config)
    model = LlamaForCausalLM(config)
    empty.load_state_dict(model.state_dict(), assign=True)
    model.resize_token_embeddings(WORDS + 8, mean_resizing=False)
    same = torch.equal(empty.lm_head.weight, model.lm_head.weight[:WORDS])
    return {"parameters": empty.num_parameters(), "same": same,
            "shape": list(model.lm_head.weight.shape), "weights": model.model.layers[0].mlp.up_proj.weight}
