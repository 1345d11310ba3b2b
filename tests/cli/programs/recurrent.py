"""A character model: an embedding, an LSTM, packed sequences, and a little sampling."""
import math

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

TEXT = "the quick brown fox jumps over the lazy dog. "
letters = sorted(set(TEXT))
index = {letter: i for i, letter in enumerate(letters)}


class Model(nn.Module):
    def __init__(self, size, width):
        super().__init__()
        self.embedding = nn.Embedding(size, 8)
        self.lstm = nn.LSTM(8, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, size)

    def forward(self, x, lengths=None, state=None):
        x = self.embedding(x)
        if lengths is not None:
            packed, state = self.lstm(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
            out, _ = pad_packed_sequence(packed, batch_first=True)
        else:
            out, state = self.lstm(x, state)
        return self.head(out), state


torch.manual_seed(0)
model = Model(len(letters), 16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 4))
criterion = nn.CrossEntropyLoss(ignore_index=-1)
words = [torch.tensor([index[letter] for letter in word + " "]) for word in TEXT.split()]
lengths = torch.tensor([len(word) - 1 for word in words])
data = pad_sequence([word[:-1] for word in words], batch_first=True)
target = pad_sequence([word[1:] for word in words], batch_first=True, padding_value=-1)
for epoch in range(8):
    optimizer.zero_grad()
    logits, _ = model(data, lengths)
    loss = criterion(logits.flatten(0, 1), target.flatten())
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    scheduler.step()
    print(f"epoch {epoch} loss: {loss.item():.6f} perplexity: {math.exp(loss.item()):.4f} norm: {norm.item():.5f}")

model.eval()
with torch.no_grad():
    out, state = model(torch.tensor([[index["t"]]]))
    for _ in range(3):
        probabilities = torch.softmax(out[:, -1], -1)
        out, state = model(probabilities.argmax(-1, keepdim=True), state=state)
    print(f"last: {probabilities.max().item():.6f} hidden: {state[0].abs().sum().item():.5f}")
