"""Two small transformers, many of them at a time, and what their attention is made of.

Every parameter has a leading model axis M: models of one architecture run as a stack, each on its own pictures. Axis
letters: M models, B pictures or captions, T tokens, H heads, D width, K width of a head.

The logits of the first layer are a sum. With the token part E, the position part P and the bias B of what queries and
keys are made from, ``logit = Σ (E + P + B)_query · (E + P + B)_key``: nine terms, EE to BB, exactly. A normalised layer
adds up in the same way once its scale is taken as given.

References
----------
*Left-Right Symmetry Breaking in CLIP-style Vision-Language Models*, sections 2.2 and 5, appendices E, I, J and R.
Token embeddings are scaled by √D and dropout stands where it does in the transformer that paper builds on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.testbed_world import CAPTION_LENGTH, CLS, END, VOCABULARY

Parameters = dict[str, Tensor]
Dropout = Callable[[Tensor], Tensor]

TERMS: Final = tuple(query + key for query in "EPB" for key in "EPB")
IMAGE, TEXT = "image", "text"


@dataclass(frozen=True, slots=True)
class Architecture:
    """Of both encoders.

    Attributes
    ----------
    image_layers, text_layers : int
    mlp : int
        Hidden width of the multi-layer perceptrons; 0 for none.
    norm : bool
        LayerNorm before each part and at the end.
    rope : bool
        Rotary positions in the image encoder, instead of learned ones.
    """

    image_layers: int = 1
    text_layers: int = 1
    mlp: int = 0
    norm: bool = False
    rope: bool = False
    width: int = 128
    heads: int = 4

    def layers(self, side: str) -> int:
        """Layers of one encoder."""
        return self.image_layers if side == IMAGE else self.text_layers

    def positions(self, side: str) -> str:
        """``learned`` or ``rotary``."""
        return "rotary" if side == IMAGE and self.rope else "learned"


def initialise(architecture: Architecture, length: int, seed: int) -> Parameters:
    """Parameters of one model: Xavier-uniform matrices, biases uniform within 1/√fan-in.

    Parameters
    ----------
    length : int
        Tokens of a picture.
    """
    generator = torch.Generator().manual_seed(seed)
    width = architecture.width

    def matrix(rows: int, columns: int) -> Tensor:
        bound = math.sqrt(6 / (rows + columns))
        return (torch.rand(rows, columns, generator=generator) * 2 - 1) * bound

    def bias(size: int, fan_in: int) -> Tensor:
        return (torch.rand(size, generator=generator) * 2 - 1) / math.sqrt(fan_in)

    made: Parameters = {}
    for side, tokens in ((IMAGE, length), (TEXT, CAPTION_LENGTH)):
        made[f"{side}.token"] = matrix(VOCABULARY, width)
        if architecture.positions(side) == "learned":
            made[f"{side}.position"] = matrix(tokens, width)
        for layer in range(architecture.layers(side)):
            at = f"{side}.{layer}"
            for name in ("query", "key", "value", "out"):
                made[f"{at}.{name}"] = matrix(width, width)
                made[f"{at}.{name}_bias"] = bias(width, width)
            if architecture.mlp:
                made[f"{at}.up"] = matrix(width, architecture.mlp)
                made[f"{at}.up_bias"] = bias(architecture.mlp, width)
                made[f"{at}.down"] = matrix(architecture.mlp, width)
                made[f"{at}.down_bias"] = bias(width, architecture.mlp)
            if architecture.norm:
                for part in ("norm1", "norm2") if architecture.mlp else ("norm1",):
                    made |= {f"{at}.{part}": torch.ones(width), f"{at}.{part}_bias": torch.zeros(width)}
        if architecture.norm:
            made |= {f"{side}.norm": torch.ones(width), f"{side}.norm_bias": torch.zeros(width)}
    made["projection"] = matrix(width, width)
    made["projection_bias"] = bias(width, width)
    made["logit_scale"] = torch.tensor(math.log(1 / 0.07))
    return made


def stack(models: Iterable[Parameters]) -> Parameters:
    """Parameters of several models as one stack."""
    several = list(models)
    return {name: torch.stack([model[name] for model in several]) for name in several[0]}


def pick(parameters: Parameters, models: slice) -> Parameters:
    """Some models of a stack, still stacked."""
    return {name: value[models] for name, value in parameters.items()}


def encode(
    parameters: Parameters,
    architecture: Architecture,
    side: str,
    tokens: Tensor,
    *,
    dropout: Dropout | None = None,
    zero: frozenset[str] = frozenset(),
) -> Tensor:
    """Encode pictures at the class token, or captions at the last token.

    Parameters
    ----------
    side : {"image", "text"}
    tokens : (M, B, T) int64
    dropout : callable, optional
        Applied where the training drops; None at inference.
    zero : set of str
        Terms of the first layer's logits to leave out, and ``VP`` for the positions' part of its values.

    Returns
    -------
    (M, B, D) float32
        Not normalised; captions already projected.
    """
    plain = not (architecture.mlp or architecture.norm) and architecture.positions(side) == "learned"
    if dropout is None and not zero and plain and architecture.layers(side) == 1:
        return _encode_by_table(parameters, architecture, side, tokens)
    drop = dropout or (lambda x: x)
    x = drop(_embed(parameters, architecture, side, tokens))
    change, values = None, None
    if zero:
        terms = attention_terms(parameters, architecture, side, tokens)
        change = -torch.stack(
            [terms[name] for name in sorted(zero - {"VP"}) if name in terms] or [0 * terms["EE"]]
        ).sum(0)
        if "VP" in zero:
            values = parts(parameters, architecture, side, tokens)[0]
    last = architecture.layers(side) - 1
    for layer in range(last + 1):
        block = _Block(parameters, architecture, side, layer, drop)
        first = layer == 0
        x = block(x, last=layer == last, change=change if first else None, values=values if first else None)
    if architecture.norm:
        x = _normalise(x, parameters[f"{side}.norm"], parameters[f"{side}.norm_bias"])
    return _project(parameters, x) if side == TEXT else x


def _encode_by_table(parameters: Parameters, architecture: Architecture, side: str, tokens: Tensor) -> Tensor:
    """`encode` for one layer of attention alone, without dropout: the same numbers for a quarter of the work.

    The token that is read is always the same one, and all else follows from tables of what each token and each
    position adds to the logits and to the values.
    """
    heads, at = architecture.heads, f"{side}.0"
    table = parameters[f"{side}.token"] * math.sqrt(architecture.width)
    position = parameters[f"{side}.position"]
    read = 0 if side == IMAGE else tokens.shape[2] - 1
    one_hot = _one_hot(tokens, table.dtype)
    token = CLS if side == IMAGE else END

    def linear(name: str, x: Tensor) -> Tensor:
        return torch.baddbmm(parameters[f"{at}.{name}_bias"].unsqueeze(1), x, parameters[f"{at}.{name}"])

    own = table[:, token : token + 1] + position[:, read : read + 1]  # M 1 D
    query = split_axis(linear("query", own), -1, heads, -1).transpose(1, 2)  # M H 1 K
    key_of = split_axis(parameters[f"{at}.key"], -1, heads, -1).permute(0, 2, 3, 1)  # M H K D
    asked = (query @ key_of).squeeze(2).transpose(1, 2) / math.sqrt(query.shape[-1])  # M D H
    by_token, by_position = table @ asked, position @ asked  # M V H, M T H
    logits = split_axis(one_hot.flatten(1, 2) @ by_token, 1, *tokens.shape[1:]) + by_position.unsqueeze(1)
    weights = logits.softmax(2).transpose(2, 3)  # M B H T
    of_token, of_position = (
        split_axis(x @ parameters[f"{at}.value"], -1, heads, -1).transpose(1, 2) for x in (table, position)
    )  # M H V K, M H T K
    seen = (weights @ one_hot).transpose(1, 2) @ of_token + weights.transpose(1, 2) @ of_position
    made = seen.transpose(1, 2).flatten(2) + parameters[f"{at}.value_bias"].unsqueeze(1)
    x = own + linear("out", made)
    return _project(parameters, x) if side == TEXT else x


def _project(parameters: Parameters, x: Tensor) -> Tensor:
    return torch.baddbmm(parameters["projection_bias"].unsqueeze(1), x, parameters["projection"])


def parts(
    parameters: Parameters, architecture: Architecture, side: str, tokens: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """What the first layer reads: token part, position part (M, B, T, D) and, with a norm, its bias (M, 1, 1, D)."""
    token, position = _token(parameters, side, tokens), _position(parameters, architecture, side)
    position = torch.zeros_like(token) if position is None else position.expand_as(token)
    shift = torch.zeros_like(token[:, :1, :1])
    if architecture.norm:
        at = f"{side}.0.norm1"
        whole = token + position
        scale = parameters[at][:, None, None] / (whole.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
        token = (token - token.mean(-1, keepdim=True)) * scale
        position = (position - position.mean(-1, keepdim=True)) * scale
        shift = parameters[f"{at}_bias"][:, None, None]
    return token, position, shift


def attention_terms(
    parameters: Parameters, architecture: Architecture, side: str, tokens: Tensor
) -> dict[str, Tensor]:
    """The terms that the logits of the first layer are the sum of.

    Returns
    -------
    dict of (M, B, H, T, T) float32
        Query token before key token; ``EP`` is a token's query on a position's key. All divided by √K. No causal mask.
    """
    token, position, shift = parts(parameters, architecture, side, tokens)
    at = f"{side}.0"
    made: dict[str, dict[str, Tensor]] = {}
    for name in ("query", "key"):
        weight, bias = parameters[f"{at}.{name}"].unsqueeze(1), parameters[f"{at}.{name}_bias"][:, None, None]
        sources = {"E": token @ weight, "P": position @ weight, "B": (shift @ weight + bias).expand_as(token)}
        made[name] = {part: _heads(x, architecture) for part, x in sources.items()}
        if architecture.positions(side) == "rotary":
            made[name] = {part: rotate(x) for part, x in made[name].items()}
    scale = 1 / math.sqrt(architecture.width // architecture.heads)
    return {
        query + key: made["query"][query] @ made["key"][key].transpose(-1, -2) * scale
        for query in "EPB"
        for key in "EPB"
    }


def attention(parameters: Parameters, architecture: Architecture, side: str, tokens: Tensor) -> Tensor:
    """Attention weights of the first layer, (M, B, H, T, T)."""
    logits = torch.stack(list(attention_terms(parameters, architecture, side, tokens).values())).sum(0)
    return (_causal(logits) if side == TEXT else logits).softmax(-1)


def rotate(x: Tensor) -> Tensor:
    """Rotary positions: turn the two halves of the last axis by angles that grow along the axis before it.

    References
    ----------
    Su et al., *RoFormer*, equation 34.
    """
    half = x.shape[-1] // 2
    rates = 10000 ** (-torch.arange(half, device=x.device, dtype=x.dtype) / half)
    angles = torch.arange(x.shape[-2], device=x.device, dtype=x.dtype)[:, None] * rates
    one, other = x[..., :half], x[..., half:]
    cosine, sine = angles.cos(), angles.sin()
    return torch.cat([one * cosine - other * sine, one * sine + other * cosine], -1)


def split_axis(x: Tensor, axis: int, *sizes: int) -> Tensor:
    """`Tensor.unflatten`, with its types."""
    split: Tensor = x.unflatten(axis, sizes)  # type: ignore[no-untyped-call]
    return split


def _embed(parameters: Parameters, architecture: Architecture, side: str, tokens: Tensor) -> Tensor:
    token, position = _token(parameters, side, tokens), _position(parameters, architecture, side)
    return token if position is None else token + position


def _token(parameters: Parameters, side: str, tokens: Tensor) -> Tensor:
    # A product with one-hot rows: its gradient is one product too, the same on every device and in every order.
    table = parameters[f"{side}.token"]
    one_hot = _one_hot(tokens, table.dtype)
    return split_axis(one_hot.flatten(1, 2) @ (table * math.sqrt(table.shape[-1])), 1, *tokens.shape[1:])


def _one_hot(tokens: Tensor, dtype: torch.dtype) -> Tensor:
    return (tokens.unsqueeze(-1) == torch.arange(VOCABULARY, device=tokens.device)).to(dtype)


def _position(parameters: Parameters, architecture: Architecture, side: str) -> Tensor | None:
    return parameters[f"{side}.position"].unsqueeze(1) if architecture.positions(side) == "learned" else None


def _heads(x: Tensor, architecture: Architecture) -> Tensor:
    """(M, B, T, D) to (M, B, H, T, K)."""
    return split_axis(x, -1, architecture.heads, -1).transpose(2, 3)


def _causal(logits: Tensor) -> Tensor:
    size = logits.shape[-1]
    future = torch.ones(size, size, dtype=torch.bool, device=logits.device).triu(1)
    return logits.masked_fill(future, -torch.inf)


def _normalise(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    shape = (len(gain), *[1] * (x.dim() - 2), -1)
    return functional.layer_norm(x, x.shape[-1:]) * gain.view(shape) + bias.view(shape)


class _Block:
    """One layer of one encoder: attention, and a perceptron where there is one."""

    def __init__(
        self, parameters: Parameters, architecture: Architecture, side: str, layer: int, drop: Dropout
    ) -> None:
        self.parameters, self.architecture, self.side, self.drop = parameters, architecture, side, drop
        self.at = f"{side}.{layer}"

    def __call__(self, x: Tensor, *, last: bool, change: Tensor | None, values: Tensor | None) -> Tensor:
        """(M, B, T, D) to the same, or, as the last layer, to (M, B, D) at the token that is read."""
        normed = self._norm("norm1", x)
        read = 0 if self.side == IMAGE else x.shape[2] - 1
        if last:
            x = x[:, :, read] + self.drop(self._attend_from(normed, read, change, values))
        else:
            x = x + self.drop(self._attend(normed, change, values))
        if self.architecture.mlp:
            inner = functional.gelu(self._linear("up", self._norm("norm2", x)))
            x = x + self.drop(self._linear("down", self.drop(inner)))
        return x

    def _norm(self, part: str, x: Tensor) -> Tensor:
        if not self.architecture.norm:
            return x
        return _normalise(x, self.parameters[f"{self.at}.{part}"], self.parameters[f"{self.at}.{part}_bias"])

    def _linear(self, name: str, x: Tensor) -> Tensor:
        weight, bias = self.parameters[f"{self.at}.{name}"], self.parameters[f"{self.at}.{name}_bias"]
        made = torch.baddbmm(bias.unsqueeze(1), x.flatten(1, -2), weight)
        return split_axis(made, 1, *x.shape[1:-1])

    def _attend(self, x: Tensor, change: Tensor | None, values: Tensor | None) -> Tensor:
        query, key = (_heads(self._linear(name, x), self.architecture) for name in ("query", "key"))
        value = _heads(self._linear("value", x if values is None else values), self.architecture)
        if self.architecture.positions(self.side) == "rotary":
            query, key = rotate(query), rotate(key)
        logits = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        if change is not None:
            logits = logits + change
        weights = self.drop((_causal(logits) if self.side == TEXT else logits).softmax(-1))
        return self._linear("out", (weights @ value).transpose(2, 3).flatten(3))

    def _attend_from(self, x: Tensor, read: int, change: Tensor | None, values: Tensor | None) -> Tensor:
        # One query a head: the products with the key and value matrices move to its side of the sum over tokens,
        # which costs H products a picture instead of T. The last token of a caption sees all, so no mask.
        heads = self.architecture.heads
        query = split_axis(self._linear("query", x[:, :, read]), -1, heads, -1)  # M B H K
        scale = 1 / math.sqrt(query.shape[-1])
        if self.architecture.positions(self.side) == "rotary":
            if read:
                raise NotImplementedError(
                    "the token that is read stands at position 0, which turns by nothing"
                )
            key = rotate(_heads(self._linear("key", x), self.architecture))
            logits = (key @ (query * scale).unsqueeze(-1)).squeeze(-1)
        else:
            # The bias of the keys adds the same to every logit here, so it drops out of the softmax.
            key_of = split_axis(self.parameters[f"{self.at}.key"], -1, heads, -1).permute(
                0, 2, 3, 1
            )  # M H K D
            asked = (query * scale).transpose(1, 2) @ key_of
            logits = asked.transpose(1, 2) @ x.transpose(-1, -2)
        if change is not None:
            logits = logits + change[..., read, :]
        weights = self.drop(logits.softmax(-1))
        seen = (weights @ (x if values is None else values)).transpose(1, 2)  # M H B D
        value_of = split_axis(self.parameters[f"{self.at}.value"], -1, heads, -1).transpose(1, 2)  # M H D K
        bias = split_axis(self.parameters[f"{self.at}.value_bias"], -1, heads, -1).unsqueeze(1)
        made = (seen @ value_of).transpose(1, 2) + weights.sum(-1, keepdim=True) * bias
        return self._linear("out", made.flatten(2))
