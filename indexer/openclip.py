"""Any open_clip model as an encoder."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# Nothing is ever fetched. huggingface_hub reads this once, when it is imported.
os.environ["HF_HUB_OFFLINE"] = "1"

import huggingface_hub.constants
import numpy as np
import open_clip
import torch
from huggingface_hub import try_to_load_from_cache
from numpy.typing import NDArray
from open_clip.model import get_model_preprocess_cfg
from open_clip.pretrained import get_pretrained_cfg
from open_clip.transform import PreprocessCfg, image_transform_v2, to_2tuple
from PIL import Image
from torch import Tensor

from indexer.dense import default_mode, dense_reader, read_frame, stride_of, takes_any_size
from indexer.encoder import (
    DenseMode,
    DenseView,
    EncoderSpec,
    EncoderUnavailable,
    ImageFeatures,
    Pixels,
    TextFeatures,
)
from indexer.prepare import OpenClipPreparer

Floats = NDArray[np.float32]
Tokenise = Callable[[list[str], int], Tensor]


@contextmanager
def one_core() -> Iterator[None]:
    """Let torch work on one core for the thread at hand, as befits work that is too little to share."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class OpenClipEncoder:
    """An open_clip model with its patch tokens.

    Owns the model; runs on one device; passes may come from several threads.

    Parameters
    ----------
    model : module
        With ``visual``, ``encode_image`` and ``encode_text``, as open_clip builds it.
    preparer : OpenClipPreparer
        open_clip's own evaluation transform, and the whole frame where the spec asks for it.
    tokenise : callable
        Texts and a context length to (B, context) token ids.
    spec : EncoderSpec
    device : torch.device
    """

    def __init__(
        self,
        model: Any,
        preparer: OpenClipPreparer,
        tokenise: Tokenise,
        spec: EncoderSpec,
        device: torch.device,
    ) -> None:
        self._model = model.eval().requires_grad_(False).to(device)
        self._preparer = preparer
        self._tokenise = tokenise
        self._device = device
        self._spec = spec
        self._read = dense_reader(model.visual, spec.dense_mode)
        self._image_lock, self._token_lock = threading.Lock(), threading.Lock()

    @property
    def spec(self) -> EncoderSpec:
        """What identifies the embedding space."""
        return self._spec

    @property
    def model(self) -> Any:
        """The open_clip model itself."""
        return self._model

    def tokenise(self, texts: list[str]) -> Tensor:
        """Token ids (B, L) of texts, cut to the context."""
        return self._tokenise(texts, self._spec.context_length)

    @property
    def preparer(self) -> OpenClipPreparer:
        """Its preprocessing alone, without weights."""
        return self._preparer

    def prepare(self, image: Image.Image) -> Pixels:
        """Preprocess one upright RGB picture.

        Returns
        -------
        Pixels
            ``native`` is what open_clip's transform gives; ``dense`` the whole frame where the spec asks for it.
        """
        return self._preparer(image)

    @torch.inference_mode()
    def encode_images(self, batch: Sequence[Pixels]) -> ImageFeatures:
        """Embed a batch of pictures.

        Parameters
        ----------
        batch : sequence of B Pixels

        Returns
        -------
        ImageFeatures
            ``pooled`` has the very bits of ``model.encode_image(batch, normalize=True)``.
        """
        with self._image_lock:  # the dense reader listens inside the tower while it runs
            pooled, tokens = self._read(self._stack([pixels.native for pixels in batch]))
            pooled = torch.nn.functional.normalize(pooled, dim=-1)
            if self._spec.dense_view is DenseView.NATIVE:
                return ImageFeatures(pooled.float().cpu().numpy(), list(tokens.float().cpu().numpy()))
            return ImageFeatures(pooled.float().cpu().numpy(), self._frames(batch))

    @torch.inference_mode()
    @one_core()
    def encode_texts(
        self, texts: Sequence[str], *, tower: Callable[[Tensor], Floats] | None = None
    ) -> TextFeatures:
        """Embed texts, one pass each on one core: products over several rows, or on several, may round differently.

        Parameters
        ----------
        texts : sequence of B str
        tower : callable, optional
            Token ids (1, L) to a unit vector (D,), instead of the model's own text tower.

        Returns
        -------
        TextFeatures
            ``vectors`` (B, D) float32, unit rows.
        """
        context = self._spec.context_length
        vectors = np.empty((len(texts), self._spec.dim), dtype=np.float32)
        truncated = []
        for row, text in enumerate(texts):
            with self._token_lock:  # not all tokenizers may be shared
                tokens, longer = self.tokenise([text]), self._tokenise([text], context + 1)
            # A text that fits keeps its end token where it is when there is more room; a cut one does not.
            truncated.append(not torch.equal(tokens, longer[:, :context]))
            vectors[row] = (tower or self._text_tower)(tokens)
        return TextFeatures(vectors, tuple(truncated))

    def _text_tower(self, tokens: Tensor) -> Floats:
        found: Tensor = self._model.encode_text(tokens.to(self._device), normalize=True)[0]
        return found.float().cpu().numpy()

    def _stack(self, arrays: Sequence[Floats]) -> Tensor:
        return torch.from_numpy(np.stack(arrays)).to(self._device)

    def _frames(self, batch: Sequence[Pixels]) -> list[Floats]:
        """Tokens of frames of different shapes, each shape in one pass."""
        frames = [pixels.dense if pixels.dense is not None else pixels.native for pixels in batch]
        tokens: dict[int, Floats] = {}
        for shape in {frame.shape for frame in frames}:
            rows = [row for row, frame in enumerate(frames) if frame.shape == shape]
            seen = read_frame(
                self._model.visual, self._spec.dense_mode, self._stack([frames[row] for row in rows])
            )
            tokens.update(zip(rows, seen.float().cpu().numpy(), strict=True))
        return [tokens[row] for row in range(len(frames))]


