"""keras over its torch backend: models fitted, evaluated, saved; each kind of layer; optimizers; a step of its own."""
import os

import numpy as np

os.environ["KERAS_BACKEND"] = "torch"
os.environ["KERAS_HOME"] = "."

import keras
import torch
from keras import layers, ops

from tests.programs import array, tokens

PACKAGES = ["keras"]


def _filled(model, seed=0):
    rng = np.random.default_rng(seed)
    model.set_weights([(rng.standard_normal(w.shape) * (max(np.prod(w.shape[:-1]), 1) ** -0.5 if w.ndim > 1 else 0.1)
                        + (1.0 if w.ndim == 1 else 0.0)).astype(w.dtype) for w in model.get_weights()])
    return model


def fitted():
    """A small convolutional net is fitted, evaluated, saved and loaded."""
    keras.utils.set_random_seed(1)
    model = _filled(keras.Sequential([keras.Input((12, 12, 1)), layers.Conv2D(4, 3, activation="relu"),
                                      layers.MaxPooling2D(), layers.BatchNormalization(), layers.Flatten(),
                                      layers.Dense(3, activation="softmax")]))
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "sparse_categorical_crossentropy", metrics=["accuracy"],
                  run_eagerly=True)
    x, y = array(24, 12, 12, 1).numpy(), tokens(24, below=3).numpy()
    history = model.fit(x, y, epochs=3, batch_size=8, shuffle=False, verbose=0, validation_split=0.25)
    model.save("model.keras")
    again = keras.saving.load_model("model.keras")
    return {"history": history.history, "evaluated": again.evaluate(x, y, verbose=0),
            "predicted": again.predict(x[:4], verbose=0), "parameters": model.count_params()}


def of_layers():
    """Layers of each kind: values and the gradients of what went in."""
    cases = {"lstm": (layers.LSTM(5, return_sequences=True), (2, 6, 4)), "gru": (layers.GRU(5), (2, 6, 4)),
             "attention": (layers.MultiHeadAttention(2, 4), (2, 6, 8)), "norm": (layers.LayerNormalization(), (3, 8)),
             "depthwise": (layers.DepthwiseConv2D(3, padding="same"), (2, 7, 7, 3)),
             "transposed": (layers.Conv2DTranspose(4, 3, strides=2), (2, 5, 5, 3)),
             "separable": (layers.SeparableConv1D(4, 3), (2, 8, 3)), "group": (layers.GroupNormalization(2), (2, 5, 4)),
             "bidirectional": (layers.Bidirectional(layers.SimpleRNN(3)), (2, 5, 4)),
             "resized": (layers.Resizing(9, 6), (2, 5, 5, 3)), "dense": (layers.EinsumDense("abc,cd->abd", (None, 5)),
                                                                       (2, 3, 4))}
    found = {}
    for name, (layer, shape) in cases.items():
        x = array(*shape).requires_grad_()
        of = (x, x) if name == "attention" else (x,)
        layer(*of)
        out = _filled(layer)(*of)
        out.square().sum().backward()
        found[name] = {"out": out, "gradient": x.grad}
    return found


def optimized():
    """Every optimizer for some steps."""
    found = {}
    for name in ("SGD", "RMSprop", "Adam", "AdamW", "Adadelta", "Adagrad", "Adamax", "Nadam", "Ftrl", "Lion", "Lamb"):
        variable = keras.Variable(array(4).numpy())
        optimizer = getattr(keras.optimizers, name)(learning_rate=0.05)
        for step in range(4):
            optimizer.apply([variable.value.detach() * (step + 1)], [variable])
        found[name] = variable.value.detach()
    return found


class _Own(keras.Model):
    """A model with a training step of its own, written with torch."""
    def __init__(self):
        super().__init__()
        self.dense, self.drop, self.last = layers.Dense(6, activation="gelu"), layers.Dropout(0.0), layers.Dense(1)

    def call(self, x, training=False):
        return self.last(self.drop(self.dense(x), training=training))

    def train_step(self, data):
        x, y = data
        self.zero_grad()
        loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        loss.backward()
        weights = list(self.trainable_weights)
        with torch.no_grad():
            self.optimizer.apply([weight.value.grad for weight in weights], weights)
        return {"loss": loss}


def own_step():
    """A step written with torch's own names; numbers and functions of keras.ops."""
    model = _Own()
    model(np.zeros((1, 5), "float32"))
    _filled(model).compile("sgd", "mse", run_eagerly=True)
    history = model.fit(array(16, 5).numpy(), array(16, 1, seed=1).numpy(), epochs=3, batch_size=8, shuffle=False,
                        verbose=0)
    x = ops.convert_to_tensor(array(3, 4).numpy())
    return {"history": history.history, "ops": [ops.softmax(x), ops.einsum("ij,kj->ik", x, x), ops.top_k(x, 2)[1],
                                                ops.segment_sum(x, ops.array([0, 0, 1])), ops.qr(x)[1],
                                                ops.image.resize(ops.reshape(x, (1, 3, 4, 1)), (6, 6))]}
