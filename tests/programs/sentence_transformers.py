"""sentence-transformers: a small encoder: embeddings, similarity, search, training, cross encoders, saving."""
import torch
from sentence_transformers import CrossEncoder, InputExample, SentenceTransformer, losses, models, util
from tokenizers import Tokenizer, pre_tokenizers, trainers
from tokenizers.models import WordLevel
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForSequenceClassification, BertModel, PreTrainedTokenizerFast

from tests.programs import fill, gradients

PACKAGES = ["sentence-transformers", "transformers"]

LINES = ["the cat sat on the mat", "a dog ran to the cat", "the dog sat on a log", "a cat and a dog ran",
         "the sun is hot today", "rain fell on the roof"]


def _tokenizer():
    made = Tokenizer(WordLevel(unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    made.train_from_iterator(LINES, trainers.WordLevelTrainer(special_tokens=special))
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
                                   sep_token="[SEP]", mask_token="[MASK]", model_max_length=32)


def _config(**extra):
    return BertConfig(vocab_size=40, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=32,
                      max_position_embeddings=32, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **extra)


def _encoder(pooling="mean"):
    fill(BertModel(_config())).save_pretrained("bert")
    _tokenizer().save_pretrained("bert")
    words = models.Transformer("bert", max_seq_length=16)
    pooled = models.Pooling(words.get_embedding_dimension(), pooling_mode=pooling)
    return SentenceTransformer(modules=[words, pooled, models.Normalize()], device="cpu")


def embeddings():
    """Sentences as arrays and as tensors, by several poolings, and by precision."""
    out = {}
    for pooling in ("mean", "cls", "max"):
        out[pooling] = _encoder(pooling).encode(LINES, batch_size=4, show_progress_bar=False)
    model = _encoder()
    out["tensor"] = model.encode(LINES[0], convert_to_tensor=True)
    out["int8"] = model.encode(LINES, precision="binary", show_progress_bar=False)
    return out


def search():
    """Similarities, the nearest sentences, pairs that mean the same, clusters."""
    model = _encoder()
    embedded = model.encode(LINES, convert_to_tensor=True, show_progress_bar=False)
    hits = util.semantic_search(embedded[:2], embedded, top_k=3)
    pairs = util.paraphrase_mining(model, LINES, show_progress_bar=False, top_k=3)
    return {"similarity": model.similarity(embedded, embedded), "dot": util.dot_score(embedded, embedded),
            "euclidean": util.euclidean_sim(embedded, embedded),
            "hits": [[hit["corpus_id"] for hit in row] for row in hits],
            "scores": [[hit["score"] for hit in row] for row in hits], "pairs": [[i, j] for _, i, j in pairs[:5]]}


def trained():
    """Each loss: its value, and its gradients in the encoder."""
    model = _encoder()
    batch = [model.tokenize(LINES[:3]), model.tokenize(LINES[3:])]
    out = {}
    likeness = torch.tensor([0.9, 0.1, 0.4])
    for loss, labels in ((losses.CosineSimilarityLoss(model), likeness), (losses.CoSENTLoss(model), likeness),
                         (losses.MultipleNegativesRankingLoss(model), None),
                         (losses.ContrastiveLoss(model), torch.tensor([1, 0, 1]))):
        model.zero_grad()
        value = loss([dict(part) for part in batch], labels)
        value.backward()
        found = {name: held for name, held in gradients(model).items() if held is not None}
        out[type(loss).__name__] = {"loss": value, "gradients": found}
    return out


def fitted():
    """A few steps by hand over a loader of examples."""
    model = _encoder()
    examples = [InputExample(texts=[a, b], label=0.5) for a, b in zip(LINES, LINES[1:])]
    loader = DataLoader(examples, batch_size=2, shuffle=True, collate_fn=model.smart_batching_collate)
    loss_of, optimizer = losses.CosineSimilarityLoss(model), torch.optim.AdamW(model.parameters(), lr=1e-3)
    values = []
    for features, labels in loader:
        loss = loss_of(features, labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        values.append(loss.item())
    return {"losses": values, "embedding": model.encode(LINES[0])}


def cross_encoder():
    """Pairs of sentences scored together."""
    fill(BertForSequenceClassification(_config(num_labels=1))).save_pretrained("cross")
    _tokenizer().save_pretrained("cross")
    model = CrossEncoder("cross", device="cpu", max_length=24)
    ranked = model.rank(LINES[0], LINES[1:])
    return {"scores": model.predict([(LINES[0], line) for line in LINES[1:]]),
            "ranked": [entry["corpus_id"] for entry in ranked]}


def saved():
    """Saved and loaded again: the same sentences come to the same numbers."""
    model = _encoder()
    model.save("model")
    again = SentenceTransformer("model", device="cpu")
    before, after = (one.encode(LINES, show_progress_bar=False) for one in (model, again))
    return {"equal": bool((before == after).all()), "embeddings": after}