def load_open_clip(
    name: str,
    pretrained: str | None,
    *,
    device: str = "auto",
    dense_mode: DenseMode | None = None,
    dense_view: DenseView | None = None,
) -> OpenClipEncoder:
    """Load an open_clip model from a tag in the local cache, a weights file, or at random.

    Parameters
    ----------
    name : str
        An open_clip model name.
    pretrained : str, optional
        A tag; a file; ``TAG:FILE`` for a file whose preprocessing is a tag's (a bare file takes that of the model's
        tags where they agree); ``random:SEED`` for shapes and speed.

    Raises
    ------
    EncoderUnavailable
    """
    if name not in open_clip.list_models():
        raise EncoderUnavailable(
            f"no model is called {name!r}",
            expected="compact or an open_clip model name",
            fix="List them: python -c 'import open_clip; print(*open_clip.list_models())'",
        )
    target = pick_device(device)
    source = _resolve(name, pretrained)
    try:
        with _quiet_and_offline(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(source.seed)
            model = open_clip.create_model(
                name,
                pretrained=source.weights,
                force_quick_gelu=source.quick_gelu,
                force_preprocess_cfg=source.preprocessing,
                pretrained_image=False,
                pretrained_text=False,
                output_dict=False,
            )
            tokenizer = open_clip.get_tokenizer(name)
    except Exception as error:
        raise EncoderUnavailable(
            f"{name} ({pretrained}) cannot be loaded here",
            came=str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__,
            fix="Nothing is fetched from a network.",
        ) from error
    return wrap_open_clip(
        model, name, source.label, tokenizer, device=target, dense_mode=dense_mode, dense_view=dense_view
    )


def wrap_open_clip(
    model: Any,
    name: str,
    pretrained: str,
    tokenizer: Callable[..., Tensor],
    *,
    device: torch.device,
    dense_mode: DenseMode | None = None,
    dense_view: DenseView | None = None,
    template: str = "a photo of a {}",
    context_length: int | None = None,
) -> OpenClipEncoder:
    """Make an encoder of a model that open_clip has already built."""
    visual = model.visual
    cfg = get_model_preprocess_cfg(model)
    mode = dense_mode or default_mode(visual)
    crops = cfg.get("resize_mode", "shortest") == "shortest"
    view = dense_view or (DenseView.FRAME if crops and takes_any_size(visual) else DenseView.NATIVE)
    if view is DenseView.FRAME and not takes_any_size(visual):
        raise EncoderUnavailable(
            f"{name} sees one picture size only", came=f"dense view {view}", allowed=[DenseView.NATIVE]
        )
    model.eval()
    with torch.inference_mode():
        size = to_2tuple(cfg["size"])
        pooled, tokens = dense_reader(visual, mode)(torch.zeros(1, 3, *size))
    spec = EncoderSpec(
        name=name,
        pretrained=pretrained,
        weights_sha256=weights_hash(model),
        preprocessing=json.dumps(cfg, sort_keys=True),
        dim=pooled.shape[-1],
        grid=(0, 0) if view is DenseView.FRAME else (tokens.shape[1], tokens.shape[2]),
        dense_mode=mode,
        dense_view=view,
        template=template,
        context_length=context_length or model.context_length,
        numeric="float32",
    )
    return OpenClipEncoder(
        model,
        _preparer_of(cfg, stride_of(visual) if view is DenseView.FRAME else None),
        lambda texts, length: tokenizer(texts, context_length=length),
        spec,
        device,
    )


def _preparer_of(cfg: Mapping[str, Any], frame_stride: int | None) -> OpenClipPreparer:
    height, width = to_2tuple(cfg["size"])
    return OpenClipPreparer(
        size=(height, width),
        mean=tuple(cfg["mean"]),
        std=tuple(cfg["std"]),
        resize_mode=cfg.get("resize_mode") or "shortest",
        interpolation=cfg.get("interpolation") or "bicubic",
        fill=int(cfg.get("fill_color") or 0),
        frame_stride=frame_stride,
    )


def preprocessing_of(model: Any) -> Callable[[Image.Image], Tensor]:
    """open_clip's own evaluation transform: a PIL picture to (3, H, W) float32."""
    transform: Callable[[Image.Image], Tensor] = image_transform_v2(
        PreprocessCfg(**get_model_preprocess_cfg(model)), is_train=False
    )
    return transform


def weights_hash(model: Any) -> str:
    """SHA-256 over a model's structure and all its parameters and buffers, by name.

    The structure counts because the same weights behind another activation are another encoder.
    """
    digest = hashlib.sha256(repr(model).encode())
    for key, tensor in sorted(model.state_dict().items()):
        digest.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def pick_device(device: str) -> torch.device:
    """Resolve ``auto``, ``cpu`` or ``cuda``.

    Raises
    ------
    EncoderUnavailable
        Unknown, or not on this machine.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise EncoderUnavailable("unknown device", came=device, allowed=["auto", "cpu", "cuda"])
    if device == "cuda" and not torch.cuda.is_available():
        raise EncoderUnavailable("torch sees no CUDA device here", came="cuda", allowed=["auto", "cpu"])
    return torch.device("cuda" if device != "cpu" and torch.cuda.is_available() else "cpu")


class _Source:
    """Where weights come from and what belongs to them."""

    def __init__(self, label: str, weights: str | None, tag_cfg: dict[str, Any], seed: int = 0) -> None:
        self.label = label
        self.weights = weights
        self.seed = seed
        self.quick_gelu = bool(tag_cfg.get("quick_gelu", False))
        self.preprocessing = {
            key: tag_cfg[key] for key in ("mean", "std", "interpolation", "resize_mode") if key in tag_cfg
        }


def _resolve(name: str, pretrained: str | None) -> _Source:
    tags = open_clip.list_pretrained_tags_by_model(name)
    if pretrained is None:
        raise EncoderUnavailable(
            f"{name} needs weights", expected="--pretrained with a file, a tag or random:SEED", allowed=tags
        )
    if pretrained.startswith("random:") and pretrained[7:].isdecimal():
        # Random weights were trained on no preprocessing: where the tags differ, open_clip's default will do.
        shared = {} if _tags_differ(name, tags) else _common_cfg(name, tags)
        return _Source(pretrained, None, shared, seed=int(pretrained[7:]))
    if pretrained in tags:
        cfg = get_pretrained_cfg(name, pretrained)
        return _Source(pretrained, _cached(name, pretrained, cfg), cfg)
    tag, _, file = pretrained.partition(":")
    if file and tag in tags and Path(file).is_file():
        return _Source(pretrained, file, get_pretrained_cfg(name, tag))
    if Path(pretrained).is_file():
        return _Source(pretrained, pretrained, _common_cfg(name, tags))
    raise EncoderUnavailable(
        f"no weights {pretrained!r} for {name}",
        expected="an existing file, random:SEED or a tag",
        allowed=tags,
    )


def _cached(name: str, tag: str, cfg: dict[str, Any]) -> str:
    """The file that open_clip itself keeps for a tag, if it is on this machine."""
    repository, _, file = cfg.get("hf_hub", "").rpartition("/")
    names = [file] if file else ["open_clip_model.safetensors", "open_clip_pytorch_model.bin"]
    if file.endswith((".bin", ".pt", ".pth")):
        names.insert(0, f"{Path(file).stem}.safetensors")
    found = [try_to_load_from_cache(repository, each) for each in names] if repository else []
    if cfg.get("url"):
        local = Path("~/.cache/clip").expanduser() / Path(cfg["url"]).name
        found.append(str(local) if local.is_file() else None)
    for path in found:
        if isinstance(path, str):
            return path
    raise EncoderUnavailable(
        f"the weights of {name} {tag} are not on this machine",
        fix=f"Nothing is fetched from a network. Put them in a file and name it with --pretrained {tag}:FILE, or let "
        f'open_clip fetch them once where there is one: python -c "import open_clip; '
        f"open_clip.create_model('{name}', '{tag}')\"",
    )


def _common_cfg(name: str, tags: Sequence[str]) -> dict[str, Any]:
    """Preprocessing that all tags of a model share; where they differ, only a tag can say which is meant."""
    if _tags_differ(name, tags):
        raise EncoderUnavailable(
            f"the checkpoints of {name} are preprocessed in different ways",
            expected="TAG:FILE, the tag whose preprocessing the file wants",
            allowed=tags,
        )
    return _preprocessing(name, tags[0]) if tags else {}


def _tags_differ(name: str, tags: Sequence[str]) -> bool:
    return any(_preprocessing(name, tag) != _preprocessing(name, tags[0]) for tag in tags)


def _preprocessing(name: str, tag: str) -> dict[str, Any]:
    return {
        key: value for key, value in get_pretrained_cfg(name, tag).items() if key not in ("url", "hf_hub")
    }


@contextmanager
def _quiet_and_offline() -> Iterator[None]:
    """Keep the libraries' chatter off a user's terminal, and them off the network whoever imported them first."""
    logs, offline = logging.root.manager.disable, huggingface_hub.constants.HF_HUB_OFFLINE
    logging.disable(logging.WARNING)
    huggingface_hub.constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        logging.disable(logs)
        huggingface_hub.constants.HF_HUB_OFFLINE = offline
