"""peft: LoRA and its kin over a small GPT-2: trained, merged, saved and loaded, several adapters at once."""
import torch
from peft import (
    AdaLoraConfig,
    IA3Config,
    LoraConfig,
    PeftModel,
    PrefixTuningConfig,
    PromptTuningConfig,
    VeraConfig,
    get_peft_model,
)
from transformers import GPT2Config, GPT2LMHeadModel

from tests.programs import array, fill, gradients, tokens

PACKAGES = ["peft", "transformers"]

WORDS = 64


def _base():
    return fill(GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, n_positions=48, n_embd=24, n_layer=2, n_head=3,
                                           attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0)))


def _trained(model, steps=4):
    """Losses, gradients of the first step, and logits of what is left to train after some steps."""
    words = tokens(3, 8, below=WORDS)
    with torch.no_grad():
        for i, (name, p) in enumerate(model.named_parameters()):
            if p.requires_grad and "ranknum" not in name:             # AdaLoRA's count is no weight
                p.copy_(array(*p.shape, seed=i, scale=0.2))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    losses, first = [], None
    for _ in range(steps):
        loss = model(input_ids=words, labels=words).loss
        loss.backward()
        first = first or {name: held for name, held in gradients(model).items() if held is not None}
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        logits = model(input_ids=words).logits
    return {"trainable": list(model.get_nb_trainable_parameters()), "losses": losses, "gradients": first,
            "logits": logits}


def _lora(**extra):
    settings = dict(r=4, lora_alpha=8, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True, task_type="CAUSAL_LM")
    return LoraConfig(**settings | extra)


def lora():
    """LoRA learns, is merged into the weights and taken out again, is saved and loaded; generation with it."""
    model = get_peft_model(_base(), _lora())
    out = _trained(model)
    model.save_pretrained("adapter")
    words = tokens(2, 5, below=WORDS)
    again = PeftModel.from_pretrained(_base(), "adapter").eval()
    asked = dict(input_ids=words, max_new_tokens=8, do_sample=False, pad_token_id=0)
    out["generated"] = again.generate(**asked).tolist()
    with again.disable_adapter():
        out["without"] = again(input_ids=words).logits
    merged = again.merge_and_unload()
    return out | {"merged": merged(input_ids=words).logits, "generated merged": merged.generate(**asked).tolist()}


def kinds_of_lora():
    """DoRA, rank-stabilised LoRA, initial weights by PiSSA, dropout, biases."""
    out = {}
    for name, extra in (("dora", {"use_dora": True}), ("rslora", {"use_rslora": True}), ("bias", {"bias": "lora_only"}),
                        ("modules", {"modules_to_save": ["lm_head"]})):
        out[name] = _trained(get_peft_model(_base(), _lora(**extra)), steps=2)
    model = get_peft_model(_base(), _lora(init_lora_weights="pissa"))
    return out | {"pissa": model(input_ids=tokens(2, 6, below=WORDS)).logits}


def adapters():
    """Two adapters on one model: switched, mixed with weights, and one deleted."""
    model = get_peft_model(_base(), _lora())
    first = _trained(model, steps=1)["logits"]
    model.add_adapter("second", _lora(r=2))
    model.set_adapter("second")
    second = _trained(model, steps=1)["logits"]
    model.add_weighted_adapter(["default", "second"], [0.7, 0.3], "both", combination_type="cat")
    model.set_adapter("both")
    both = model(input_ids=tokens(3, 8, below=WORDS)).logits
    model.delete_adapter("second")
    return {"first": first, "second": second, "both": both, "left": sorted(model.peft_config)}


def other_methods():
    """IA3, VeRA, AdaLoRA, prompt tuning and prefix tuning."""
    out = {}
    configs = {"ia3": IA3Config(target_modules=["c_attn", "c_fc"], feedforward_modules=["c_fc"], fan_in_fan_out=True,
                                task_type="CAUSAL_LM"),
               "vera": VeraConfig(r=4, target_modules=["c_attn"], fan_in_fan_out=True, task_type="CAUSAL_LM"),
               "adalora": AdaLoraConfig(init_r=4, target_r=2, total_step=10, target_modules=["c_attn"],
                                        fan_in_fan_out=True, task_type="CAUSAL_LM"),
               "prompt": PromptTuningConfig(num_virtual_tokens=4, task_type="CAUSAL_LM"),
               "prefix": PrefixTuningConfig(num_virtual_tokens=4, task_type="CAUSAL_LM")}
    for name, config in configs.items():
        out[name] = _trained(get_peft_model(_base(), config), steps=2)
    return out
