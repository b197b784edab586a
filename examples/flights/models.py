"""What learns? The same small network twice: in NumPy, which needs nothing else, and in torch.

One hidden layer, trained by Adam with a falling learning rate on the absolute error (rounded off near zero), so that
both learn the same thing from the same minibatches.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, Protocol

import numpy as np

HIDDEN = 64
RATE = 3e-3
SEED = 2013
MINUTES = 10.0
"""The unit of the network's output, so that it is about 1."""
ROUND = 0.5
"""Errors below this, in that unit, count by their square."""


class Model(Protocol):
    """What the demo asks of a model."""

    xp: ModuleType

    def step(self, inputs: Any, label: Any) -> float:
        """Learn from one minibatch; return its mean absolute error in minutes, as it was before."""

    def predict(self, inputs: Any) -> Any:
        """Predict the label of each row, in minutes, as an array in host memory."""


class NumpyModel:
    """The network and its gradients, written out."""

    xp = np

    def __init__(self, width: int, steps: int) -> None:
        """Draw the first weights; `steps` is how many minibatches will come."""
        draw = np.random.default_rng(SEED)
        self._weights = [
            draw.normal(0, (2 / width) ** 0.5, (width, HIDDEN)).astype(np.float32),
            np.zeros(HIDDEN, np.float32),
            draw.normal(0, 0.1 * (2 / HIDDEN) ** 0.5, (HIDDEN, 1)).astype(np.float32),
            np.zeros(1, np.float32),
        ]
        self._means = [np.zeros_like(weight) for weight in self._weights]
        self._squares = [np.zeros_like(weight) for weight in self._weights]
        self._step, self._steps = 0, steps

    def step(self, inputs: np.ndarray, label: np.ndarray) -> float:
        """Go forward, backward, and down the gradient."""
        hidden, output = self._forward(inputs)
        error = output - label[:, None] / MINUTES
        down = np.clip(error / ROUND, -1, 1) / len(label)
        below = down @ self._weights[2].T * (hidden > 0)
        self._adam([inputs.T @ below, below.sum(0), hidden.T @ down, down.sum(0)])
        return float(np.abs(error).mean()) * MINUTES

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Go forward."""
        return self._forward(inputs)[1][:, 0] * np.float32(MINUTES)

    def _forward(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        hidden = np.maximum(inputs @ self._weights[0] + self._weights[1], 0)
        return hidden, hidden @ self._weights[2] + self._weights[3]

    def _adam(self, gradients: list[np.ndarray]) -> None:
        rate = RATE * max(0.0, 1 - self._step / self._steps)
        self._step += 1
        rate *= (1 - 0.999**self._step) ** 0.5 / (1 - 0.9**self._step)
        for weight, gradient, mean, square in zip(self._weights, gradients, self._means, self._squares, strict=True):
            mean += 0.1 * (gradient - mean)
            square += 0.001 * (gradient * gradient - square)
            weight -= rate * mean / (np.sqrt(square) + 1e-8)


class TorchModel:
    """The network in torch, on any of its devices."""

    def __init__(self, width: int, steps: int, device: str) -> None:
        """Draw the first weights; `steps` is how many minibatches will come."""
        import torch  # only this class needs it

        self.xp = torch
        self._device = device
        torch.manual_seed(SEED)
        layers = [torch.nn.Linear(width, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, 1)]
        self._network = torch.nn.Sequential(*layers).to(device)
        self._loss = torch.nn.SmoothL1Loss(beta=ROUND)
        self._adam = torch.optim.Adam(self._network.parameters(), lr=RATE)
        self._rate = torch.optim.lr_scheduler.LinearLR(self._adam, 1.0, 0.0, steps)

    def step(self, inputs: Any, label: Any) -> float:
        """Go forward, backward, and down the gradient."""
        return float(self.learn(inputs, label))

    def learn(self, inputs: Any, label: Any) -> Any:
        """Do so, with the error as a tensor of the device: what the device has to do is not waited for."""
        output = self._network(inputs.to(self._device))[:, 0]
        label = label.to(self._device) / MINUTES
        self._adam.zero_grad()
        self._loss(output, label).backward()
        self._adam.step()
        self._rate.step()
        return (output.detach() - label).abs().mean() * MINUTES

    def predict(self, inputs: Any) -> Any:
        """Go forward."""
        with self.xp.inference_mode():
            return self._network(inputs.to(self._device))[:, 0].cpu() * MINUTES
